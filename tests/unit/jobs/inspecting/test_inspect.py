"""``rmq-reindex inspect``: what it says of files of every kind, whole and spoilt."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.inspecting.options import kind_of
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.scan import range_notes
from tests.tools.batch_log import MADE, batch
from tests.tools.encode import COMMIT, EPOCH, PREPARED, ROLLBACK, Message
from tests.unit.jobs.querying.test_query import SIZES, build, keyed, make

Said = Any


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """say(path, words): (summary, rows)."""

    def run(path: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        assert main(["inspect", str(path), "--json", *words]) == 0
        told = capsys.readouterr()
        assert told.err == ""
        summary, *rows = [json.loads(line) for line in told.out.splitlines()]
        return summary, rows

    return run


def codes(summary: dict[str, Any]) -> list[str]:
    return [one["code"] for one in summary["findings"]]


def test_a_segment(tmp_path: Path, say: Said) -> None:
    kinds = [0, PREPARED, COMMIT, ROLLBACK, 1, 0]
    messages = [
        Message(
            topic=f"T{k % 2}",
            sysflag=kind,
            store_timestamp=EPOCH + k,
            properties=({}, {"KEYS": "k", "TAGS": "a"}, {"KEYS": "k"})[min(k, 2)],
        )
        for k, kind in enumerate(kinds)
    ]
    puts = make(tmp_path, messages)
    path = tmp_path / "commitlog" / f"{0:020d}"
    summary, rows = say(path, "--records")
    end = puts[-1].offset + puts[-1].size
    expected = {
        "kind": "segment", "bytes": 4096, "firstOffset": 0, "records": 6, "recordBytes": end, "damage": [], "damagedBytes": 0,
        "kinds": {"plain": 3, "prepared": 1, "commit": 1, "rollback": 1, "compressed": 1}, "indexItems": 4, "tagItems": 1,
        "topicCount": 2,
        "firstStoreTime": "2023-11-14T22:13:20.000Z", "lastStoreTime": "2023-11-14T22:13:20.005Z",
        "endsWith": f"zeros from offset {end} on",
    }  # fmt: skip
    assert {name: summary[name] for name in expected} == expected
    assert [(row["topic"], row["records"]) for row in summary["topics"]] == [("T1", 3), ("T0", 3)]
    assert [row["physicalOffset"] for row in rows] == [put.offset for put in puts]


def test_a_damaged_segment(tmp_path: Path, say: Said) -> None:
    puts = make(tmp_path, keyed(60))
    path = tmp_path / "commitlog" / f"{1 << 12:020d}"
    content = bytearray(path.read_bytes())
    mine = [put for put in puts if 1 << 12 <= put.offset < 2 << 12]
    for put in (mine[3], mine[4]):
        content[put.offset - (1 << 12) + 4] ^= 1
    content[mine[7].offset - (1 << 12) + 90] ^= 1
    path.write_bytes(content)
    summary, rows = say(path, "--records")
    assert [(hole["offset"], hole["length"]) for hole in summary["damage"]] == [
        (mine[3].offset, mine[3].size + mine[4].size), (mine[7].offset, mine[7].size),
    ]  # fmt: skip
    left = [put.offset for k, put in enumerate(mine) if k not in (3, 4, 7)]
    assert [row["physicalOffset"] for row in rows] == left
    assert summary["records"] == len(left)
    assert say(tmp_path / "commitlog" / f"{0:020d}")[0]["endsWith"] == "a BLANK, or exactly full"
    last = max((tmp_path / "commitlog").iterdir())
    last.write_bytes(last.read_bytes()[:100])
    assert say(last)[0]["wholeSegment"] == 1 << 12, "as long as the first one beside it"


def test_a_segment_with_more_damage_than_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are told up to there. What follows is named, and the exit status says that it is not all."""
    puts = make(tmp_path, keyed(60), 1 << 16)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    for put in puts[1:41:2]:
        content[put.offset + 4] ^= 1
    path.write_bytes(content)
    for limit, status, records, damaged in ((20, 0, 40, 20), (19, 1, 20, 20), (4, 1, 5, 5)):
        monkeypatch.setattr(range_notes, "HOLES_MAX", limit)
        assert main(["inspect", str(path), "--json", "--records"]) == status
        told = capsys.readouterr()
        summary, *rows = [json.loads(line) for line in told.out.splitlines()]
        assert (summary["records"], len(summary["damage"])) == (records, damaged)
        assert [row["physicalOffset"] for row in rows] == [put.offset for put in puts if put not in puts[1:41:2]][:records]
        end = puts[2 * damaged].offset
        left_out = f"offset {end} and all behind it: more than {limit} damaged places: no more of them are told"
        assert summary.get("notTold") == (left_out if status else None)
        assert told.err == (f"error: {path}: {left_out}\n" if status else "")


def test_a_queue_file(tmp_path: Path, say: Said) -> None:
    puts = make(tmp_path, [Message(topic="T", queue_offset=k) for k in range(5, 12)])
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    summary, rows = say(path, "--records")
    assert (summary["places"], summary["preBlank"], summary["units"], summary["emptyAtTheEnd"]) == (20, 5, 7, 8)
    assert (summary["first"]["offset"], summary["first"]["physicalOffset"]) == (5, 0)
    assert (summary["last"]["offset"], summary["last"]["physicalOffset"]) == (11, puts[-1].offset)
    assert [row["kind"] for row in rows] == ["pre-blank"] * 5 + ["unit"] * 7
    assert codes(summary) == []
    content = bytearray(path.read_bytes())
    content[160:180] = bytes(20)
    path.write_bytes(content)
    assert codes(say(path)[0]) == ["queue-hole"]


def test_a_batch_queue_file(tmp_path: Path, say: Said) -> None:
    make(tmp_path, [batch(base, 5) for base in range(0, 30, 5)], **MADE)
    path = tmp_path / "batchconsumequeue" / "BatchA" / "0" / f"{0:020d}"
    summary, rows = say(path, "--records")
    assert (summary["places"], summary["units"], summary["messages"], summary["emptyAtTheEnd"]) == (10, 6, 30, 4)
    assert [row["baseOffset"] for row in rows] == [0, 5, 10, 15, 20, 25]
    assert summary["findings"] == []
    content = bytearray(path.read_bytes())
    struct.pack_into(">q", content, 2 * 46 + 28, 12)
    path.write_bytes(content)
    assert [one["text"] for one in say(path)[0]["findings"]] == ["offsets that overlap or go back", "offsets left out"]


def test_an_index_file(tmp_path: Path, say: Said) -> None:
    make(tmp_path, keyed(20))
    first, last = sorted((tmp_path / "index").iterdir())
    summary, rows = say(first, "--records")
    assert (summary["slots"], summary["places"], summary["items"], summary["full"]) == (7, 40, 39, True)
    assert summary["slotsInUse"] == summary["hashSlotCount"] == len({row["keyHash"] % 7 for row in rows})
    assert [row["item"] for row in rows] == list(range(1, 40))
    assert summary["longestChains"][0]["itemsOfIt"] == 13  # the key that all have
    assert summary["findings"] == []
    assert say(last)[0]["items"] == 21
    content = bytearray(first.read_bytes())
    struct.pack_into(">i", content, 40 + 28 + 20 * 39 + 16, 39)
    first.write_bytes(content)
    assert "index-link-range" in codes(say(first, "--hash-slots", "7", "--index-items", "40")[0])
    struct.pack_into(">i", content, 40 + 28 + 20 * 5 + 12, -1)
    first.write_bytes(content)
    told = say(first, "--hash-slots", "7", "--index-items", "40")[0]
    (negative,) = (one for one in told["findings"] if one["code"] == "index-item-time")
    assert negative["text"] == "item with a negative timeDiff: a lookup ends at it (at: item)"


def test_what_the_items_of_an_index_file_stand_for(tmp_path: Path, say: Said) -> None:
    """With the log beside it; alone, or of 5.3, there is nothing to be said of tags."""
    tagged = [
        Message(topic="A", properties={"UNIQ_KEY": f"u{k}", "KEYS": "T#x y"[4 * (k % 2) :], "TAGS": "x"}) for k in range(5)
    ]
    puts = make(tmp_path, [*tagged, Message(topic="A", properties={"KEYS": "z"})])
    (path,) = (tmp_path / "index").iterdir()
    summary, rows = say(path, "--records")
    whole = puts[-1].offset + puts[-1].size
    assert (summary["tagItemsFrom"], summary["tagItemsTo"]) == (0, whole)
    assert [(row["of"], row["text"]) for row in rows[:4]] == [("unique key", "u0"), ("key", "T#x"), ("key", "y"), ("tag", "x")]
    assert [(row["of"], row["text"]) for row in rows[4:7]] == [("unique key", "u1"), ("key", "y"), ("tag", "x")]
    assert (rows[-1]["of"], rows[-1]["text"]) == ("key", "z")
    (tmp_path / "commitlog").rename(tmp_path / "elsewhere")
    summary, rows = say(path, "--records")
    assert (summary["tagItemsFrom"], summary["tagItemsTo"], rows[0]["of"], rows[0]["text"]) == (None, None, None, None)
    (tmp_path / "elsewhere").rename(tmp_path / "commitlog")
    shutil.rmtree(tmp_path / "index")
    shutil.rmtree(tmp_path / "consumequeue")
    build(tmp_path, broker_version="5.3")
    (path,) = (tmp_path / "index").iterdir()
    assert say(path)[0]["tagItemsFrom"] is None


def test_a_checkpoint(tmp_path: Path, say: Said) -> None:
    make(tmp_path, keyed(20))
    summary, rows = say(tmp_path / "checkpoint", "--records")
    last = EPOCH + 19_000
    assert [row["value"] for row in rows][:3] == [last, last, last]
    assert summary["physicMsgTime"] == "2023-11-14T22:13:39.000Z"
    (tmp_path / "checkpoint").write_bytes(b"\xff" * 5000)
    assert codes(say(tmp_path / "checkpoint")[0]) == ["checkpoint-size", "checkpoint-negative", "checkpoint-rest"]


def test_kinds_are_told_by_content(tmp_path: Path) -> None:
    """Files that were copied out of their folders."""
    make(tmp_path, keyed(20))
    name = f"{0:020d}"
    (index, *_) = sorted((tmp_path / "index").iterdir())
    for source, target, kind in (
        (tmp_path / "commitlog" / name, name, "segment"),
        (tmp_path / "consumequeue" / "T" / "0" / name, name, "consumequeue"),
        (index, index.name, "index"),
        (tmp_path / "checkpoint", "checkpoint", "checkpoint"),
    ):
        assert kind_of(str(source)) == kind
        copied = tmp_path / "copied" / target
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(source.read_bytes())
        assert kind_of(str(copied)) == kind
        copied.unlink()
    odd = tmp_path / "odd"
    odd.write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="--kind"):
        kind_of(str(odd))


def test_several_files_and_what_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that cannot be looked at does not keep the others from being shown."""
    make(tmp_path, keyed(20))
    (tmp_path / "odd").write_bytes(b"")
    segment = tmp_path / "commitlog" / f"{0:020d}"
    words = [str(tmp_path / name) for name in ("nowhere", "odd", "commitlog", "checkpoint")]
    assert main(["inspect", *words, str(segment)]) == 1
    told = capsys.readouterr()
    assert told.err.count("error: ") == told.err.count("\n") == 3
    assert "physicMsgTimestamp" in told.out
    assert "recordBytes" in told.out
    assert main(["inspect", "--kind", "segment", str(tmp_path / "checkpoint")]) == 1
    assert "20 digits" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["", "--kind nothing x", "x --hash-slots 5", "x --hash-slots 0 --index-items 4", "x --what"])
def test_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", *words.split()]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("records", [[], ["--records"]])
def test_tables_of_all_kinds(records: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m[red]\u202e"
    make(tmp_path, [*keyed(20), Message(topic="a[b]", properties={"KEYS": evil, evil: "v"})], **SIZES)
    paths = [path for path in sorted(tmp_path.rglob("*")) if path.is_file() and path.suffix != ".json"]
    assert len(paths) > 5
    assert main(["inspect", *map(str, paths), *records]) == 0
    shown = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "a[b]" in shown
    assert ("item=1 " in shown) == bool(records)
