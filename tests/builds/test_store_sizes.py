"""A build beside other files of the store: sizes that nobody named are compared with what lies there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building import store_sizes
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.store_sizes import check_sizes
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.fetch import fetch
from rocketmq_reindex.storage_format.errors import InputError
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

CQ, SLOTS, ITEMS = SMALL["cq_file_size"], SMALL["hash_slots"], SMALL["index_items"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    found = tmp_path / "store"
    with LogWriter(found / "commitlog", 1 << 14) as writer:
        for number in range(200):
            writer.append(Message(topic=f"T{number % 3}", properties={"KEYS": f"key-{number}"}))
    assert local_build(found, tmp_path / "first", **SMALL).exit == 0
    for part in ("consumequeue", "index", "checkpoint"):
        shutil.move(tmp_path / "first" / part, found / part)
    return found


def settings(store: Path, *words: str) -> BuildSettings:
    return parse_settings([str(store), "--out", str(store.parent / "out"), *words])


def refusal(store: Path, *words: str) -> str:
    with pytest.raises(InputError) as caught:
        check_sizes(settings(store, *words))
    return str(caught.value)


def test_sizes_left_out_are_refused(store: Path, tmp_path: Path) -> None:
    """Exit 1, nothing is published: a broker would not start on the result."""
    summary = local_build(store, tmp_path / "out")
    assert summary.exit == 1
    assert summary.error == refusal(store)
    assert not (tmp_path / "out").exists()
    assert f"has files of {CQ} bytes, a build makes files of 6000000: give --cq-file-size {CQ}" in refusal(store)
    assert f"give --hash-slots {SLOTS} --index-items {ITEMS}" in refusal(store, "--only", "index,checkpoint")
    assert "give --hash-slots" in refusal(store, "--cq-file-size", str(CQ))
    # All of them at once: nobody wants to be refused a second time.
    assert f"give --hash-slots {SLOTS}" in refusal(store)
    assert "--cq-file-size" not in refusal(store, "--cq-file-size", str(CQ))


def test_refused_before_spark_starts(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each look is taken once: what a dry run warns of, it says once."""

    def start(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("rocketmq_reindex.jobs.spark.session.starting", start)
    words = ["build", str(store), "--out", str(store.parent / "out"), "--json"]
    assert main(words) == 1
    assert json.loads(capsys.readouterr().out)["error"] == refusal(store)
    looks = list[str]()

    def look(given: BuildSettings) -> list[str]:
        looks.append(given.store)
        return ["odd sizes"]

    monkeypatch.setattr("rocketmq_reindex.jobs.building.inputs.check_sizes", look)
    assert main([*words, "--dry-run"]) == 0
    assert (json.loads(capsys.readouterr().out)["warnings"], looks) == (["odd sizes"], [str(store)])


def test_the_advice_is_enough(store: Path) -> None:
    words = ["--cq-file-size", str(CQ), "--hash-slots", str(SLOTS), "--index-items", str(ITEMS)]
    assert check_sizes(settings(store, *words)) == []
    assert check_sizes(settings(store, "--only", "checkpoint")) == []
    assert check_sizes(settings(store, "--only", "consumequeue", *words[:2])) == []


def test_named_sizes_win(store: Path, tmp_path: Path) -> None:
    """Also where they are the defaults, and by a broker.conf."""
    words = ["--cq-file-size", "6000000", "--hash-slots", "5000000", "--index-items", "20000000"]
    told = check_sizes(settings(store, *words))
    assert len(told) == 2
    assert "as --cq-file-size says: a broker starts on files of its own setting alone" in told[0]
    assert "as --hash-slots 5000000 --index-items 20000000 says" in told[1]
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=6000000\nmaxHashSlotNum=5000000\nmaxIndexNum=20000000\n")
    assert check_sizes(settings(store, "--broker-conf", str(conf))) == told


def test_a_broker_conf_without_sizes_means_defaults(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=broker-a\n")
    assert "give --cq-file-size" in refusal(store, "--broker-conf", str(conf))


def test_the_store_around_a_commitlog(store: Path) -> None:
    words = ["--commitlog", str(store / "commitlog"), "--out", str(store.parent / "out")]
    with pytest.raises(InputError, match="give --cq-file-size"):
        check_sizes(parse_settings(words))


@pytest.mark.parametrize("size", [0, CQ - 7, CQ + 20])
def test_mixed_sizes_are_told(store: Path, size: int) -> None:
    queue = next(path for path in (store / "consumequeue/T0").iterdir())
    last = max(queue.iterdir())
    last.write_bytes(bytes(size))
    (told,) = check_sizes(settings(store, "--only", "consumequeue", "--cq-file-size", str(CQ)))
    assert f"beside files of {CQ} bytes has others ({size} bytes)" in told
    assert f"give --cq-file-size {CQ}" in refusal(store)


def test_fetch_tells_of_a_build_of_other_sizes(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of a copy of the log alone, where nothing else says what sizes the broker has."""
    copy = tmp_path / "copy"
    shutil.copytree(store / "commitlog", copy / "commitlog")
    for name, sizes, told in (("same", SMALL, 0), ("other", {"cq_file_size": 2 * CQ, "hash_slots": 9, "index_items": 90}, 2)):
        assert local_build(copy, tmp_path / name, **sizes).exit == 0
        assert fetch([str(tmp_path / name), "--to", str(store)]) == 0
        notes = [line for line in capsys.readouterr().err.splitlines() if "had files of" in line]
        assert len(notes) == told
    assert f"consumequeue: had files of {CQ} bytes, the build has files of {2 * CQ}: a broker starts on" in notes[0]
    assert f"index: had files of {40 + 4 * SLOTS + 20 * ITEMS} bytes, the build has files of 1876: " in notes[1]


def test_nothing_to_compare_with(store: Path) -> None:
    """No derived files, or none whose size says anything."""
    for path in (*(store / "consumequeue").glob("*/*/*"), *(store / "index").iterdir()):
        path.write_bytes(b"torn file")
    assert check_sizes(settings(store)) == []
    shutil.rmtree(store / "index")
    assert check_sizes(settings(store)) == []
    shutil.rmtree(store / "consumequeue")
    assert check_sizes(settings(store)) == []


def test_few_files_are_looked_at(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketmq_reindex.udfs import files

    for number in range(300):
        for queue in range(4):
            shutil.copytree(store / "consumequeue/T0/0", store / f"consumequeue/more-{number}/{queue}")
    listed = list[str]()
    listing = files.listing

    def counted(place: str) -> list[files.Entry]:
        listed.append(place)
        return listing(place)

    monkeypatch.setattr(files, "listing", counted)
    assert "give --cq-file-size" in refusal(store)
    assert len(listed) <= 1 + 20 * 3 + 2
    listed.clear()
    monkeypatch.setattr(store_sizes, "LOOKED_AT", store_sizes.LOOKED_AT_REMOTE)
    assert "give --cq-file-size" in refusal(store)
    assert len(listed) <= 1 + 4 * 2 + 2


def test_a_store_without_keys_and_with_odd_sizes(tmp_path: Path) -> None:
    """Its IndexFile has no item: nothing says how many slots it has, and nothing depends on it."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        for _ in range(20):
            writer.append(Message(topic="T"))
    odd: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 37, "index_items": 93}
    for version in ("5.3", "4.9"):
        assert local_build(store, tmp_path / version, broker_version=version, **odd).exit == 0
        whole = tmp_path / f"whole-{version}"
        shutil.copytree(store, whole)
        for part in ("consumequeue", "index", "checkpoint"):
            shutil.move(tmp_path / version / part, whole / part)
        summary = local_verify(whole, broker_version=version)
        assert (summary.exit, summary.findings, summary.error) == (0, [], None)
        assert "index: files without an item: their slots and items are not known" in summary.notes
        assert "give --hash-slots and --index-items as in broker.conf" in refusal(whole, "--cq-file-size", "400")
