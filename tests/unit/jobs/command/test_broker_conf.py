"""A broker's properties file, as ``java.util.Properties`` reads it and ``MessageStoreConfig`` means it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command.broker_conf import check_names, read_conf, read_properties, settings_of
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.showing import escape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc:3\nd 4\ne\t=\t5\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("# a=1\n  ! b=2\n\n\t\n c=3", {"c": "3"}),
        ("a=1\ra=2\r\na=3", {"a": "3"}),
        ("a\na2=\n=x", {"a": "", "a2": "", "": "x"}),
        ("a = = b", {"a": "= b"}),
        ("a=1 \nb=x\x0by\u2028z", {"a": "1 ", "b": "x\x0by\u2028z"}),
        # Lines go on after an odd number of backslashes, without the blanks they begin with; a # is then no comment.
        ("a=1,\\\n   2,\\\n\t# 3\nb=4", {"a": "1,2,# 3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("# no comment goes on \\\na=1", {"a": "1"}),
        # The last line counts, too.
        ("a=1\nb=2\\", {"a": "1", "b": "2"}),
        ("a=1\nb=2\\\n", {"a": "1", "b": "2"}),
        ("a=1\nb=2,\\\n3\\", {"a": "1", "b": "2,3"}),
        ("\\", {}),
        ("a\\ b\\:c\\=d=\\t\\u0041\\q\\\\", {"a b:c=d": "\tAq\\"}),
    ],
)
def test_lines(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


def test_what_a_build_takes() -> None:
    conf = """
        brokerName = a
        storePathRootDir = /data/store
        storePathCommitLog = /one/commitlog, /two/commitlog,
        mappedFileSizeCommitLog = 4096
        mappedFileSizeConsumeQueue = 5999990
        mapperFileSizeBatchConsumeQueue = 460
        maxHashSlotNum = 7
        maxIndexNum = +9
        messageDelayLevel = 1s 2m
        enableLmq = TRUE
        enableMultiDispatch = true
        fileReservedTime = 48
    """
    assert settings_of(conf, "conf") == {
        "store": "/data/store",
        "commitlogs": ("/one/commitlog", "/two/commitlog"),
        "segment_size": 4096,
        # MessageStoreConfig rounds up to whole units; of batch queues it does not.
        "cq_file_size": 6_000_000,
        "batch_cq_file_size": 460,
        "hash_slots": 7,
        "index_items": 9,
        "delay_levels": "1s 2m",
        "lmq": True,
        "file_reserved_hours": 48,
    }
    assert settings_of("enableLmq=true\nstorePathRootDir=\n", "conf") == {}
    assert settings_of("storePathCommitLog= , ,\n", "conf") == {}, "no folder is named"


@pytest.mark.parametrize(
    ("value", "taken"), [(-1, 100), (99, 100), (199, 100), (300, 200), (500, 500), (999, 500), (1000, 1000), (2000, 1000)]
)
def test_a_timer_precision_that_a_broker_rounds_down(value: int, taken: int) -> None:
    """``MessageStoreConfig.setTimerPrecisionMs``."""
    assert settings_of(f"timerPrecisionMs={value}", "conf") == {"timer_precision": taken}


@pytest.mark.parametrize("value", ["", "many", "1.5", "1_000", "0x10", "\u0663", "9" * 30, "1\x1b[31m"])
def test_a_number_that_is_none(value: str) -> None:
    with pytest.raises(UsageError, match=r"/etc/broker\.conf: maxIndexNum is .*, not a number") as caught:
        settings_of(f"maxIndexNum={value}", "/etc/broker.conf")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["", "# brokerName=a\n", "spark.master local\nx\x1b=1\n", "mappedFileSizeConsumeQueu=1\n"])
def test_a_file_of_no_broker_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--broker-conf a.conf: holds no setting of a broker ") as refused:
        check_names(text, "a.conf")
    assert "\x1b" not in str(refused.value)
    assert ("is mappedFileSizeConsumeQueue meant?" in str(refused.value)) == text.startswith("mapped")


@pytest.mark.parametrize(
    "data", [gzip.compress(b"brokerName=a", mtime=0), "brokerName=a\n".encode("utf-16"), bytes(range(256))]
)
def test_a_file_that_is_no_text_is_refused_in_few_words(data: bytes, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_conf(str(conf))
    said = f"--broker-conf {conf}: is not a broker.conf: it holds bytes that are no text: name its properties file"
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("big", "has 67,108,865 bytes where at most 67,108,864 are read: look at what lies there"),
        ("{here}/big", "has 67,108,865 bytes where at most 67,108,864 are read: look at what lies there"),
        ("big\x1b", "has 67,108,865 bytes where at most 67,108,864 are read: look at what lies there"),
        (
            "file://{here}/no\x1bsuch",
            "Failed to open local file '{here}/no\\x1bsuch'. Detail: [errno 2] No such file or directory",
        ),
        ("n" * 300, "File name too long"),
        ("file://{here}", "it is a folder"),
        ("zzz://a/b", "is a URI of an unknown kind: take "),
    ],
)
def test_why_it_cannot_be_read(name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with the file named once."""
    monkeypatch.chdir(tmp_path)
    for big in ("big", "big\x1b"):
        with open(big, "wb") as file:
            file.truncate(files.CONFIG_MAX + 1)
    path = name.format(here=tmp_path)
    with pytest.raises(UsageError) as refused:
        read_conf(path)
    assert str(refused.value).startswith(f"--broker-conf {escape(path)}: cannot be read ({reason.format(here=tmp_path)}")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("text", ["brokerName=a\t\f\r\n", "# Gr\xf6\xdfe\nbrokerName=a\n"])
def test_a_text_of_another_encoding_is_taken(text: str, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(text.encode("latin-1"))
    assert read_conf(str(conf))[1] == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mappedfilesizecommitlog", "mappedFileSizeCommitLog"), ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
        ("maxIndexNums", "maxIndexNum"), ("storePathCommitlog", "storePathCommitLog"),
    ],
)  # fmt: skip
def test_a_name_that_looks_misspelt_is_noted(name: str, meant: str) -> None:
    """A broker passes over such a setting, and so do the commands: but they say it."""
    (note,) = check_names(f"brokerName=a\n{name}=7\n", "a.conf")
    assert note == f"a.conf: has {name}: is {meant} meant? A broker passes over it"


def test_names_that_are_right_are_not() -> None:
    names = (
        "mappedFileSizeConsumeQueueExt",
        "maxHashSlotNum",
        "maxMessageSize",
        "enableDLegerCommitLog",
        "diskMaxUsedSpaceRatio",
    )
    assert check_names("".join(f"{name}=1\n" for name in names), "a.conf") == ()
    assert check_names("messageIndexEnable=1\n", "a.conf", ["messageIndexEnable"]) == ()
