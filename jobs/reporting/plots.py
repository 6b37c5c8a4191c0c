"""A report's plots, drawn by matplotlib as SVG within the page, in the page's own colours: they follow its light and dark."""

import io
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.showing import counted

_here = os.getcwd()
# matplotlib takes its settings from the working folder's matplotlibrc first, which may be anybody's.
os.chdir("/")
try:
    import matplotlib

    matplotlib.use("svg")

    from matplotlib import dates, pyplot, ticker
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
    """Return one plot as an ``<svg>`` element; ``number`` keeps the ids of several in one page apart."""
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
    head, body = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{label}">{body}'


Series = tuple[str, npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""a topic, or what stands for several: milliseconds, and how many messages each stands for"""
_FIRST_DAY, _LAST_DAY = -62_135_596_800_000, 253_402_300_799_999
"""years 1 to 9999, which is what calendars have"""
TICKS_MIN: Final = 3
TICKS_MAX: Final = 8
"""With these every span has a step. Of less than three hours, say, half an hour is the longest: that is up to seven."""
_SPAN_MIN: Final = 1000
_BINS: Final = 60


def largest(times: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> tuple[list[Series], str]:
    """Return topics by their messages, and a caption where all are shown as one.

    Those with the fewest are one where there are more than colours. Where these have more messages than any other, one colour
    shows all topics: colours would tell of the smaller part alone.
    """
    ordered = sorted(
        ((name, *moments_and_weights) for name, moments_and_weights in times.items()), key=lambda one: -int(one[2].sum())
    )
    if len(ordered) <= len(SERIES):
        return ordered, ""
    shown, smaller = ordered[: len(SERIES) - 1], ordered[len(SERIES) - 1 :]
    summed = _summed(f"{len(smaller)} more", smaller)
    if int(summed[2].sum()) <= int(shown[0][2].sum()):
        return [*shown, summed], ""
    return [_summed("all topics", ordered)], f"all {counted(len(ordered), 'topic')} as one: none stands out"


def _summed(name: str, series: Sequence[Series]) -> Series:
    return (
        name,
        np.concatenate([one_series[1] for one_series in series]),
        np.concatenate([one_series[2] for one_series in series]),
    )


def timeline(axes: Any, series: Sequence[Series]) -> None:
    """Messages over time, stacked."""
    low, high = min(int(t.min()) for _, t, _ in series), max(int(t.max()) for _, t, _ in series)
    if high - low < _SPAN_MIN:
        # A log of a moment: a second around it.
        low -= (_SPAN_MIN - (high - low)) // 2
        high = low + _SPAN_MIN
    edges = np.linspace(low, high, _BINS + 1)
    rows = [np.histogram(t, edges, weights=weights)[0] for _, t, weights in series]
    middles = (edges[:-1] + edges[1:]) / 2 / 86_400_000
    axes.stackplot(middles, *rows, colors=SERIES[: len(rows)], step="mid")
    if low >= _FIRST_DAY and high <= _LAST_DAY:
        locator = dates.AutoDateLocator(minticks=TICKS_MIN, maxticks=TICKS_MAX)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set(ylabel="messages", ylim=(0, None), xlim=(middles[0], middles[-1]))


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
