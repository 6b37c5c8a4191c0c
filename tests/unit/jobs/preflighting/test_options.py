"""Options of preflight, and what a broker.conf says of a start."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.preflighting.options import parse_preflight
from rocketmq_reindex.storage_format.broker_start.store import StartSettings
from rocketmq_reindex.storage_format.errors import InputError, ReindexError, UsageError
from rocketmq_reindex.storage_format.versions import LATEST, RELEASES


def test_a_line_stands_for_its_newest_release() -> None:
    assert LATEST == {"5.5": "5.5.1", "5.4": "5.4.0", "5.3": "5.3.4", "4.9": "4.9.8"}
    assert parse_preflight(["store"]).release == "5.5.1"
    assert parse_preflight(["store", "--broker-version", "5.3"]).release == "5.3.4"
    for release in RELEASES:
        assert parse_preflight(["store", "--broker-version", release]).release == release


def test_the_other_case() -> None:
    assert parse_preflight(["s"]).abort is None
    assert parse_preflight(["s", "--abort", "yes"]).abort is True
    assert parse_preflight(["s", "--abort", "no"]).abort is False


@pytest.mark.parametrize(("words", "text"), [
    ([], "name a STORE"),
    (["s3://bucket/store"], "s3://bucket/store: is a URI"),
    (["s", "--commitlog", "hdfs://h/x"], "is a URI"),
    (["s", "--commitlog", ""], "--commitlog: is empty"),
    (["s", "--broker-version", "5.6"], "5.6 is not known: take one of 5.5, 5.4, 5.3, 4.9, or a release of 4.x to 5.5.x"),
        (["s", "--broker-version", "newest"], "is no release such as 5.3.3"),
    (["s", "--abort", "maybe"], "invalid choice"),
    (["s", "--cq-file-size", "30"], "--cq-file-size 30: take a multiple of 20"),
    (["s", "--batch-cq-file-size", "40"], "--batch-cq-file-size 40: take a multiple of 46"),
    (["s", "--segment-size", "0"], "--segment-size 0: take a number of bytes above 0"),
    (["s", "--segment-size", str(2**31)], "below 2 GiB"),
    (["s", "--hash-slots", "3"], "go together"),
    (["s", "--hash-slots", "0", "--index-items", "5"], "at least 1 slot"),
    (["s", "--count-limit", "-1"], "take a number of bytes from 0 on"),
    (["s", "--broker-conf", "/no/such"], "cannot be read"),
])  # fmt: skip
def test_wrong_usage(words: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text.replace("(", r"\(")):
        parse_preflight(words)


def conf(folder: Path, text: str) -> list[str]:
    (folder / "broker.conf").write_text(text)
    return ["--broker-conf", str(folder / "broker.conf")]


def test_settings_of_a_broker_conf(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    text = (
        f"storePathRootDir=/data/store\nstorePathCommitLog = {tmp_path}/a,/b\n"
        "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=410\n"
        "maxHashSlotNum=5\nmaxIndexNum=9\ncommitLogRecoverMaxNum=14\ncheckCRCOnRecover=false\nenableAcceleratedRecovery=TRUE\n"
        "enableLmq=true\nenableMultiDispatch=true\nmessageIndexSafe=true\nmessageIndexEnable=no\nmessageDelayLevel=1s 2s\n"
        "timerWheelEnable=false\nmappedFileSizeTimerLog=520\nstoreType=default\nbrokerRole=SLAVE\nstorePathIndex=/x\n"
    )
    found = parse_preflight(conf(tmp_path, text))
    broker = found.broker
    assert (found.store, found.roots) == ("/data/store", (f"{tmp_path}/a", "/b"))
    assert (broker.segment_size, broker.cq_file_size, broker.batch_cq_file_size) == (4096, 420, None)
    assert (broker.hash_slots, broker.index_items, broker.timer_log_size) == (5, 9, 520)
    assert (broker.timer_wheel, broker.simple_queues, broker.delay_levels) == (False, True, "1s 2s")
    assert broker.start == {
        "recover_max_segments": 14, "check_crc": False, "accelerated": True, "message_index": False,
        "message_index_safe": True, "lmq": True,
    }  # fmt: skip
    assert broker.start.keys() <= {field.name for field in dataclasses.fields(StartSettings)}
    assert len(broker.notes) == 2


def test_the_other_size_of_an_index_file_is_the_default(tmp_path: Path) -> None:
    """A broker.conf that has one of them is right: such a broker takes its default for the other."""
    found = parse_preflight(["s", *conf(tmp_path, "maxHashSlotNum=5\n")]).broker
    assert (found.hash_slots, found.index_items) == (5, 20_000_000)
    found = parse_preflight(["s", "--hash-slots", "6", *conf(tmp_path, "maxIndexNum=9\n")]).broker
    assert (found.hash_slots, found.index_items) == (6, 9)
    with pytest.raises(UsageError, match=r"/broker\.conf: maxIndexNum is 1 and the default of --hash-slots is 5000000: take"):
        parse_preflight(["s", *conf(tmp_path, "maxIndexNum=1\n")])
    with pytest.raises(UsageError, match=r"/broker\.conf: maxIndexNum is 1, --hash-slots 5: take"):
        parse_preflight(["s", "--hash-slots", "5", *conf(tmp_path, "maxIndexNum=1\n")])


def test_options_win(tmp_path: Path) -> None:
    words = conf(tmp_path, "storePathRootDir=/data/store\nstorePathCommitLog=/a\nmappedFileSizeConsumeQueue=400\n")
    found = parse_preflight(["mine", "--cq-file-size", "800", *words])
    assert (found.store, found.roots) == (str(Path.cwd() / "mine"), (str(Path.cwd() / "mine" / "commitlog"),))
    assert found.broker.cq_file_size == 800


@pytest.mark.parametrize(("text", "kind", "said"), [
    ("commitLogRecoverMaxNum=ten", UsageError, "commitLogRecoverMaxNum is ten, not a number"),
    ("mappedFileSizeTimerLog=\\u0007", UsageError, r"is \x07, not a number"),
    ("enableControllerMode=true\nenableDLegerCommitLog=true", InputError, "has enableControllerMode=true: preflight does not"),
    ("storeType=defaultRocksDB\nenableControllerMode=true", InputError, "enableControllerMode=true: preflight does not know"),
    ("storeType=defaultRocksDB\nenableLmq=true", InputError, "storeType=defaultRocksDB, enableLmq=true: preflight does not"),
    ("storeType=default;defaultRocksDB", InputError, "preflight does not know"),
    ("rocksdbCQDoubleWriteEnable=true\nstoreType=defaultRocksDB", InputError, "preflight does not know"),
    ("rocksdbCQDoubleWriteEnable=true\ncombineCQPreferCQType=other", InputError, "combineCQPreferCQType=other: preflight does"),
    ("rocksdbCQDoubleWriteEnable=true\nrocksdbCQSelectiveDoubleWriteEnable=true", InputError, "preflight does not know"),
    ("readOnlyCommitLogStorePaths=/ro", InputError, "preflight does not know"),
])  # fmt: skip
def test_brokers_that_preflight_does_not_know(text: str, kind: type[ReindexError], said: str, tmp_path: Path) -> None:
    with pytest.raises(kind) as raised:
        parse_preflight(["s", *conf(tmp_path, text)])
    assert said in str(raised.value)


@pytest.mark.parametrize(("text", "is_node"), [("enableDLegerCommitLog=true", True), ("brokerName=b", False)])
def test_a_conf_says_whether_dledger_has_the_log(text: str, is_node: bool, tmp_path: Path) -> None:
    assert parse_preflight(["s", *conf(tmp_path, text)]).broker.dledger is is_node
    assert parse_preflight(["s"]).broker.dledger is None


def test_switches_that_are_off_are_followed(tmp_path: Path) -> None:
    parse_preflight(["s", *conf(tmp_path, "enableDLegerCommitLog=false\nreadOnlyCommitLogStorePaths=\nstoreType=default")])


def test_light_queues_need_both_switches(tmp_path: Path) -> None:
    found = parse_preflight(conf(tmp_path, f"storePathRootDir={tmp_path}\nenableMultiDispatch=true\n")).broker
    assert found.start["lmq"] is False
    assert any("enableMultiDispatch is on without enableLmq" in note for note in found.notes)


def test_a_log_elsewhere_is_told_of(tmp_path: Path) -> None:
    log = tmp_path / "log\x1b" / "a"
    log.mkdir(parents=True)
    words = conf(tmp_path, f"storePathRootDir=/data/store\nstorePathCommitLog={log}\n")
    assert parse_preflight(words).roots == (str(log),)
    assert parse_preflight(words).broker.notes == ()
    given = parse_preflight(["/data/store", *words])
    assert given.roots == ("/data/store/commitlog",)
    (note,) = given.broker.notes
    assert note.isprintable()
    assert "storePathCommitLog=" in note
    assert parse_preflight(["/data/store", "--commitlog", "/b", *words]).broker.notes == ()
    usual = conf(tmp_path, "storePathCommitLog=/data/store/commitlog\n")
    assert parse_preflight(["/data/store", *usual]).broker.notes == ()


@pytest.mark.parametrize(
    ("named", "release"), [("5.1.4", "5.3.3"), ("5.3.0", "5.3.3"), ("5.3.9", "5.3.4"), ("4.7", "4.9.8"), ("5.5.3", "5.5.1")]
)
def test_a_release_whose_start_is_not_known_has_another_of_its_line(named: str, release: str) -> None:
    settings = parse_preflight(["s", "--broker-version", named])
    assert (settings.release, settings.stands_for_another) == (release, True)


@pytest.mark.parametrize(("named", "release"), [("5.3", "5.3.4"), ("5.3.3", "5.3.3"), ("5.5", "5.5.1")])
def test_one_that_is_known_stands_for_itself(named: str, release: str) -> None:
    settings = parse_preflight(["s", "--broker-version", named])
    assert (settings.release, settings.stands_for_another) == (release, False)
