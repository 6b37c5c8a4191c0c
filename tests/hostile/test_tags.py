"""TAGS that someone made up to do harm: each is found by its own text, through the index and by a scan, and shown escaped."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter
from tests.unit.jobs.querying.test_query import build

TAGS = (
    b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"a\xe2\x82", b"a\x01b", b"\x00", b" ", b"  x ", b"a b",
    b"#", b"T#", b"T#T#a", b"a#T#b", b"a || b", b"||", b"*", b"--scan", b"-", b"\x1b[31mred\x1b[0m", b"\r\nx",
    "\u202eevil".encode(), "\u2028".encode(), "😀".encode(), "e\u0301".encode(), "é".encode(), b"%s%n{}", b"../../x",
    b"'; DROP TABLE", b"x" * 30_000, "ключ".encode() * 2000, b"null", b"0",
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A message of each tag, beside one whose key has the text of its item, and one with an empty tag."""
    folder = tmp_path_factory.mktemp("hostile-tags")
    with LogWriter(folder / "commitlog", 1 << 17) as writer:
        for number, tag in enumerate(TAGS):
            writer.append(Message(topic="A", properties=b"UNIQ_KEY\x01u%d\x02TAGS\x01%s\x02" % (number, tag)))
            writer.append(Message(topic="A", properties=b"KEYS\x01T#%s\x02" % tag))
        writer.append(Message(topic="A", properties=b"KEYS\x01k\x02TAGS\x01\x02"))
    build(folder, hash_slots=50, index_items=500)
    return folder


def told(store: Path, tag: bytes, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(["query", str(store), "--topic", "A", f"--tag={os.fsdecode(tag)}", *words]) == 0
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.parametrize("scan", [False, True])
def test_each_is_found(scan: bool, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Java's text of the bytes decides: what is not UTF-8 becomes U+FFFD, on the command line as in the record."""
    words = ["--json", "--body", "none", *(["--scan"] if scan else [])]
    alike = {b"\xff": {0, 1}, b"\xed\xa0\x80": {0, 1}}
    for number, tag in enumerate(TAGS):
        out, err = told(store, tag, capsys, *words)
        rows = [json.loads(line) for line in out.splitlines()]
        assert {int(row["uniqueKey"][1:]) for row in rows} == alike.get(tag, {number}), tag
        assert err.count("\n") == 1
        assert err.startswith("searched: ")
        assert ("the tag items of 1 of 1 IndexFile" in err) == (not scan)


def test_none_reaches_the_terminal_raw(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tag in TAGS:
        out, err = told(store, tag, capsys, "--body", "none")
        assert all(c.isprintable() or c == "\n" for c in out + err)


def test_a_tag_on_the_command_line_is_one_word(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(store), "--topic", "A", "--tag", "--scan"]) == 2
    assert capsys.readouterr().out == ""
    assert main(["query", str(store), "--topic", "A", "--tag="]) == 2


def test_without_the_index_they_are_found_alike(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(store / "commitlog", tmp_path / "commitlog")
    for tag in (TAGS[4], TAGS[13], TAGS[-4]):
        bare, err = told(tmp_path, tag, capsys, "--json")
        assert "the index has no tag items" in err
        assert bare == told(store, tag, capsys, "--json")[0] != ""
