"""Placeholder."""
from __future__ import annotations
