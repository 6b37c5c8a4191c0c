"""Parts of a report's page: its looks, bars, and the differences of a verify."""

from collections.abc import Sequence
from html import escape as html
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format.showing import counted, printable

# ------------------------------------------------------------------------------------------------------------------------- bars
# Horizontal bars of plain HTML: names of any length and script wrap, and what they say can be searched and copied.

LONG_NAME: Final = 26
LONG_LINE: Final = 36
LONG_ON_A_PHONE: Final = 22
"""Characters of a name, and of name and value, from where on names stand above their bars: beside them they would take the
room of the bars."""


class ChartBar(NamedTuple):
    """``value`` sets the length, ``bad`` is the part of it that something is wrong with; ``text`` is the value in words."""

    name: str
    value: float
    text: str
    bad: float = 0.0


def bars(rows: Sequence[ChartBar], colour: str = "c0", full: float = 0, *, inline: bool = True) -> str:
    """Return a line for each bar; one of ``full``, or else the longest, is as wide as can be. Names are shown as they are:
    escape controls before. Without ``inline`` their widths are classes of BAR_CLASSES: a page may forbid styles in elements."""
    largest = full or max((row.value for row in rows), default=0) or 1
    name, width = max(len(row.name) for row in rows), max(len(row.text) for row in rows)
    long = " long" if name > LONG_NAME or name + width > LONG_LINE else " tight" if name + width > LONG_ON_A_PHONE else ""
    lines = []
    for row in rows:
        parts = ((row.value - row.bad, colour), (row.bad, "bad"))
        drawn = "".join(_bar(size / largest, tone, inline) for size, tone in parts if size > 0)
        lines.append(f"{_name(row.name)}<div>{drawn}<b>{html(row.text)}</b></div>")
    # The longest value, in the width of digits, has its room beside the longest bar.
    room = f'" style="--text:{width + 2}ch' if inline else f" text-{min(width + 2, TEXT_WIDTHS)}"
    return f'<div class="bars{long}{room}">{"".join(lines)}</div>'


SHARES: Final = 200
TEXT_WIDTHS: Final = 60
BAR_CLASSES: Final = (
    "".join(f".share-{k} {{ --share: {k / SHARES:g} }}\n" for k in range(SHARES + 1))
    + "".join(f".text-{k} {{ --text: {k}ch }}\n" for k in range(2, TEXT_WIDTHS + 1))
    + "".join(f".bars i.{tone} {{ background: var(--{tone}) }}\n" for tone in (*(f"c{k}" for k in range(8)), "bad"))
)
"""the part of a stylesheet that bars need which are not ``inline``"""


def _bar(share: float, tone: str, inline: bool) -> str:
    if inline:
        return f'<i style="--share:{share:.4g};background:var(--{tone})"></i>'
    return f'<i class="{tone} share-{min(SHARES, max(1, round(share * SHARES)))}"></i>'


def legend(names: Sequence[str]) -> str:
    """Return names with the colours of a plot's series, in their order."""
    entries = (f'<li><i style="background:var(--c{k})"></i>{_name(name)}</li>' for k, name in enumerate(names))
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _name(name: str) -> str:
    """Return a name, of which a very long one is shown in three lines, and whole to who points at it."""
    return f'<span title="{html(name)}">{html(name)}</span>' if len(name) > LONG_NAME else f"<span>{html(name)}</span>"


# ------------------------------------------------------------------------------------------------------------------------ style
# How a report's page looks. Colours follow the reader's light or dark; long names wrap instead of pushing others away.

STYLE: Final = """
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
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin: 0 0 .6rem }
.sub, figcaption, .note { color: var(--muted); font-size: .9rem } .note { overflow-wrap: anywhere }
.sub { margin: .3rem 0 0 } .sub + section { margin-top: 1.25rem }
figcaption { margin-top: .4rem } ul.note { margin: 0; padding-left: 1.2rem }
.facts { display: grid; grid-template-columns: repeat(var(--many), 1fr); gap: .75rem; margin: 0 0 .75rem }
.facts div, section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1rem }
.facts dt { color: var(--muted); font-size: .8rem }
.facts dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
.verdict.good, .verdict.bad { margin-top: 1.25rem; border-left: .35rem solid var(--tone); color: var(--ink) }
.verdict h2 { color: var(--tone); font-size: 1.25rem;
  margin: 0; overflow-wrap: anywhere } .verdict.good { --tone: var(--good) } .verdict.bad { --tone: var(--bad) }
.steps { margin: .5rem 0 0; padding: 0; list-style: none } .steps li + li { margin-top: .6rem }
pre { margin: .3rem 0 0; padding: .45rem .7rem; background: var(--paper); border: 1px solid var(--line); border-radius: .35rem;
  white-space: pre-wrap }
.grid { columns: 28rem 2; column-gap: .75rem; margin-bottom: .75rem } section { margin: 0 0 .75rem; break-inside: avoid }
figure { margin: 0 } figure + figure { margin-top: 1rem } svg { display: block; width: 100%; height: auto }
svg text { font-family: system-ui, sans-serif !important }
details { margin-top: .5rem } summary { cursor: pointer; color: var(--muted) } .scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--muted); font-weight: 500 } .num { text-align: right } .bad { color: var(--bad) } .good { color: var(--good) }
td { overflow-wrap: anywhere; min-width: 4rem } td.num { overflow-wrap: normal; white-space: nowrap; min-width: 0 }
code { font: .85rem ui-monospace, monospace; overflow-wrap: anywhere }
.bars { display: grid; grid-template-columns: fit-content(40%) 1fr; gap: .3rem .6rem; align-items: center; font-size: .85rem }
.bars span { text-align: right; overflow-wrap: anywhere }
.bars div { display: flex; align-items: center; border-left: 1px solid var(--line); min-height: 1.1rem }
.bars i { height: 1.1rem; flex: none; width: calc((100% - var(--text)) * var(--share)) }
.bars b { font-weight: 400; color: var(--muted); padding-left: .4rem; white-space: nowrap }
.bars.long { display: block } .bars.long span { text-align: left; line-height: 1.3; margin-top: .45rem }
.bars.long span, .legend span { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden }
@media (max-width: 70rem) { .facts { grid-template-columns: repeat(var(--some), 1fr) } }
@media (max-width: 44rem) { .facts { display: block; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; padding: .4rem 1rem }
  .facts div { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .2rem 0 }
  .facts dt { font-size: .9rem } .facts dd { font-size: 1rem } }
@media (max-width: 58.7rem) { .grid { columns: auto; margin-bottom: 0 } }
@media (max-width: 30rem) {
  .bars.tight { display: block } .bars.tight span { display: block; text-align: left; margin-top: .3rem } }
.legend { list-style: none; margin: .4rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .15rem 1rem; font-size: .85rem }
.legend li { display: flex; min-width: 0; line-height: 1.4 } .legend span { overflow-wrap: anywhere }
.legend i { flex: none; width: .9rem; height: .7rem; margin: .25rem .5rem 0 0 }
.kinds tr:not(.places) td { border-bottom: 0; padding-bottom: 0; font-weight: 500 }
.kinds .places td { padding-bottom: .6rem }
.places ul { margin: .15rem 0 0; padding-left: 1.2rem } .places li { overflow-wrap: anywhere }
"""


# ------------------------------------------------------------------------------------------------------------------ differences
# The differences of a verify: each kind with its places, the first ones open, and how many are left out.

PLACES_OPEN: Final = 3
PLACES_SHOWN: Final = 50
"""of a kind; a verify keeps fewer"""


def differences(findings: Sequence[dict[str, Any]]) -> str:
    """Return a table of the kinds, below each its places."""
    rows = "".join(_kind(finding) for finding in findings)
    head = '<thead><tr><th>kind</th><th class="num">count</th><th>what</th></tr></thead>'
    return f'<div class="scroll"><table class="kinds">{head}<tbody>{rows}</tbody></table></div>'


def _kind(finding: dict[str, Any]) -> str:
    count = int(finding["count"])
    cells = (
        f"<td>{html(str(finding['kind']))}</td>",
        f'<td class="num">{count:,}</td>',
        f"<td>{html(str(finding['text']))}</td>",
    )
    return f'<tr>{"".join(cells)}</tr><tr class="places"><td colspan="3">{_places(finding, count)}</td></tr>'


def _places(finding: dict[str, Any], count: int) -> str:
    examples = finding.get("examples")
    places = [_place(example) for example in examples if isinstance(example, dict)] if isinstance(examples, list) else []
    shown = places[:PLACES_SHOWN]
    hidden_places = shown[PLACES_OPEN:]
    text = _list(shown[:PLACES_OPEN])
    if hidden_places:
        text += f"<details><summary>{counted(len(hidden_places), 'more place')}</summary>{_list(hidden_places)}</details>"
    if count > len(shown):
        # A place may stand for a stretch of them: how many differences the shown ones are is not known.
        text += f'<div class="note">{counted(len(shown), "place")} shown; {counted(count, "difference")} in all</div>'
    return text


def _list(places: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html(place)}</li>' for place in places)}</ul>" if places else ""


def _place(example: dict[str, Any]) -> str:
    return ": ".join(str(example[key]) for key in ("where", "text") if example.get(key))


# ------------------------------------------------------------------------------------------------------------------------- page
# The frame of a page, and what stands in it: sections, lines and tables.

ROWS_SHOWN: Final = 100
LINES_OPEN: Final = 5


def whole(title: str, sub: str, *parts: str) -> str:
    """Return a page with these ``parts``; ``sub``, HTML as they are, stands below the title."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html(title)}</title><style>{STYLE}</style></head><body><main><h1>{html(title)}</h1>"
        f'<p class="sub">{sub}</p>{"".join(parts)}</main></body></html>\n'
    )


def section(title: str, *inner: str) -> str:
    return f"<section><h2>{html(title)}</h2>{''.join(inner)}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]], rows_max: int = ROWS_SHOWN) -> str:
    """Return a table; whole numbers stand right. Of very many rows the first."""
    cells = "".join(f"<th>{html(name)}</th>" for name in head)

    def cell(value: object) -> str:
        return f'<td class="num">{value:,}</td>' if isinstance(value, int) else f"<td>{html(str(value))}</td>"

    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows[:rows_max])
    note = f'<p class="note">and {len(rows) - rows_max:,} more</p>' if len(rows) > rows_max else ""
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def said(title: str, texts: Sequence[str]) -> str:
    """Return a section of lines: the first ones open, very many cut."""
    if not texts:
        return ""
    lines = [f"<li>{html(text)}</li>" for text in texts[:ROWS_SHOWN]]
    if len(texts) > ROWS_SHOWN:
        lines.append(f"<li>and {len(texts) - ROWS_SHOWN:,} more</li>")
    hidden_lines = lines[LINES_OPEN:]
    details = (
        f"<details><summary>{len(hidden_lines):,} more</summary><ul>{''.join(hidden_lines)}</ul></details>"
        if hidden_lines
        else ""
    )
    return section(title, f'<ul class="note">{"".join(lines[:LINES_OPEN])}</ul>{details}')


# ----------------------------------------------------------------------------------------------------------------------- traces
# What happened to messages: what ``trace`` found, each timeline as a table.

TEXT_MAX: Final = 1000
"""characters that are shown of a text: names come from the log"""
TIMELINE: Final = ("time", "store", "what", "text", "evidence", "certainty")


def traces(found: dict[str, Any], version: str) -> str:
    """Return a whole page of what ``trace --json`` prints. ``version`` is that of this package."""
    messages = found["messages"]
    shown = [section("Nothing found", "<p>No store has the message.</p>")] if not messages else []
    for message in messages:
        # A blank in the time lets it wrap there.
        times = [(event["time"] or "-").replace("T", " ") for event in message["events"]]
        rows = [
            [time, *(_shown(event[name]) for name in TIMELINE[1:])]
            for time, event in zip(times, message["events"], strict=True)
        ]
        keys = f", keys {' '.join(message['keys'])}" if message["keys"] else ""
        about = f'<p class="note">{html(_shown(message["topic"] + keys))}</p>'
        shown.append(section(_shown(message["message"]), about, table(TIMELINE, rows, len(rows))))
    title = f"trace: {counted(len(messages), 'message')}"
    return whole(title, f"rmq-reindex {html(version)}", said("Warnings", found["warnings"]), *shown)


def _shown(text: str) -> str:
    return printable(text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}... ({len(text)} characters)")
