"""A build beside other files of the store: sizes that nobody named are compared with what lies there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building.options import BuildSettings, parse_settings
from rocketmq_reindex.jobs.building.store_signs import Sizes, look_at_sizes
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.store import fitting
from rocketmq_reindex.storage_format.errors import InputError
from tests.golden.stores import read_files
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

pytestmark = pytest.mark.usefixtures("inline_local")

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
        look_at_sizes(settings(store, *words))
    return str(caught.value)


def told(store: Path, *words: str) -> Sizes:
    return look_at_sizes(settings(store, *words))


def test_sizes_left_out_are_taken_from_the_files(store: Path, tmp_path: Path) -> None:
    """The same bytes as with the sizes named, and a line on each that was taken."""
    summary = local_build(store, tmp_path / "out")
    assert (summary.exit, summary.warnings) == (0, [])
    assert summary.notes == [
        f"consumequeue: files of {CQ:,} bytes, taken from the files",
        f"index: {SLOTS:,} slots and {ITEMS:,} items a file, taken from the files",
        (
            "version: 5.5, taken from the files (logicsPhysicalOffset in the checkpoint, confirmPhyOffset in the checkpoint): "
            "--broker-version names another"
        ),
    ]
    assert "\nnote     consumequeue: files of" in summary.to_text()
    named = frozenset(["broker_version"])
    assert local_build(store, tmp_path / "named", named=named, **SMALL).notes == []
    assert read_files(tmp_path / "out") == read_files(tmp_path / "named")
    assert told(store, "--only", "index,checkpoint").taken == {"hash_slots": SLOTS, "index_items": ITEMS}
    assert told(store, "--only", "checkpoint") == Sizes()
    assert told(store, "--cq-file-size", str(CQ)).taken == {"hash_slots": SLOTS, "index_items": ITEMS}


def test_a_dry_run_tells_what_it_takes(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(store), "--out", str(tmp_path / "out"), "--dry-run", "--engine", "local"]) == 0
    assert f"note     consumequeue: files of {CQ:,} bytes, taken from the files" in (told := capsys.readouterr().out)
    assert main(["build", str(store), "--out", str(tmp_path / "out"), "--dry-run", "--engine", "local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"] == told.splitlines()
    assert "plan" not in json.loads(local_build(store, tmp_path / "out").to_json())


def test_one_file_alone_may_be_torn(store: Path, tmp_path: Path) -> None:
    """Then nothing is built, and the refusal names the options."""
    keep = min((store / "consumequeue").glob("*/*/*"))
    for path in (store / "consumequeue").glob("*/*/*"):
        if path != keep:
            path.unlink()
    keep.write_bytes(keep.read_bytes()[:40])
    assert "has files of 40 bytes, a build makes files of 6,000,000: give --cq-file-size 40" in refusal(store)
    assert local_build(store, tmp_path / "out").error == refusal(store)
    assert not (tmp_path / "out").exists()


def test_refused_before_spark_starts(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each look is taken once: what a dry run warns of, it says once."""

    def start(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("rocketmq_reindex.jobs.spark.session.starting", start)
    conf = store.parent / "broker.conf"
    conf.write_text("brokerName=broker-a\n")
    words = ["build", str(store), "--out", str(store.parent / "out"), "--json", "--broker-conf", str(conf)]
    assert main(words) == 1
    assert json.loads(capsys.readouterr().out)["error"] == refusal(store, *words[5:])
    looks = list[str]()

    def look(given: BuildSettings) -> Sizes:
        looks.append(given.store)
        return Sizes(warnings=["odd sizes"])

    monkeypatch.setattr("rocketmq_reindex.jobs.building.inputs.look_at_sizes", look)
    assert main([*words, "--dry-run"]) == 0
    assert (json.loads(capsys.readouterr().out)["warnings"], looks) == (["odd sizes"], [str(store)])


def test_the_advice_is_enough(store: Path) -> None:
    conf = store.parent / "broker.conf"
    conf.write_text("brokerName=broker-a\n")
    words = ["--cq-file-size", str(CQ), "--hash-slots", str(SLOTS), "--index-items", str(ITEMS)]
    refused = refusal(store, "--broker-conf", str(conf))
    assert f"give {' '.join(words[:2])} " in refused
    # All of them at once: nobody wants to be refused a second time.
    assert f"give {' '.join(words[2:])} " in refused
    assert told(store, *words, "--broker-conf", str(conf)) == Sizes()


def test_named_sizes_win(store: Path, tmp_path: Path) -> None:
    """Also where they are the defaults, and by a broker.conf."""
    words = ["--cq-file-size", "6000000", "--hash-slots", "5000000", "--index-items", "20000000"]
    found = told(store, *words).warnings
    assert len(found) == 2
    assert "as --cq-file-size says: a broker starts on files of its own setting alone" in found[0]
    assert "as --hash-slots 5000000 --index-items 20000000 says" in found[1]
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=6000000\nmaxHashSlotNum=5000000\nmaxIndexNum=20000000\n")
    assert told(store, "--broker-conf", str(conf)).warnings == found


def test_a_broker_conf_without_sizes_means_defaults(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=broker-a\n")
    assert "give --cq-file-size" in refusal(store, "--broker-conf", str(conf))


def test_the_store_around_a_commitlog(store: Path) -> None:
    words = ["--commitlog", str(store / "commitlog"), "--out", str(store.parent / "out")]
    assert look_at_sizes(parse_settings(words)).taken["cq_file_size"] == CQ


@pytest.mark.parametrize("size", [0, CQ - 7, CQ + 20])
def test_mixed_sizes_are_told(store: Path, size: int) -> None:
    queue = next(path for path in (store / "consumequeue/T0").iterdir())
    last = max(queue.iterdir())
    last.write_bytes(bytes(size))
    for words in ((), ("--cq-file-size", str(CQ))):
        (warning,) = told(store, "--only", "consumequeue", *words).warnings
        assert f"beside files of {CQ:,} bytes has others ({size:,} bytes): --cq-file-size is {CQ}" in warning


def test_fetch_tells_of_a_build_of_other_sizes(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of a copy of the log alone, where nothing else says what sizes the broker has."""
    copy = tmp_path / "copy"
    shutil.copytree(store / "commitlog", copy / "commitlog")
    for name, sizes, wanted in (("same", SMALL, 0), ("other", {"cq_file_size": 2 * CQ, "hash_slots": 9, "index_items": 90}, 2)):
        assert local_build(copy, tmp_path / name, **sizes).exit == 0
        by_api = rr.fetch(tmp_path / name, to=store, dry_run=True).warnings
        assert fetch([str(tmp_path / name), "--to", str(store), "--json"]) == 0
        shown = capsys.readouterr()
        warnings = json.loads(shown.out)["warnings"]
        assert shown.err.splitlines() == [f"warning: {warning}" for warning in warnings]
        assert (len(warnings), by_api) == (wanted, warnings)
    assert f"consumequeue: had files of {CQ:,} bytes, the build has files of {2 * CQ:,}: a broker starts on" in warnings[0]
    assert f"index: had files of {40 + 4 * SLOTS + 20 * ITEMS:,} bytes, the build has files of 1,876: " in warnings[1]


def test_nothing_to_compare_with(store: Path) -> None:
    """No derived files, or none whose size says anything."""
    for path in (*(store / "consumequeue").glob("*/*/*"), *(store / "index").iterdir()):
        path.write_bytes(b"torn file")
    defaults = ["ConsumeQueue files of 300,000 units", "IndexFiles of 5,000,000 slots and 20,000,000 items"]
    assert told(store) == Sizes(defaults=defaults)
    shutil.rmtree(store / "index")
    assert told(store) == Sizes(defaults=defaults)
    shutil.rmtree(store / "consumequeue")
    assert told(store) == Sizes(defaults=defaults)


def test_few_files_are_looked_at(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketmq_reindex import files

    for number in range(300):
        for queue in range(4):
            shutil.copytree(store / "consumequeue/T0/0", store / f"consumequeue/more-{number}/{queue}")
    listed = list[str]()
    listing = files.listing

    def counted(place: str) -> list[files.Entry]:
        listed.append(place)
        return listing(place)

    monkeypatch.setattr(files, "listing", counted)
    assert told(store).taken["cq_file_size"] == CQ
    assert len(listed) <= 1 + 20 * 3 + 2
    listed.clear()
    monkeypatch.setattr(fitting, "LOOKED_AT", fitting.LOOKED_AT_REMOTE)
    assert told(store).taken["cq_file_size"] == CQ
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
