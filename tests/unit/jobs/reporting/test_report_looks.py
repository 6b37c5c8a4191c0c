"""What a report says of what is short, long, many or missing."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.reporting.make import make_page
from rocketmq_reindex.jobs.reporting.model import of_build, of_verify
from rocketmq_reindex.jobs.reporting.page import columns_of, render
from rocketmq_reindex.jobs.reporting.plots import largest
from rocketmq_reindex.storage_format.errors import InputError
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter
from tests.unit.jobs.reporting.test_report import SIZES, check_page, verified

LONG = [
    f"payments-eu-central-1.orders.created.v2.from-the-{end}" for end in ("checkout-service", "mobile-app", "x" * 70, "y" * 190)
]
CJK = "主题" * 20


def built(folder: Path, messages: list[Message], **settings: Any) -> tuple[str, str]:
    """(DIR, STORE) of a build."""
    with LogWriter(folder / "store" / "commitlog", 1 << 16) as writer:
        for message in messages:
            writer.append(message)
    summary = local_build(folder / "store", folder / "out", **(SIZES | settings))
    assert summary.exit == 0, summary.error
    return str(folder / "out"), str(folder / "store")


def told(text: str, name: str) -> str:
    found = re.search(rf"<dt>{name}</dt><dd[^>]*>([^<]*)</dd>", text)
    assert found, name
    return found[1]


@pytest.mark.parametrize("times", [[0], [0, 3], [0, 999], [0, 257_181], [0, 10_912_127], [-(10**14) - EPOCH, 0], [0, 2**62]])
def test_a_short_log_and_odd_times_are_drawn_without_a_warning(times: list[int], tmp_path: Path) -> None:
    """Spans for which matplotlib's own choice of ticks has no step, and years that no calendar has."""
    messages = [Message(f"T{k}", store_timestamp=EPOCH + time, properties={"KEYS": "k"}) for k, time in enumerate(times)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = make_page(*built(tmp_path, messages))
    check_page(text)
    assert f"store times of {len(times)} message{'s' if len(times) > 1 else ''};" in text
    assert not re.search(r"\b1 (?:queues|topics|slots|damaged places|settings|bytes)\b", text)


def test_without_matplotlib_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rocketmq_reindex.jobs.reporting.plots", raising=False)
    monkeypatch.delattr("rocketmq_reindex.jobs.reporting.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"matplotlib, and matplotlib is not installed: pip install matplotlib"):
        make_page(str(tmp_path))


@pytest.mark.parametrize("queues", [200, 201])
def test_two_hundred_queues_are_listed(queues: int, tmp_path: Path) -> None:
    messages = [Message("T", queue_id=number, properties={"KEYS": "k"}) for number in range(queues)]
    text = make_page(*built(tmp_path, messages))
    listed = text[text.index("<summary>every queue</summary>") :]
    listed = listed[: listed.index("</details>")]
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", listed)
    assert heads == ["topic", "queue", "first offset", "end", "units", "missing offsets"]
    assert len(re.findall("<tr>", listed)) - 1 == 200 or queues < 200
    assert ("1 more" in listed) == (queues > 200)


def test_no_figure_stays_in_memory(tmp_path: Path) -> None:
    """matplotlib keeps each one until it is closed."""
    from matplotlib import pyplot

    make_page(*built(tmp_path, [Message("T", properties={"KEYS": "k"})]))
    assert pyplot.get_fignums() == []


def test_the_command_says_nothing_but_what_it_wrote(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, store = built(tmp_path, [Message(topic, properties={"KEYS": "k"}) for topic in (CJK, *LONG)])
    assert main(["report", out, "--store", store, "--out", str(tmp_path / "page.html")]) == 0
    said = capfd.readouterr()
    assert (said.err, said.out.count("\n")) == ("", 1)


def test_messages_are_counted_once(tmp_path: Path) -> None:
    """Two light queues get a unit of each third message; some records get none."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": ""}
    messages, offset = [], 0
    for k in range(30):
        more = {}
        if k % 3 == 0:
            more = light | {"INNER_MULTI_QUEUE_OFFSET": f"{offset},{offset}"}
            offset += 1
        rolled_back = 3 << 2 if k in (4, 5) else 0
        messages.append(Message("T", properties={"KEYS": f"k{k}", **more}, sysflag=rolled_back, queue_offset=_position(k)))
    text = make_page(*built(tmp_path, messages, lmq=True))
    assert (told(text, "records read"), told(text, "units"), told(text, "light-queue units")) == ("30", "48", "20")
    assert (
        "store times of 28 messages; 2 records without a unit; 20 units of light queues stand for the same messages; UTC"
    ) in text
    assert "<span>%LMQ%a</span>" in text.split("<h2>Queues</h2>")[1]
    assert "%LMQ%" not in text.split("<h2>Queues</h2>")[0]


def _position(k: int) -> int:
    """Of a record of one queue in which 4 and 5 are rolled back: those take no offset."""
    return k if k < 4 else max(4, k - 2)


def test_units_that_are_missing(tmp_path: Path) -> None:
    """A verify counts the units that are there; a build's gaps are filled, and count as units, too."""
    queues = [{"topic": "T", "queue": k, "units": 100, "there": 30 * k, "first": 0, "end": 100, "files": 1} for k in (1, 2)]
    model = of_verify(verified(queue_list=queues), "store")
    assert [(q.units, q.gaps, q.messages) for q in model.queues] == [(30, 70, 30), (60, 40, 60)]
    assert model.messages == 90
    # A sample asks for some units alone: what it does not read is not missing.
    (queue,) = of_verify(verified(queue_list=[queues[0] | {"units": 30}]), "store").queues
    assert (queue.units, queue.gaps) == (30, 0)
    text = render(model, {}, "", [])
    shares = re.findall(r"--share:([0-9.]+);background:var\(--(\w+)\)", text.split("<h2>Queues</h2>")[1].split("</section>")[0])
    assert shares == [("0.45", "c0"), ("0.55", "bad")]
    assert "<b>90, 110 missing</b>" in text
    out, _ = built(tmp_path, [Message("T", queue_offset=k, properties={"KEYS": "k"}) for k in (0, 1, 5, 6, 7)])
    (queue,) = of_build(json.loads(Path(out, "reindex.json").read_text()), out).queues
    assert (queue.units, queue.gaps, queue.messages) == (8, 3, 5)


def test_when_it_ran(tmp_path: Path) -> None:
    out, store = built(tmp_path, [Message("T")])
    manifest = Path(out, "reindex.json")
    os.utime(manifest, (1_800_000_000, 1_800_000_000))
    text = make_page(out, store)
    assert "\u00b7 reindex.json dated 2027-01-15 08:00:00 UTC</p>" in text
    assert make_page(out, store) == text
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps({"started": "2026-11-22T03:04:05Z", "seconds": {"session": 1.0, "build": 2.0}}))
    assert "\u00b7 built 2026-11-22 03:04:05 UTC</p>" in make_page(out, store, str(summary))
    summary.write_text(json.dumps({"started": "<b>", "seconds": {"session": 1.0, "build": 2.0}}))
    assert main(["report", out, "--summary", str(summary), "--out", str(tmp_path / "page.html")]) == 1
    of_verify = tmp_path / "verify.json"
    of_verify.write_text(json.dumps(verified(started="2026-11-22T03:04:05Z")))
    assert "\u00b7 verified 2026-11-22 03:04:05 UTC</p>" in make_page(str(of_verify))


def test_a_run_says_when_it_started_and_the_manifest_does_not(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        writer.append(Message("T"))
    summary = local_build(tmp_path / "store", tmp_path / "out", **SIZES)
    for found in (summary, local_verify(tmp_path / "out", commitlogs=(str(tmp_path / "store" / "commitlog"),))):
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", json.loads(found.to_json())["started"])
    assert "started" not in json.loads((tmp_path / "out" / "reindex.json").read_text())


def test_places_of_a_kind(tmp_path: Path) -> None:
    """The first are open, the others a click away, and how many are left out is said."""
    kind = verified()["findings"][0]
    places = [{"where": f"consumequeue/T/{k}/0", "at": k, "text": f"queue offset {k}"} for k in range(10)]
    few = kind | {"kind": "queue-unit-tags", "count": 2, "examples": places[:2]}
    (tmp_path / "verify.json").write_text(json.dumps(verified(findings=[kind | {"count": 2570, "examples": places}, few])))
    text = make_page(str(tmp_path / "verify.json"))
    check_page(text)
    many, few_told = text.split("queue-unit-missing")[1].split("queue-unit-tags")
    assert [f"<li>consumequeue/T/{k}/0: queue offset {k}</li>" in many for k in range(10)] == [True] * 10
    assert many.index("consumequeue/T/2/0") < many.index("<summary>7 more places</summary>") < many.index("consumequeue/T/3/0")
    assert "10 places shown; 2,570 differences in all" in many
    assert few_told.split("</table>")[0].count("<li>") == 2
    assert "in all" not in few_told.split("</table>")[0]
    assert "<dd" in text
    assert "<h2>2 kinds of differences</h2>" in text


@pytest.mark.parametrize("most", [5, 7])
def test_no_tile_stands_alone(most: int) -> None:
    for tiles in range(2, 30):
        columns = columns_of(tiles, most)
        assert 1 < columns <= most
        assert tiles % columns != 1, (tiles, columns)
    assert columns_of(1, most) == 1


@pytest.mark.parametrize(("sizes", "shown"), [([100] * 8, 8), ([100] * 20, 1), ([500, *[10] * 20], 8), ([500, *[100] * 20], 1)])
def test_what_is_summed_is_never_the_largest(sizes: list[int], shown: int) -> None:
    times = {f"T{k}": (np.arange(size), np.ones(size, np.int64)) for k, size in enumerate(sizes)}
    series, caption = largest(times)
    assert (len(series), bool(caption)) == (shown, shown == 1)
    assert sum(int(weights.sum()) for _, _, weights in series) == sum(sizes)
    assert max(series, key=lambda one: int(one[2].sum()))[0] == ("all topics" if shown == 1 else "T0")


def test_a_damaged_build_says_what_to_do_first(tmp_path: Path) -> None:
    out, store = built(tmp_path, [Message("T", properties={"KEYS": "k"}) for _ in range(9)])
    manifest = json.loads((tmp_path / "out" / "reindex.json").read_text())
    page = make_page(out, store)
    assert f"rmq-reindex fetch {out} --to STORE" in page
    assert "Warnings" not in page
    damage = {"segment": "0" * 20, "offset": 1_234_567, "length": 40, "reason": "bad magic code"}
    manifest |= {"damage": [damage], "warnings": [f"warning {k}" for k in range(9)]}
    path = tmp_path / "reindex.json"
    path.write_text(json.dumps(manifest))
    page = make_page(str(path))
    order = ("verdict bad", "rmq-reindex repair STORE --out DIR --replica REPLICA", "rmq-reindex fetch", "<h2>Warnings</h2>",
             "warning 4", "<summary>4 more</summary>", "warning 5", "<dl")  # fmt: skip
    assert [page.index(text) for text in order] == sorted(page.index(text) for text in order)
    assert "1,234,567" in page
    path.write_text(json.dumps(manifest | {"repair": {}}))
    assert '<section class="verdict good"><h2>repaired: 1 damaged place of the log</h2></section>' in make_page(str(path))
