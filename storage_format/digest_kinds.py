"""The kinds of digests that files of this project may have."""

from __future__ import annotations

from typing import Final

KIND: Final = "xxh3-128"
"""what all digests are; a manifest says so"""
EARLIER_KIND: Final = "murmur3-128"
"""what a manifest's digests are that says nothing: its build is older"""
