"""Horizontal bars of plain HTML: names of any length and script wrap, and what they say can be searched and copied."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as html
from typing import Final, NamedTuple

LONG_NAME: Final = 26
LONG_LINE: Final = 36
LONG_ON_A_PHONE: Final = 22
"""Characters of a name, and of name and value, from where on names stand above their bars: beside them they would take the
room of the bars."""


class Bar(NamedTuple):
    """``value`` sets the length, ``bad`` is the part of it that something is wrong with; ``text`` is the value in words."""

    name: str
    value: float
    text: str
    bad: float = 0.0


def bars(rows: Sequence[Bar], colour: str = "c0", full: float = 0) -> str:
    """A line a bar; one of ``full``, or else the longest, is as wide as can be. Names are shown as they are: escape controls
    before."""
    largest = full or max((row.value for row in rows), default=0) or 1
    name, width = max(len(row.name) for row in rows), max(len(row.text) for row in rows)
    long = " long" if name > LONG_NAME or name + width > LONG_LINE else " tight" if name + width > LONG_ON_A_PHONE else ""
    lines = []
    for row in rows:
        parts = ((row.value - row.bad, colour), (row.bad, "bad"))
        drawn = "".join(
            f'<i style="--share:{size / largest:.4g};background:var(--{tone})"></i>' for size, tone in parts if size > 0
        )
        lines.append(f"{_name(row.name)}<div>{drawn}<b>{html(row.text)}</b></div>")
    # The longest value, in the width of digits, has its room beside the longest bar.
    return f'<div class="bars{long}" style="--text:{width + 2}ch">{"".join(lines)}</div>'


def legend(names: Sequence[str]) -> str:
    """Names with the colours of a plot's series, in their order."""
    entries = (f'<li><i style="background:var(--c{k})"></i>{_name(name)}</li>' for k, name in enumerate(names))
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _name(name: str) -> str:
    """A name, of which a very long one is shown in three lines, and whole to who points at it."""
    return f'<span title="{html(name)}">{html(name)}</span>' if len(name) > LONG_NAME else f"<span>{html(name)}</span>"
