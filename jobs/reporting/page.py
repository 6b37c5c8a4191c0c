"""The page: one HTML file with everything in it. It loads nothing, runs nothing, and follows the reader's light or dark."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterator, Sequence
from html import escape as html
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.jobs.reporting import plots
from rocketmq_reindex.jobs.reporting.bars import Bar, bars, legend
from rocketmq_reindex.jobs.reporting.differences import differences
from rocketmq_reindex.jobs.reporting.model import Model
from rocketmq_reindex.jobs.reporting.style import STYLE
from rocketmq_reindex.jobs.reporting.times import Times
from rocketmq_reindex.storage_format.names import escape, printable
from rocketmq_reindex.storage_format.plurals import counted

TOPICS_SHOWN: Final = 20
QUEUES_SHOWN: Final = 200
ROWS_SHOWN: Final = 100
LINES_OPEN: Final = 5
TILES_SOME: Final = 5
TILES_MANY: Final = 7
"""tiles in a row, at most: in a window of some 1,000 pixels, and in a wider one"""


class Page:
    """Cards, side by side where there is room, between sections as wide as the page; ``number`` counts the plots."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.above: list[str] = []
        self.cards: list[str] = []
        self.below: list[str] = []
        self.number = 0

    def card(self, title: str, *inner: str) -> None:
        self.cards.append(section(title, *inner))

    def plot(self, label: str, height: float, paint: plots.Paint, *below: str, caption: str = "") -> str:
        self.number += 1
        return figure(plots.draw(self.number, html(label, quote=True), height, paint), *below, caption=caption)

    def to_html(self) -> str:
        title = f"{self.model.command}: {escape(self.model.title)}"
        facts = "".join(_fact(name, value) for name, value in self.model.facts)
        of = len(self.model.facts)
        columns = f"--some:{columns_of(of, TILES_SOME)};--many:{columns_of(of, TILES_MANY)}"
        when = f" \u00b7 {html(self.model.when)}" if self.model.when else ""
        cards = f'<div class="grid">{"".join(self.cards)}</div>'
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html(title)}</title><style>{STYLE}</style></head><body><main><h1>{html(title)}</h1>"
            f'<p class="sub">rmq-reindex {html(self.model.version)}{when}</p>'
            f"{_verdict(self.model)}{_said('Warnings', self.model.warnings)}"
            f'<dl class="facts" style="{columns}">{facts}</dl>'
            f"{''.join(self.above)}{cards}{''.join(self.below)}</main></body></html>\n"
        )


def section(title: str, *inner: str) -> str:
    return f"<section><h2>{html(title)}</h2>{''.join(inner)}</section>"


def figure(*inner: str, caption: str = "") -> str:
    text = f"<figcaption>{html(caption)}</figcaption>" if caption else ""
    return f"<figure>{''.join(inner)}{text}</figure>"


def columns_of(tiles: int, most: int) -> int:
    """Return how many tiles stand in a row, at most ``most``, so that none stands alone in the last one."""
    for rows in range(-(-tiles // most), tiles):
        columns = -(-tiles // rows)
        if tiles - columns * (rows - 1) > 1:
            return columns
    return 1


def _fact(name: str, value: str) -> str:
    bad = ' class="bad"' if name == "damaged places" and value != "0" else ""
    return f"<div><dt>{html(name)}</dt><dd{bad}>{html(value)}</dd></div>"


def _verdict(model: Model) -> str:
    steps = "".join(f"<li>{html(text)}{_command(command)}</li>" for text, command in model.steps)
    listed = f'<ul class="steps">{steps}</ul>' if steps else ""
    tone = "good" if model.good else "bad"
    return f'<section class="verdict {tone}"><h2>{html(model.verdict)}</h2>{listed}</section>'


def _command(command: str) -> str:
    return f"<pre><code>{html(command)}</code></pre>" if command else ""


def _said(title: str, texts: Sequence[str]) -> str:
    """A section of lines: the first ones open, very many cut."""
    if not texts:
        return ""
    lines = [f"<li>{html(text)}</li>" for text in texts[:ROWS_SHOWN]]
    if len(texts) > ROWS_SHOWN:
        lines.append(f"<li>and {len(texts) - ROWS_SHOWN:,} more</li>")
    more = lines[LINES_OPEN:]
    rest = f"<details><summary>{len(more):,} more</summary><ul>{''.join(more)}</ul></details>" if more else ""
    return section(title, f'<ul class="note">{"".join(lines[:LINES_OPEN])}</ul>{rest}')


def table(head: Sequence[str], rows: Sequence[Sequence[object]], most: int = ROWS_SHOWN) -> str:
    """A table; whole numbers stand right. Of very many rows the first."""
    cells = "".join(f"<th>{html(name)}</th>" for name in head)

    def cell(value: object) -> str:
        return f'<td class="num">{value:,}</td>' if isinstance(value, int) else f"<td>{html(str(value))}</td>"

    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows[:most])
    more = f'<p class="note">and {len(rows) - most:,} more</p>' if len(rows) > most else ""
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def moment(milliseconds: int) -> str:
    """A store time as people write it; a number that no calendar has as it is."""
    try:
        found = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)  # noqa: DTZ001  UTC, and said so
        return found.isoformat(" ", "seconds") + " UTC"
    except OverflowError:
        return f"{milliseconds} ms"


def bytes_text(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return counted(round(size), "byte") if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def render(model: Model, times: Times, sampled: str, chains: Sequence[npt.NDArray[np.int64]], cut: str = "") -> str:
    """The whole page. ``chains``: of each IndexFile looked into, slots by chain length; ``cut`` says if that is not all."""
    page = Page(model)
    page.above.append(_said("Notes", model.notes))
    if model.findings:
        page.above.append(section("Differences", differences(model.findings)))
    _times(page, times, sampled)
    _queues(page)
    _sizes(page)
    _index(page, chains, cut)
    _damage(page)
    if any(model.seconds.values()):
        page.card("Time by stage", bars([Bar(name, value, f"{value:.1f} s") for name, value in model.seconds.items()]))
    settings = [[name, _setting(value)] for name, value in sorted(model.settings.items())]
    inner = table(("setting", ""), settings)
    page.below.append(section("Settings", f"<details><summary>{counted(len(settings), 'setting')}</summary>{inner}</details>"))
    return page.to_html()


def _setting(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _times(page: Page, times: Times, sampled: str) -> None:
    series, whole = plots.largest(times)
    if series:
        sampled += f"; {whole}" if whole else ""
        plot = page.plot(
            "messages over time by topic", 2.6, lambda axes: plots.timeline(axes, series),
            legend([printable(name) for name, _, _ in series]), caption=f"{sampled}; UTC",
        )  # fmt: skip
        page.card("Messages over time", plot)


def _queues(page: Page) -> None:
    topics = page.model.topics
    if not topics:
        return
    shown = list(topics.items())[:TOPICS_SHOWN]
    rows = []
    for name, of in shown:
        units, gaps = sum(q.units for q in of), sum(q.gaps for q in of)
        text = f"{units:,}" + (f", {gaps:,} missing" if gaps else "")
        rows.append(Bar(printable(name), sum(q.messages for q in of) + gaps, text, gaps))
    caption = f"units by topic: {counted(len(topics), 'topic')} with {counted(len(page.model.queues), 'queue')}"
    if len(rows) < len(topics):
        caption += f"; the {len(rows)} largest topics are shown"
    # Those with gaps first: they are what one looks for.
    queues = sorted(page.model.queues, key=lambda q: -q.gaps)
    lines = [[printable(q.topic), q.number, q.first, q.end, q.units, q.gaps] for q in queues]
    listing = table(("topic", "queue", "first offset", "end", "units", "missing offsets"), lines, QUEUES_SHOWN)
    every = f"<details><summary>every queue</summary>{listing}</details>"
    page.card("Queues", figure(bars(rows), caption=caption), every)


def _sizes(page: Page) -> None:
    if page.model.sizes:
        page.card("Bytes", bars([Bar(name, size, bytes_text(size)) for name, size in page.model.sizes.items()]))


def _index(page: Page, chains: Sequence[npt.NDArray[np.int64]], cut: str) -> None:
    files = page.model.index
    if not files:
        return
    inner: list[str] = []
    shown = files[-TOPICS_SHOWN:]
    rows = []
    for file in shown:
        share = 100 * file.slots_used / file.slots if file.slots else 0.0
        rows.append(Bar(escape(file.name), share, f"{share:.1f} %"))
    caption = (
        f"slots in use; the last {len(shown)} of {counted(len(files), 'file')}" if len(shown) < len(files) else "slots in use"
    )
    inner.append(figure(bars(rows, full=100), caption=caption))
    if chains:
        summed = np.zeros(max(len(counts) for counts in chains), np.int64)
        for counts in chains:
            summed[: len(counts)] += counts
        counted_slots = zip(_powers(len(summed)), summed.tolist(), strict=True)
        rows = [Bar(label, slots, counted(slots, "slot")) for label, slots in counted_slots]
        inner.append(figure(bars(rows, "c3"), caption=f"items in a slot's chain: what a lookup walks{cut}"))
    lines = [[escape(f.name), f.items, f.places, f.slots_used, moment(f.begin), moment(f.end)] for f in files]
    listing = table(("file", "items", "room", "slots used", "first", "last"), lines)
    page.card("Index", *inner, f"<details><summary>every file</summary>{listing}</details>")


def _powers(count: int) -> Iterator[str]:
    """0, 1, 2, 3-4, 5-8, ..."""
    for k in range(count):
        low, high = (2 ** (k - 2) + 1, 2 ** (k - 1)) if k > 1 else (k, k)
        yield str(high) if low == high else f"{low:,} to {high:,}"


def _damage(page: Page) -> None:
    model = page.model
    if not model.segments and not model.damage:
        return
    lost = sum(length for _, length, _ in model.damage)
    inner = []
    if model.segments:
        caption = "the log from its first byte to its last, each line beginning at the offset shown; damage is marked"
        height = 0.5 + 0.2 * min(24, len(model.segments))
        paint = functools.partial(plots.damage_map, segments=model.segments, damage=model.damage)
        inner.append(page.plot("map of the log", height, paint, caption=caption))
    if model.damage:
        rows = [[offset, length, reason] for offset, length, reason in model.damage]
        inner.append(table(("offset", "bytes", "what"), rows))
    places = f"{counted(len(model.damage), 'damaged place')}, {bytes_text(lost)}"
    page.card(f"The log: {places if model.damage else 'no damage'}", *inner)
