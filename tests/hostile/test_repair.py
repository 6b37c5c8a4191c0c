"""Names of a damaged log, and manifests that somebody wrote, when a repair tells of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.repair import repair
from rocketmq_reindex.storage_format.topics import path_component
from tests.tools.encode import Message
from tests.tools.faulty_runs import command
from tests.tools.log_writer import LogWriter

TOPICS = ["../../etc", "a\x1b]0;t\x07\n", "a/b", "..", "\u202egnp", "x" * 200, "%LMQ%a", 'q"\\', "ok"]


def is_plain(text: str) -> bool:
    return all(c == "\n" or " " <= c <= "~" for c in text)


def test_names_in_damaged_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No name becomes a path. What no queue can have is in the kept bytes alone, the others are listed in printable ASCII."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        writer.append(Message(topic="ok"))
        puts = [writer.append(Message(topic=t, body=b"body", properties={"KEYS": "k\x1b[2J \u202ek"})) for t in TOPICS]
        writer.append(Message(topic="ok"))
    segment = tmp_path / "store" / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    for put in puts:
        data[data.index(b"body", put.offset)] ^= 1
    segment.write_bytes(data)
    summary, said = command(tmp_path / "store", tmp_path / "out", name="repair")
    assert summary["exit"] == 3
    assert is_plain(said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]
    names = sorted(path.name for path in (tmp_path / "out" / "quarantine").iterdir())
    assert names == [f"{puts[0].offset:020d}", f"{puts[0].offset:020d}.json"]
    text = (tmp_path / "out" / "quarantine" / names[1]).read_text()
    assert is_plain(text)
    listed = json.loads(text)["records"]
    assert [record["offset"] for record in listed] == [
        put.offset for put in puts if path_component(str(put.message.topic)) is not None
    ]
    assert summary["repair"]["ranges"][0]["records"] == len(listed) == 4
    whole = (tmp_path / "out" / "quarantine" / names[0]).read_bytes()
    assert whole == data[puts[0].offset : puts[-1].offset + puts[-1].size].rstrip(b"\0")
    assert {path.name for path in (tmp_path / "out" / "consumequeue").iterdir()} == {"ok"}
    assert repair(["--explain", str(tmp_path / "out")]) == 0
    assert is_plain(capsys.readouterr().out)


_RANGE = {
    "segment": "\x1b[31m", "offset": 1, "length": 2, "reason": "\x07\n", "how": "replica", "replica": "\x1b]0;t\x07\n",
    "damaged": [1, 2], "old": "\x1b", "new": "\ud800", "records": 1,
}  # fmt: skip


def manifest(**more: object) -> str:
    return json.dumps({"repair": {"ranges": [_RANGE | more], "segments": 1, "from_replica": 1, "filled": 2, "kept": 3}})


@pytest.mark.parametrize(
    ("records", "told"), [(0, "no record in them can be read"), (1, f"1 record in them can still be read: {1:020d}.json")]
)
def test_explain_says_what_can_still_be_read(
    records: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reindex.json").write_text(manifest(how="filler", records=records))
    assert repair(["--explain", str(tmp_path)]) == 0
    assert f"  kept     quarantine/{1:020d} has the old bytes; {told}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (manifest(), 0), (manifest(offset=-5), 0), (manifest(segment={"\x1b": 1}), 0), (manifest(offset=float("inf")), 1),
        (manifest(length=float("nan")), 1), (manifest(how="??"), 1), (manifest(how=[1]), 1), (manifest(damaged=[1]), 1),
        (manifest(offset="9" * 5000), 1), ("{", 1), ("[]", 1), ("null", 1), ("[" * 100_000, 1), ("\x00\x1b", 1), ("", 1),
        ('{"repair": null}', 1), ('{"repair": {"ranges": ["a"], "segments": 1}}', 1),
    ],
)  # fmt: skip
def test_explain(text: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reindex.json").write_text(text)
    assert repair(["--explain", str(tmp_path)]) == status
    told = capsys.readouterr()
    assert is_plain(told.out + told.err)
    assert len(told.err.splitlines()) == (status != 0)


@pytest.mark.parametrize("place", ["", "a\0b", "no such file", "/dev/zero", "s3x://a/b"])
def test_explain_what_is_no_manifest(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert repair(["--explain", place]) in (1, 2)
    assert capsys.readouterr().err.startswith("error: ")


def test_explain_a_huge_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "m").open("wb") as file:
        file.truncate(1 << 40)
    assert repair(["--explain", str(tmp_path / "m")]) == 1
    assert "are read: look at what lies there" in capsys.readouterr().err
