"""Which names files of a store have: numbers in ASCII digits that fit 64 bits. What has another name is passed over or told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.layouts import FIRST_BYTE_MAX, first_byte, is_index_file, is_number, queue_id
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

ODD = ("\N{SUPERSCRIPT TWO}" * 20, "9" * 20, "\N{ARABIC-INDIC DIGIT ZERO}" * 20)
"""20 characters each, all of which are digits to Python; the second is a number that no 64 bits hold"""


def test_first_bytes() -> None:
    assert first_byte("0" * 20) == 0
    assert first_byte("00000000001073741824") == 1 << 30
    assert first_byte(f"{FIRST_BYTE_MAX:020d}") == FIRST_BYTE_MAX
    for name in (*ODD, f"{FIRST_BYTE_MAX + 1:020d}", "0" * 19, "0" * 21, "+" + "0" * 19, "0" * 20 + "\n", " " + "0" * 19, ""):
        assert first_byte(name) is None, name


def test_queue_ids() -> None:
    assert [queue_id(name) for name in ("0", "7", str(2**31 - 1))] == [0, 7, 2**31 - 1]
    for name in ("00", "07", "-1", "+1", str(2**31), "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "1\n", ""):
        assert queue_id(name) is None, name


def test_index_files() -> None:
    assert all(is_index_file(name) for name in ("20231114221326358", "7", str(2**63 - 1)))
    assert not any(is_index_file(name) for name in (*ODD, str(2**63), "20231114.bak", "-7", "7\n", ""))


def test_numbers_of_java() -> None:
    """``Long.parseLong`` takes signs and digits of any script; not superscripts, blanks, or what passes 64 bits."""
    assert all(is_number(name) for name in ("7", "+7", "-7", ODD[2], str(2**63 - 1), str(-(2**63)), "0" * 100))
    assert not any(is_number(name) for name in (ODD[0], ODD[1], str(2**63), "1_000", " 7", "7\n", "+", ""))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    found = tmp_path / "store"
    with LogWriter(found / "commitlog", 1 << 12) as writer:
        for number in range(30):
            writer.append(Message(topic="T", properties={"KEYS": f"key-{number}"}))
    assert local_build(found, tmp_path / "out", **SMALL).exit == 0
    for part in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "out" / part).rename(found / part)
    return found


@pytest.mark.parametrize("name", ODD)
def test_a_report_and_a_query_pass_over_them(
    name: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "commitlog" / name).write_bytes(b"x" * 100)
    for words in (["--key", "key-7"], ["--key", "key-7", "--scan"], ["--physical", "0"]):
        assert main(["query", str(store), "--topic", "T", "--json", *words]) == 0, words
        told = capsys.readouterr()
        assert json.loads(told.out)["topic"] == "T"
        assert "is no segment: not looked at" in told.err
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "out"), "--store", str(store), "--out", str(page)]) == 0
    assert page.exists()


@pytest.mark.parametrize("name", ODD[:2])
def test_derived_files_of_such_names(name: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "consumequeue/T/0" / name).write_bytes(bytes(SMALL["cq_file_size"]))
    (store / "index" / name).write_bytes(bytes(100))
    for given in (SMALL, {}):
        assert kinds(local_verify(store, **given)).keys() == {"queue-file-stray", "index-file-name"}
    assert main(["query", str(store), "--topic", "T", "--key", "key-7", "--json"]) == 0
    assert main(["query", str(store), "--topic", "T", "--queue", "0", "--offset", "3", "--json"]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "is no IndexFile: not looked at" in told.err
