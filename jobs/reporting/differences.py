"""The differences of a verify: each kind with its places, the first ones open, and how many are left out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as html
from typing import Any, Final

from rocketmq_reindex.storage_format.plurals import counted

PLACES_OPEN: Final = 3
PLACES_SHOWN: Final = 50
"""of a kind; a verify keeps fewer"""


def differences(findings: Sequence[dict[str, Any]]) -> str:
    """A table of the kinds, below each its places."""
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
    more = shown[PLACES_OPEN:]
    text = _list(shown[:PLACES_OPEN])
    if more:
        text += f"<details><summary>{counted(len(more), 'more place')}</summary>{_list(more)}</details>"
    if count > len(shown):
        # A place may stand for a stretch of them: how many differences the shown ones are is not known.
        text += f'<div class="note">{counted(len(shown), "place")} shown; {counted(count, "difference")} in all</div>'
    return text


def _list(places: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html(place)}</li>' for place in places)}</ul>" if places else ""


def _place(example: dict[str, Any]) -> str:
    return ": ".join(str(example[key]) for key in ("where", "text") if example.get(key))
