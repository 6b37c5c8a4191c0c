"""Hatch's hook: a wheel has the man pages and completions of ``scripts/manuals.py`` among its data files.

Installers put these below the prefix of the environment, where ``man`` and shells look.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


class Manuals(BuildHookInterface):
    """Makes the files in a folder of its own, which goes away when the wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  the hook's signature
        """Make the files and tell hatch where each goes."""
        from scripts import manuals

        self.folder = tempfile.mkdtemp(prefix="rmq-reindex-manuals-")
        for place, text in manuals.files():
            path = Path(self.folder, place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            build_data["shared_data"][str(path)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
