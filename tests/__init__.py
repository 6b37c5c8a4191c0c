"""All tests, their reference and their tools."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""
