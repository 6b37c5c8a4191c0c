"""The page: one HTML file with everything in it. It loads nothing, runs nothing, and follows the reader's light or dark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from html import escape as html
from typing import Final

import numpy as np
import numpy.typing as npt

from jobs.reporting import plots
from jobs.reporting.model import Model
from jobs.reporting.times import Times
from storage_format.names import escape
from storage_format.plurals import counted

TOPICS_SHOWN: Final = 20
QUEUES_SHOWN: Final = 200
ROWS_SHOWN: Final = 100

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #ffffff; --ink: #1d2329; --muted: #5d6770; --line: #d9d6ce;
  --bad: #b3261e; --good: #22713f; --c0: #2f6f9f; --c1: #d08a2e; --c2: #4d8f5b; --c3: #8a5ea8; --c4: #c25b56; --c5: #4aa3a2;
  --c6: #9a8a3f; --c7: #8894a0 }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --card: #1c2227; --ink: #e6e9eb; --muted: #9aa5ae;
  --line: #39424a; --bad: #f28b82; --good: #7bc796; --c0: #6bb0dd; --c1: #e5ae62; --c2: #82c48f;
  --c3: #bd98d8; --c4: #e8908b; --c5: #7cced0;
  --c6: #cbbb6c; --c7: #a5b0bb } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 4rem }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin: 0 0 .6rem }
.sub, figcaption, .note { color: var(--muted); font-size: .9rem } .note { overflow-wrap: anywhere }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1.25rem 0 }
.facts div, section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1rem }
.facts dt { color: var(--muted); font-size: .8rem }
.facts dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums }
.grid { columns: 28rem 2; column-gap: .75rem }
section { margin: 0 0 .75rem; break-inside: avoid } section.wide { column-span: all }
figure { margin: 0 } svg { display: block; width: 100%; height: auto }
svg text { font-family: system-ui, sans-serif !important }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--muted); font-weight: 500 } .num { text-align: right } .bad { color: var(--bad) } .good { color: var(--good) }
code { font: .85rem ui-monospace, monospace; overflow-wrap: anywhere } summary { cursor: pointer; color: var(--muted) }
"""


class Page:
    """Sections, one after another; ``number`` counts the plots."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.parts: list[str] = []
        self.number = 0

    def section(self, title: str, *inner: str, wide: bool = False) -> None:
        self.parts.append(f"<section{' class=wide' if wide else ''}><h2>{html(title)}</h2>{''.join(inner)}</section>")

    def plot(self, label: str, height: float, paint: plots.Paint, caption: str = "") -> str:
        self.number += 1
        told = f"<figcaption>{html(caption)}</figcaption>" if caption else ""
        return f"<figure>{plots.draw(self.number, html(label, quote=True), height, paint)}{told}</figure>"

    def to_html(self) -> str:
        title = f"{self.model.command}: {escape(self.model.title)}"
        facts = "".join(
            f"<div><dt>{html(name)}</dt><dd{_verdict(name, value)}>{html(value)}</dd></div>" for name, value in self.model.facts
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html(title)}</title><style>{_STYLE}</style></head><body><main><h1>{html(title)}</h1>"
            f'<p class="sub">rmq-reindex {html(self.model.version)}</p><dl class="facts">{facts}</dl>'
            f'<div class="grid">{"".join(self.parts)}</div></main></body></html>\n'
        )


def _verdict(name: str, value: str) -> str:
    if name == "verdict":
        return f' class="{"good" if value == "no differences" else "bad"}"'
    return ' class="bad"' if name == "damaged places" and value != "0" else ""


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


def bytes_told(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def render(model: Model, times: Times, sampled: str, chains: Sequence[npt.NDArray[np.int64]], cut: str = "") -> str:
    """The whole page. ``chains``: of each IndexFile looked into, slots by chain length; ``cut`` says if that is not all."""
    page = Page(model)
    if model.findings:
        rows = [[str(f["kind"]), int(f["count"]), str(f["text"]), _first_place(f)] for f in model.findings]
        page.section("Differences", table(("kind", "count", "what", "first"), rows), wide=True)
    if times:
        page.section(
            "Messages over time",
            page.plot("messages over time by topic", 3.0, lambda axes: plots.timeline(axes, _named(times)), sampled),
        )
    _queues(page)
    _sizes(page)
    _index(page, chains, cut)
    _damage(page)
    if any(model.seconds.values()):
        names, values = list(model.seconds), list(model.seconds.values())
        told = [f"{value:.1f} s" for value in values]
        page.section(
            "Time by stage", page.plot("seconds by stage", 0.5 + 0.3 * len(names), lambda a: plots.bars(a, names, values, told))
        )
    if model.notes:
        items = "".join(f"<li>{html(note)}</li>" for note in model.notes[:ROWS_SHOWN])
        more = f"<li>and {len(model.notes) - ROWS_SHOWN:,} more</li>" if len(model.notes) > ROWS_SHOWN else ""
        page.section("Said on the way", f'<ul class="note">{items}{more}</ul>', wide=True)
    settings = [[name, _setting(value)] for name, value in sorted(model.settings.items())]
    inner = table(("setting", ""), settings)
    page.section("Settings", f"<details><summary>{counted(len(settings), 'setting')}</summary>{inner}</details>", wide=True)
    return page.to_html()


def _named(times: Times) -> Times:
    return {escape(topic): of for topic, of in times.items()}


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _first_place(finding: dict[str, object]) -> str:
    examples = finding.get("examples") or []
    first = examples[0] if isinstance(examples, list) and examples else {}
    return ": ".join(str(first[key]) for key in ("where", "text") if first.get(key))


def _queues(page: Page) -> None:
    topics = page.model.topics
    if not topics:
        return
    shown = list(topics.items())[:TOPICS_SHOWN]
    rows = [(escape(name), sum(q.units for q in of), sum(q.gaps for q in of)) for name, of in shown]
    largest = f"the largest {len(rows)} of {counted(len(topics), 'topic')}"
    caption = f"units by topic, {counted(len(page.model.queues), 'queue')}; {largest}"
    figure = page.plot("units by topic", 0.5 + 0.24 * len(rows), lambda axes: plots.coverage(axes, rows), caption)
    # Those with gaps first: they are what one looks for.
    queues = sorted(page.model.queues, key=lambda q: -q.gaps)
    # What a build wrote is a unit wherever it stands; of a store that was verified, those that are there count.
    units = [q.units - q.gaps if page.model.command == "verify" else q.units for q in queues]
    lines = [[escape(q.topic), q.number, q.first, q.end, n, q.gaps] for q, n in zip(queues, units, strict=True)]
    listing = table(("topic", "queue", "first offset", "end", "units", "missing offsets"), lines, QUEUES_SHOWN)
    page.section("Queues", figure, f"<details><summary>every queue</summary>{listing}</details>")


def _sizes(page: Page) -> None:
    sizes = page.model.sizes
    if sizes:
        names, values, told = list(sizes), [float(v) for v in sizes.values()], [bytes_told(v) for v in sizes.values()]
        page.section("Bytes", page.plot("bytes by kind", 0.5 + 0.3 * len(names), lambda a: plots.bars(a, names, values, told)))


def _index(page: Page, chains: Sequence[npt.NDArray[np.int64]], cut: str) -> None:
    files = page.model.index
    if not files:
        return
    inner: list[str] = []
    shown = files[-TOPICS_SHOWN:]
    names = [escape(file.name) for file in shown]
    used = [100 * file.slots_used / file.slots if file.slots else 0.0 for file in shown]
    told = [f"{share:.1f} % of slots" for share in used]
    caption = f"slots in use; {len(shown)} of {counted(len(files), 'file')}" if len(shown) < len(files) else "slots in use"
    inner.append(page.plot("slot use", 0.5 + 0.24 * len(names), lambda a: plots.bars(a, names, used, told), caption))
    if chains:
        summed = np.zeros(max(len(counts) for counts in chains), np.int64)
        for counts in chains:
            summed[: len(counts)] += counts
        labels = list(_powers(len(summed)))
        values, told_slots = summed.astype(float).tolist(), [f"{int(v):,} slots" for v in summed]
        figure = page.plot(
            "chain lengths", 0.5 + 0.24 * len(labels), lambda a: plots.bars(a, labels, values, told_slots, plots.SERIES[3]),
            f"items in a slot's chain: what a lookup walks{cut}",
        )  # fmt: skip
        inner.append(figure)
    rows = [[escape(f.name), f.items, f.places, f.slots_used, moment(f.begin), moment(f.end)] for f in files]
    listing = table(("file", "items", "room", "slots used", "first", "last"), rows)
    page.section("Index", *inner, f"<details><summary>every file</summary>{listing}</details>")


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
    segments = model.segments or [(min(o for o, _, _ in model.damage), max(o + n for o, n, _ in model.damage))]
    caption = "the log from its first byte to its last, each line beginning at the offset told; damage is marked"
    if model.segments:
        height = 0.5 + 0.2 * min(24, len(segments))
        inner.append(page.plot("map of the log", height, lambda a: plots.damage_map(a, segments, model.damage), caption))
    if model.damage:
        rows = [[offset, length, reason] for offset, length, reason in model.damage]
        inner.append(table(("offset", "bytes", "what"), rows))
    title = (
        f"The log: {counted(len(model.damage), 'damaged place')}, {bytes_told(lost)}" if model.damage else "The log: no damage"
    )
    page.section(title, *inner)
