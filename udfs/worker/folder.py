"""Where the processes of an engine work."""

from __future__ import annotations

from typing import Final

FOLDER: Final = "/"
"""only root can put files there that Python or Java would load"""
