"""Writes docs/images/demo.svg: what a real `make demo` prints, as a picture of a terminal.

    .venv/bin/python scripts/record_demo.py

Run it when the demo prints something else: a test compares the two.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
WIDTH = 120


def picture(printed: str) -> str:
    """The SVG of a terminal that shows ``make demo`` and what it printed. It loads no font from elsewhere."""
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(Text("$ make demo", style="bold green"))
    for line in printed.splitlines():
        text = Text(line)
        text.highlight_regex(r"^\$ .*", "bold")
        text.highlight_regex(r"\d+ of \d+\b.*", "green")
        console.print(text, soft_wrap=False)
    svg = console.export_svg(title="rmq-reindex", theme=MONOKAI, unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "monospace").replace("font-family: Fira Code", "font-family: monospace")


def main() -> int:
    demo = [sys.executable, "-m", "scripts.demo"]
    done = subprocess.run(demo, stdout=subprocess.PIPE, cwd=ROOT, text=True, check=True)
    PICTURE.write_text(picture(done.stdout), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}, {PICTURE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
