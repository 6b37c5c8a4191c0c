"""Small plots of the pages, as plain HTML without script and without styles in elements: columns over time, and a log's line.

Their heights are the classes of ``report``'s bars, their colours those of a report's page. What a plot shows stands in its
label, for who cannot see it, and in full in a table or in the page's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape as html
from typing import Any, Final

from rocketmq_reindex.jobs.reporting import parts
from rocketmq_reindex.storage_format.showing import counted, printable

STYLE: Final = """
.columns { display: flex; align-items: flex-end; gap: 1px; height: 4.5rem; border-bottom: 1px solid var(--muted) }
.columns.small { height: 2.4rem }
.columns i { flex: 1 1 0; min-width: 0; height: calc(100% * var(--share)); background: var(--c0) }
.columns i.some { min-height: 2px }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: .9rem 1.4rem }
.plots figure + figure { margin-top: 0 } .plots figcaption { overflow-wrap: anywhere }
.line { display: flex; flex-wrap: wrap; gap: .3rem .15rem; align-items: stretch }
.line i { flex: 0 1 1.1rem; height: 1.5rem; border: 1px solid var(--muted); border-radius: .15rem;
  background: linear-gradient(to right, var(--c0) calc(100% * var(--share, 0)), transparent 0) }
.line.few i { flex: 1 1 2.5rem }
.line i.unknown { background: repeating-linear-gradient(45deg, transparent 0 .2rem, var(--line) .2rem .4rem) }
.line i.damaged { border: .2rem solid var(--bad) }
.line i.gap { border-style: dashed; border-color: var(--bad); flex: 0 1 2.2rem }
.line.few i.gap { flex: 0 1 2.2rem } .sub + nav { margin-top: 1rem }
.keys { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .6rem 0 0; padding: 0; font-size: .85rem }
.keys li { display: flex; align-items: center; gap: .4rem } .keys .line i { flex: none; width: 1.5rem; height: .9rem }
"""
"""what these plots need beside ``parts.STYLE`` and ``parts.BAR_CLASSES``"""
FEW: Final = 24
"""segments that share one line, as wide as the page"""


def share_class(part: float, whole: float) -> str:
    """Return the class of a height or a width; one of something above 0 can be seen."""
    if part <= 0 or whole <= 0:
        return "share-0"
    return f"share-{min(parts.SHARES, max(1, round(parts.SHARES * part / whole)))}"


def columns(values: Sequence[int], label: str, *, small: bool = False) -> str:
    """Return a column for each value; the highest is as high as can be. ``label`` says what they are."""
    highest = max(values, default=0)
    drawn = "".join(
        f'<i class="some {share_class(value, highest)}"></i>' if value > 0 else '<i class="share-0"></i>' for value in values
    )
    return f'<div class="columns{" small" if small else ""}" role="img" aria-label="{html(printable(label))}">{drawn}</div>'


def log_line(segments: Sequence[Mapping[str, Any]]) -> str:
    """Return the segments of a log on a line, each as full as it is; what is missing between two stands there, too.

    Each has ``bytes``, ``gapBefore``, ``fill`` (0 to 1, None where it was not looked into) and ``damaged``.
    """
    drawn, gaps, damaged, known = list[str](), 0, 0, 0
    for segment in segments:
        if segment["gapBefore"] > 0:
            gaps += 1
            drawn.append('<i class="gap"></i>')
        damaged += segment["damaged"]
        known += segment["fill"] is not None
        words = ["damaged"] if segment["damaged"] else []
        words.append("unknown" if segment["fill"] is None else share_class(segment["fill"], 1))
        drawn.append(f'<i class="{" ".join(words)}"></i>')
    label = (
        f"{counted(len(segments), 'segment')}, {counted(gaps, 'gap')} between them, {damaged:,} known to be damaged, "
        f"{known:,} looked into: the table below says the same"
    )
    few = " few" if len(drawn) <= FEW else ""
    return f'<div class="line{few}" role="img" aria-label="{html(label)}">{"".join(drawn)}</div>{_KEYS}'


def _key(words: str, text: str) -> str:
    return f'<li><span class="line"><i class="{words}"></i></span>{text}</li>'


_KEYS: Final = (
    f'<ul class="keys">{_key("share-120", "filled so far")}{_key("unknown", "not looked into on this page")}'
    f"{_key('damaged share-120', 'damage is known')}{_key('gap', 'no segment: bytes of the log are missing')}</ul>"
)


def sized(rows: Sequence[tuple[str, int]], text: Sequence[str], colour: str = "c0") -> str:
    """Return bars of ``report`` for named sizes, each with its text; "" for none."""
    bars = [parts.ChartBar(printable(name), size, told) for (name, size), told in zip(rows, text, strict=True)]
    return parts.bars(bars, colour, inline=False) if bars else ""


def bytes_text(size: int) -> str:
    """Return a number of bytes in words."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return counted(size, "byte") if unit == "bytes" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def seconds_text(seconds: float) -> str:
    """Return a length of time in words."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.3g} seconds"
