"""What ``query`` and ``inspect`` show people: ids, keys and offsets on one line, in a pipe and on a terminal of any width."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.querying import shown as tables
from tests.tools.encode import EPOCH, Message
from tests.unit.jobs.querying.test_query import SIZES, make

TOPIC = "a-topic-with-a-name-of-its-own-that-is-long-enough-to-be-broken-anywhere"
KEYS = [f"order-2026-11-22-{number:04d}" for number in range(9)]
UNIQUE = ["7F0000010AB818B4AAC22A3B5C6D0000", "7F0000010AB818B4AAC22A3B5C6D0001"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two messages with everything that is long, and one of CJK letters."""
    messages = [
        Message(
            topic=TOPIC, body=b"a body of words " * 20, store_timestamp=EPOCH + 1000 * k,
            properties={"UNIQ_KEY": unique, "KEYS": " ".join(KEYS), "TAGS": "TagA", "note": "n" * 200},
        )
        for k, unique in enumerate(UNIQUE)
    ]  # fmt: skip
    make(tmp_path, [*messages, Message(topic="主题", body="消息".encode(), properties={"KEYS": f"{KEYS[0]} 钥匙"})], **SIZES)
    return tmp_path


def files_of(store: Path) -> list[str]:
    return [str(path) for path in sorted(store.rglob("*")) if path.is_file() and path.suffix != ".json"]


def on_terminal(width: int, *words: str) -> list[str]:
    """The lines that a command prints on a real (pseudo) terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "rocketmq_reindex", *words]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # Linux says so that the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(ours)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("columns", ["80", "", "0"])
def test_in_a_pipe_a_row_is_a_line(
    columns: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["query", str(store), "--topic", TOPIC, "--key", KEYS[0]]) == 0
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert set(rule) == {"-", " "}
    assert head.split() == ["physicalOffset", "topic/queue/offset", "storeTime", "uniqueKey", "keys", "tags", "body"]
    assert len(rows) == 2
    for number, row in enumerate(rows):
        assert {f"{TOPIC}/0/{number}", UNIQUE[number], KEYS[0], KEYS[1]} <= set(row.split())
        assert " ... (7 more)" in row, "half a key finds nothing"
        assert row.index(UNIQUE[number]) == head.index("uniqueKey")


def test_no_line_of_a_pipe_ends_with_blanks(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["query", str(store), "--topic", TOPIC, "--key", KEYS[0]],
        ["query", str(store), "--physical", "0"],
        ["query", str(store), "--topic", TOPIC, "--queue", "0", "--offset", "0", "--max", "2", "--body", "none"],
        ["inspect", *files_of(store)],
    ):
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 3
        assert [line for line in lines if line != line.rstrip()] == []


def test_a_message_is_a_line_a_field(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However long: on a terminal, which breaks it by itself, it is one line to copy."""
    assert main(["query", str(store), "--id", UNIQUE[0]]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert (shown["topic"], shown["uniqueKey"], shown["keys"]) == (TOPIC, UNIQUE[0], " ".join(KEYS))
    assert shown["note"] == "n" * 200
    assert lines == on_terminal(80, "query", str(store), "--id", UNIQUE[0])


def test_on_a_terminal_too_narrow_for_the_table(store: Path) -> None:
    words = ["query", str(store), "--topic", TOPIC, "--key", KEYS[0]]
    lines = on_terminal(80, *words)
    assert lines.count("") == 1
    for number, unique in enumerate(UNIQUE):
        shown = dict(line.split(maxsplit=1) for line in lines[8 * number : 8 * number + 7])
        assert (shown["topic/queue/offset"], shown["uniqueKey"]) == (f"{TOPIC}/0/{number}", unique)
        assert shown["body"].startswith("a body of words")
    wide = on_terminal(300, *words)
    assert (len(wide), wide[0].split()[0]) == (4, "physicalOffset")


@pytest.mark.parametrize("width", [20, 80, 100, 300])
def test_inspect_on_a_terminal(
    width: int, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: width)
    assert main(["inspect", str(store / "commitlog" / f"{0:020d}")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(TOPIC in line.split() for line in lines) == 1
    assert sum("2023-11-14T22:13:21.000Z" in line.split() for line in lines) == 2  # the segment's last time, and the topic's
    if width == 300:
        at = next(number for number, line in enumerate(lines) if line.startswith("topic "))
        columns = [lines[at].index(name) for name in ("records", "bytes", "firstStoreTime", "lastStoreTime")]
        (row,) = (line for line in lines if line.startswith(TOPIC))
        assert row[columns[2] :].startswith("2023-")
        assert row[columns[3] :].startswith("2023-")


def test_only_the_body_gives_way() -> None:
    rows = [{"offset": number, "id": "x" * 20, "body": "words " * 6} for number in (5, 600)]
    for width, lines in ((80, 4), (50, 4), (40, 7), (10, 7)):
        shown = tables.row_lines(rows, "body", width)
        assert len(shown) == lines, width
        assert width <= 30 or max(map(len, shown)) <= width
        assert sum("x" * 20 in line.split() for line in shown) == 2
        assert ("..." in shown[2]) == (width != 80)


def test_wide_letters_stand_in_their_columns() -> None:
    shown = tables.row_lines([{"topic": "主题", "n": 5}, {"topic": "e\u0301", "n": 12}, {"topic": "abcdef", "n": 7}])
    assert shown == ["topic    n", "------  --", "主题     5", "e\u0301       12", "abcdef   7"]
