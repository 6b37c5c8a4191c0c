"""Runs a page from top to bottom, and writes what its commands print into it.

    .venv/bin/python -m tests.docs.transcripts            every page that test_examples.py runs
    .venv/bin/python -m tests.docs.transcripts how-to/verify

Run it when a command prints something else, and look at the difference. Seconds stay as they are in the page.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from tests.docs.pages import DOCS, Block, blocks, text_of
from tests.docs.shell import Shell, no_spark, same, steps
from tests.docs.worlds import WORLDS


def run_page(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Every block of a page that is to be run, in order; of a terminal the text as it should stand."""
    world = WORLDS[page]
    world.make(folder)
    shell = Shell(world.here or folder, dict.fromkeys(world.moved, str(folder)))
    names = dict(world.names)
    try:
        for block in blocks(page):
            if block.reason:
                continue
            if block.language == "python":
                before = os.getcwd()
                os.chdir(folder)
                try:
                    with no_spark():
                        exec(compile(block.text, str(block), "exec"), names)
                finally:
                    os.chdir(before)
                yield block, block.text
            elif block.language == "bash":
                shell.run(f"set -e\n{block.text}")
                yield block, block.text
            else:
                yield block, "\n".join(_step(shell, command, shown) for command, shown in steps(block.text))
    finally:
        shell.close()


def _step(shell: Shell, command: str, shown: str) -> str:
    # A command may fail: the page shows what it says then.
    printed = shell.run(f"{command}\ntrue").strip("\n")
    lines = zip_longest(printed.splitlines(), shown.splitlines(), fillvalue="")
    kept = [old if same(new) == same(old) else new.rstrip() for new, old in lines][: len(printed.splitlines())]
    return "\n".join([f"$ {command}", *kept]) + "\n"


def rewrite(page: str, folder: Path) -> bool:
    """Whether the page was another before."""
    text = before = text_of(page)
    for block, made in reversed(list(run_page(page, folder))):
        text = text[: block.start] + re.sub(r"\n{2,}\Z", "\n", made) + text[block.start + len(block.text) :]
    (DOCS / f"{page}.md").write_text(text, encoding="utf-8")
    return text != before


def main() -> int:
    for page in sys.argv[1:] or WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            inner = Path(folder) / "in"
            inner.mkdir()
            print(f"{page}: {'changed' if rewrite(page, inner) else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
