"""The pages of the documentation as tests see them: fenced blocks, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
AROUND: Final = tuple(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))
"""Markdown beside docs/ whose links are checked as well."""
RUN: Final = ("bash", "console", "python")
"""Languages of blocks that somebody may copy and run."""
_FENCE: Final = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block; ``reason`` says why it is not run, "" for one that is. ``start`` is where its text begins in the page."""

    page: str
    line: int
    language: str
    text: str
    reason: str
    start: int

    def __str__(self) -> str:
        return f"{self.page}.md:{self.line}"


def names() -> list[str]:
    """Every page of docs/, without ``.md``."""
    return sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page that somebody may run, in order."""
    text, found = text_of(page), []
    for fence in _FENCE.finditer(text):
        if fence["language"] in RUN:
            line, start = text.count("\n", 0, fence.start()) + 1, fence.start("text")
            found.append(Block(page, line, fence["language"], fence["text"], fence["reason"] or "", start))
    return found


def section(page: str, title: str) -> str:
    """What stands below a heading, up to the next one."""
    return re.split(r"\n#+ ", re.split(rf"\n#+ {re.escape(title)}\n", text_of(page), maxsplit=1)[1], maxsplit=1)[0]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of a table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def anchors(path: Path) -> set[str]:
    """Those that a page's headings have, there and in a repository."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"[`*]", "", line.lstrip("# ")).lower() for line in text.splitlines() if re.match("#+ ", line)]
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def links(path: Path) -> Iterator[str]:
    """Targets of the links and pictures of a page that lead to other files, or to a place in the page."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if not target.startswith(("https://", "http://")):
            yield target
