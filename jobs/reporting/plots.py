"""A report's plots, drawn by matplotlib as SVG within the page, in the page's own colours: they follow its light and dark."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_here = os.getcwd()
# matplotlib takes its settings from the working folder's matplotlibrc first, which may be anybody's.
os.chdir("/")
try:
    import matplotlib

    matplotlib.use("svg")

    from matplotlib import dates, pyplot
finally:
    os.chdir(_here)

INK, MUTED, LINE, BAD = "#010203", "#010204", "#010205", "#010206"
SERIES: Final = tuple(f"#0a0b{k:02x}" for k in range(8))
_VARIABLES: Final = {INK: "ink", MUTED: "muted", LINE: "line", BAD: "bad"} | {c: f"c{k}" for k, c in enumerate(SERIES)}
_SETTINGS: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rocketmq-reindex",
    "text.parse_math": False,  # names from the log are no formulas
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid.axis": "x",
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


Paint = Callable[[Any], None]


def draw(number: int, label: str, height: float, paint: Paint) -> str:
    """One plot as an ``<svg>`` element; ``number`` keeps the ids of several in one page apart."""
    with matplotlib.rc_context(_SETTINGS):
        figure, axes = pyplot.subplots(figsize=(4.6, height), layout="constrained")
        paint(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>p{number}-", text)
    for colour, name in _VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{label}">{rest}'


def timeline(axes: Any, times: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> None:
    """Messages over time, stacked by topic; those with the fewest are one."""
    low, high = min(int(t.min()) for t, _ in times.values()), max(int(t.max()) for t, _ in times.values())
    edges = np.linspace(low, max(high, low + 1), 61)
    largest = sorted(times, key=lambda name: -int(times[name][1].sum()))
    shown = largest if len(largest) <= len(SERIES) else largest[: len(SERIES) - 1]
    rows = [np.histogram(times[name][0], edges, weights=times[name][1])[0] for name in shown]
    if len(shown) < len(largest):
        rest = [np.histogram(times[name][0], edges, weights=times[name][1])[0] for name in largest[len(shown) :]]
        rows.append(np.sum(rest, axis=0))
        shown = [*shown, f"{len(largest) - len(shown)} more"]
    middles = (edges[:-1] + edges[1:]) / 2 / 86_400_000
    axes.stackplot(middles, *rows, colors=SERIES[: len(rows)], labels=[_short(name) for name in shown], step="mid")
    locator = dates.AutoDateLocator(maxticks=6)
    if abs(low) < 10**14 and abs(high) < 10**14:
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set(ylabel="messages", ylim=(0, None), xlim=(middles[0], middles[-1]))
    axes.figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=8)


def bars(axes: Any, names: Sequence[str], values: Sequence[float], told: Sequence[str], colour: str = SERIES[0]) -> None:
    """A horizontal bar for each name, with its value in words."""
    axes.barh(range(len(names)), values, color=colour, height=0.66)
    for at, (value, text) in enumerate(zip(values, told, strict=True)):
        axes.text(value, at, f" {text}", va="center", fontsize=8, color=MUTED)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, max([*values, 1e-9]) * 1.35)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def coverage(axes: Any, rows: Sequence[tuple[str, int, int]]) -> None:
    """For each topic its units, and how many of them stand where a message is missing."""
    told = [f"{units:,}" + (f", {gap:,} missing" if gap else "") for _, units, gap in rows]
    bars(axes, [name for name, _, _ in rows], [units for _, units, _ in rows], told)
    gaps = [gap for _, _, gap in rows]
    axes.barh(range(len(rows)), gaps, left=[units - gap for _, units, gap in rows], color=BAD, height=0.66)


def damage_map(axes: Any, segments: Sequence[tuple[int, int]], damage: Sequence[tuple[int, int, str]]) -> None:
    """The log as one line a stretch, damaged places marked; none is too narrow to be seen."""
    low, high = segments[0][0], segments[-1][0] + segments[-1][1]
    lines = min(24, max(1, len(segments)))
    span = max(1, -(-(high - low) // lines))
    for line in range(lines):
        start = low + line * span
        for first, size in segments:
            begin, end = max(first, start), min(first + size, start + span)
            if end > begin:
                axes.broken_barh([((begin - start) / span, (end - begin) / span)], (line - 0.3, 0.6), color=LINE)
        for offset, length, _ in damage:
            begin, end = max(offset, start), min(offset + length, start + span)
            if end > begin:
                axes.broken_barh([((begin - start) / span, max((end - begin) / span, 0.004))], (line - 0.36, 0.72), color=BAD)
    axes.set_yticks(range(lines), [f"{low + line * span:,}" for line in range(lines)])
    axes.set(ylim=(lines - 0.4, -0.6), xlim=(0, 1.004))
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _short(name: str, most: int = 34) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}\u2026"
