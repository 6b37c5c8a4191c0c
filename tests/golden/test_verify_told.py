"""What verify says of a store that lost things, to people, to programs and in the report: which queues, how much of each."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.options import read_batch_topics
from rocketmq_reindex.jobs.reporting.make import make_page
from tests.golden.stores import GoldenStore
from tests.tools.local_verify import kinds, local_verify
from tests.tools.spoil_queues import Queue

Stores = Callable[[str], GoldenStore]


def copy_of(golden_store: Stores, into: Path) -> Path:
    shutil.copytree(golden_store("basic-5.3").path, into, ignore=shutil.ignore_patterns("rebuilt"))
    return into


def test_which_queues_are_lost(golden_store: Stores, tmp_path: Path) -> None:
    """A line a queue; then places of as many queues as there are."""
    store = copy_of(golden_store, tmp_path / "store")
    gone = ["TopicA/0", "TopicA/3", "TopicB/1", "TopicC/0", "TopicC/2"]
    for name in gone:
        shutil.rmtree(store / "consumequeue" / name)
    (file,) = (store / "consumequeue" / "TopicE" / "0").iterdir()
    file.unlink()
    queue = Queue(store / "consumequeue" / "TopicB" / "0")
    for slot in (3, 8):
        queue.units[slot] = (0, 0, 0)
    place, size, tags = queue.units[5]
    queue.units[5] = (place, size + 1, tags)
    queue.write()
    summary = local_verify(store)
    lost = {f"{q['topic']}/{q['queue']}": q for q in summary.queue_list if q["differences"]}
    assert list(lost) == sorted([*gone, "TopicE/0", "TopicB/0"])
    units = sum(lost[name]["units"] for name in [*gone, "TopicE/0"])
    assert kinds(summary) == {"queue-unit-missing": units + 2, "queue-unit-size": 1}
    assert (summary.units, summary.units_there) == (2500, 2500 - units - 2)
    assert all((lost[name]["there"], lost[name]["folder"]) == (0, False) for name in gone)
    assert (lost["TopicE/0"]["there"], lost["TopicE/0"]["folder"], lost["TopicE/0"]["files"]) == (0, True, 0)
    assert lost["TopicB/0"]["kinds"] == {"queue-unit-missing": 2, "queue-unit-size": 1}
    # -- in text
    text = summary.to_text()
    head = re.search(r"^7 of 20 queues differ\n((?:    \S.*\n)+)", text, re.MULTILINE)
    assert head
    rows = [re.split(r"\s{2,}", line.strip()) for line in head[1].splitlines()]
    n = {name: f"{lost[name]['units']:,}" for name in lost}
    assert [row for row in rows if row[0] in gone] == [
        [name, f"0 of {n[name]} units there", "queue has no folder"] for name in gone
    ]
    assert ["TopicE/0", f"0 of {n['TopicE/0']} units there", "queue has no file"] in rows
    told = f"{lost['TopicB/0']['units'] - 2} of {n['TopicB/0']} units there"
    assert ["TopicB/0", told, "queue-unit-missing 2, queue-unit-size 1"] in rows
    assert f"\ncompared 2,500 units ({summary.units_there:,} there) in 14 ConsumeQueue files" in text
    # -- places
    (missing, wrong) = summary.findings
    where = [example["where"] for example in missing["examples"]]
    assert len(where) == 8
    assert {"/".join(place.split("/")[1:3]) for place in where[:7]} == set(lost), "one of each queue, then the second of one"
    assert missing["examples"][0] == {
        "where": "consumequeue/TopicA/0", "at": 0, "text": f"queue has no folder: {n['TopicA/0']} units from queue offset 0 on",
    }  # fmt: skip
    nothing = [example["text"] for example in missing["examples"] if "TopicB/0" in example["where"]]
    assert all(
        re.fullmatch(r"queue offset [38]: nothing instead of phy_offset \d+, size \d+, tagsCode -?\d+", t) for t in nothing
    )
    assert wrong["examples"][0]["text"] == f"queue offset 5: size {size + 1} instead of {size}"
    # -- in the report
    (tmp_path / "verify.json").write_text(summary.to_json())
    page = make_page(str(tmp_path / "verify.json"))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    for name in gone:
        topic, number = name.split("/")
        of = lost[name]["units"]
        at = next(k for k in range(len(cells)) if cells[k : k + 3] == [topic, number, "0"])
        assert cells[at + 2 : at + 6] == ["0", str(of), "0", str(of)]
    assert f"<dd>{summary.units_there:,}</dd>" in page
    assert json.loads(summary.to_json())["queues_differing"] == 7


def test_one_of_each_is_no_plural(golden_store: Stores, tmp_path: Path) -> None:
    store = copy_of(golden_store, tmp_path / "store")
    shutil.rmtree(store / "consumequeue" / "TopicA" / "0")
    text = local_verify(store).to_text()
    assert "\ndiffers  1 kind of difference\n" in text
    assert "\n1 of 20 queues differs\n" in text
    for words in (text, local_verify(store, only=("log",)).to_text()):
        assert not re.search(r"(?<![\d,.])1 \w+s\b(?! of)", words.replace("1 of", "")), words


def test_queues_that_differ_are_told_before_large_ones(
    golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists are bounded, sums are not."""
    store = copy_of(golden_store, tmp_path / "store")
    retry = store / "consumequeue" / "%RETRY%group-3"
    shutil.rmtree(retry)
    monkeypatch.setattr("rocketmq_reindex.udfs.verify.queue_tasks.QUEUES_LISTED", 5)
    monkeypatch.setattr("rocketmq_reindex.jobs.verifying.queues.QUEUES_LISTED", 5)
    monkeypatch.setattr("rocketmq_reindex.jobs.verifying.summary.QUEUE_LINES", 3)
    summary = local_verify(store)
    told = [(entry["topic"], entry["differences"] > 0) for entry in summary.queue_list]
    assert told == [*[("%RETRY%group-3", True)] * 4, (told[-1][0], False)]
    assert (summary.queues, summary.queues_differing) == (20, 4)
    text = summary.to_text()
    assert "\n4 of 20 queues differ\n" in text
    assert text.count("queue has no folder\n") == 3
    assert "\n    and 1 more\n" in text


def test_queues_that_the_log_does_not_ask_for(golden_store: Stores, tmp_path: Path) -> None:
    """A line each: a file without a unit at the end, and a queue of which the log has nothing."""
    store = copy_of(golden_store, tmp_path / "store")
    full = next(path for path in sorted(store.glob("consumequeue/*/*")) if not Queue(path).units[-1][1])
    size = max(path.stat().st_size for path in full.iterdir())
    stray = store / "consumequeue" / "NoSuchTopic" / "0"
    stray.mkdir(parents=True)
    (stray / f"{size:020d}").write_bytes(bytes(size))
    other = store / "consumequeue" / "NoSuchTopic" / "1"
    shutil.copytree(full, other)
    summary = local_verify(store)
    queues = {entry["queue"]: entry for entry in summary.queue_list if entry["topic"] == "NoSuchTopic"}
    assert queues[0]["kinds"] == {"queue-file-empty": 1}
    assert (summary.queues_differing, summary.idle_queues) == (2, 0)
    assert re.search(r"^    NoSuchTopic/0 +the log has no unit of it +queue-file-empty 1$", summary.to_text(), re.MULTILINE)
    assert re.search(r"^    NoSuchTopic/1 +the log has no unit of it +queue-unit-extra \d+$", summary.to_text(), re.MULTILINE)


def test_what_a_broker_passes_over_is_counted(golden_store: Stores, tmp_path: Path) -> None:
    store = copy_of(golden_store, tmp_path / "store")
    (store / "consumequeue" / "notes.txt").touch()
    told = "consumequeue/ also holds what a broker passes over: "
    assert f"{told}notes.txt" in local_verify(store).notes
    (store / "consumequeue" / "TopicA" / "old").mkdir()
    assert f"{told}TopicA/old, and 1 more" in local_verify(store).notes


def test_units_of_batch_queues_have_numbers_of_their_own(golden_store: Stores, tmp_path: Path) -> None:
    """Each stands for many queue offsets."""
    source, store = golden_store("batch-5.3").path, tmp_path / "store"
    shutil.copytree(source / "commitlog", store / "commitlog")
    shutil.copytree(source / "rebuilt", store, dirs_exist_ok=True)
    topics = read_batch_topics(str(source / "config" / "topics.json"))
    one, other = sorted((store / "batchconsumequeue").glob("*/*"))[:2]
    shutil.rmtree(one)
    file = min(other.iterdir())
    file.write_bytes(bytes(46) + file.read_bytes()[46:])
    summary = local_verify(store, batch_topics=topics)
    (finding,) = summary.findings
    texts = {example["where"].removeprefix("batchconsumequeue/"): example["text"] for example in finding["examples"]}
    assert re.fullmatch(r"queue has no folder: \d+ units? from unit 0 on", texts[f"{one.parent.name}/{one.name}"])
    assert texts[f"{other.parent.name}/{other.name}/{file.name}"].startswith("unit 0: nothing instead of phy_offset ")
    assert (summary.queues_differing, summary.units - summary.units_there) == (2, finding["count"])


def test_sizes_that_no_file_shows(golden_store: Stores, tmp_path: Path) -> None:
    """The command that mends takes the defaults, which may not be the broker's: a note says so, where it makes such files."""

    def told(**given: Any) -> list[str]:
        return [note.partition(": the command")[0] for note in local_verify(store, **given).notes if "no file shows" in note]

    store = copy_of(golden_store, tmp_path / "store")
    shutil.rmtree(store / "index")
    assert told() == ["no file shows the sizes of IndexFiles"]
    assert told(only=("consumequeue", "checkpoint")) == []
    shutil.rmtree(store / "consumequeue")
    assert told() == ["no file shows the sizes of ConsumeQueue files and IndexFiles"]
    assert told(cq_file_size=4000) == ["no file shows the sizes of IndexFiles"]
    assert told(cq_file_size=4000, hash_slots=500, index_items=1500) == []
