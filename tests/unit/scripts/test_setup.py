"""What set-up does for ``make demo``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
UV = """#!/bin/sh
[ "$1" = --version ] || echo "$@" >> WORDS
"""


def test_the_demo_waits_for_no_tools_and_for_nothing_that_is_for_speed(tmp_path: Path) -> None:
    tree, words, uv = tmp_path / "tree", tmp_path / "words", tmp_path / "bin" / "uv"
    shutil.copytree(ROOT / "scripts", tree / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "rocketmq_reindex").mkdir()
    (tree / ".venv").symlink_to(ROOT / ".venv")
    uv.parent.mkdir()
    uv.write_text(UV.replace("WORDS", str(words)))
    uv.chmod(0o755)
    before = {path.name for path in tree.iterdir()}
    environment = {**os.environ, "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    subprocess.run([tree / "scripts" / "setup", "--demo"], env=environment, check=True)
    # Without the default groups, and without taking away what `make setup` installed.
    assert words.read_text().splitlines() == ["sync --frozen --no-default-groups --group spark --inexact --quiet"]
    assert {path.name for path in tree.iterdir()} - before == {".java-home", ".venv-tools"}
