"""``info``: what is in a store, what is missing or stale, and a next command that leads to the end."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.udfs.times import show_time
from tests.golden.stores import NAMES, GoldenStore, index_in_order, read_files, unpack
from tests.reference.log import read_segments, walk
from tests.reference.settings import Settings
from tests.tools import spoil
from tests.tools.encode import EPOCH
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

pytestmark = pytest.mark.usefixtures("inline_local")

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
"""as a broker holds it"""


@pytest.fixture
def golden(tmp_path: Path) -> GoldenStore:
    return unpack("basic-5.3", tmp_path)


def info(store: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    status = main(["info", str(store), "--json", *words])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["exit"] == status
    return found


def followed(found: dict[str, Any], golden: GoldenStore | None = None) -> list[str]:
    """Run what is advised, on the engine that is at hand. Returns the words of the first command.

    ``golden`` is the store whose settings take the place of the placeholders.
    """
    commands = [shlex.split(command) for command in found["next"]["commands"]]
    for program, *words in commands:
        assert program == "rmq-reindex"
        if golden is not None:
            filled = {"BROKER_CONF": str(broker_conf(golden)), "VERSION": golden.broker_version}
            words = [filled.get(word, word) for word in words]
        assert main([*words, *(["--engine", "local"] if words[0] == "build" else [])]) == 0
    return commands[0]


def without_count(files: list[bytes]) -> list[bytes]:
    """--checkpoint safe makes the last IndexFile full by its indexCount, the end of the header: a broker begins a new one."""
    return [data[:36] + data[40:] for data in files]


def queues(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path.startswith("consumequeue/")}


def broker_conf(golden: GoldenStore) -> Path:
    place, sizes = golden.path.parent / "broker.conf", golden.sizes()
    place.write_text(
        f"mappedFileSizeConsumeQueue={sizes['cq_file_size']}\nmaxHashSlotNum={sizes['hash_slots']}\n"
        f"maxIndexNum={sizes['index_items']}\nmapperFileSizeBatchConsumeQueue=460\n"
    )
    return place


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_store(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every number is that of the files, and nothing is written."""
    golden = unpack(name, tmp_path)
    before = sorted((path, path.lstat().st_mtime_ns) for path in golden.path.rglob("*"))
    found = info(golden.path, capsys)
    assert (found["exit"], found["error"], found["problems"], found["broker"]) == (0, None, [], None)
    assert 0 < found["queues"] == found["queues_looked_into"] == len(list((golden.path / "consumequeue").glob("*/*")))
    assert found["messages"] == sum(one["messages"] for one in found["topics"]) > 1000
    assert found["sizes"] == golden.sizes()
    assert golden.broker_version in found["fits"]["versions"]
    *_, last = walk(*read_segments([golden.path / "commitlog"], None), Settings()).records
    assert found["log"]["end_offset"] == last.offset + last.size
    assert sorted((path, path.lstat().st_mtime_ns) for path in golden.path.rglob("*")) == before


def test_the_log_ends_before_its_queues(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The disk of its last segment is not mounted, or the segment is lost: nothing in the log itself says so."""
    end = info(golden.path, capsys)["log"]["end_offset"]
    max((golden.path / "commitlog").iterdir()).unlink()
    last = max((golden.path / "commitlog").iterdir())
    found = info(golden.path, capsys)
    told = f"consumequeue: has units up to {end} behind the log's end at {int(last.name) + last.stat().st_size}: look first"
    assert [text[: len(told)] for text in found["problems"]] == [told]
    assert found["next"]["why"] == "this says what the next start of the broker does"


def test_a_log_that_lacks_messages_of_batch_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder that is named is the one in which the units stand, in info and in preflight."""
    store = unpack("batch-5.3", tmp_path)
    for part in ("consumequeue", "batchconsumequeue", "index", "checkpoint"):
        shutil.move(store.path / "rebuilt" / part, store.path / part)
    max((store.path / "commitlog").iterdir()).unlink()
    behind = [text.partition(" units")[0] for text in info(store.path, capsys)["problems"] if "behind the log's end" in text]
    assert behind == ["batchconsumequeue: has"]
    main(["preflight", str(store.path), "--broker-version", "5.3", "--json"])
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert [note.partition(" units")[0] for note in notes if "which the start cuts" in note] == [
        "consumequeue: has 9",
        "batchconsumequeue: has 19",
    ]


def test_a_damaged_last_record_is_no_segment_that_is_missing(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    spoil.bad_magic(golden.path, -1)
    assert not [text for text in info(golden.path, capsys)["problems"] if "look first for" in text]


CONF, VERSION = ["--broker-conf", "BROKER_CONF"], ["--broker-version", "VERSION"]
DRAFTS = ["--write-topics", "--write-delay"]


@pytest.mark.parametrize(
    ("lost", "asked"),
    [
        ("checkpoint", []),
        ("consumequeue", CONF),
        # By its checkpoint the store is of 5.4, 5.3 or 4.9: these have another index.
        ("index", [*CONF, *VERSION]),
        ("consumequeue index", [*CONF, *VERSION]),
        ("consumequeue index checkpoint", [*CONF, *VERSION]),
        ("consumequeue index checkpoint config", [*CONF, *VERSION, *DRAFTS]),
    ],
)
def test_the_advice_is_enough(golden: GoldenStore, lost: str, asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Its placeholders stand for what no file shows, so what it makes has the sizes and the version of the broker."""
    before, own = info(golden.path, capsys), golden.rebuilt()
    for part in lost.split():
        place = golden.path / part
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    found = info(golden.path, capsys)
    assert found["problems"]
    assert all(any(text.startswith(part) for text in found["problems"]) for part in lost.split() if part != "config")
    words = followed(found, golden)
    assert [word for word in words if word in {*CONF, *VERSION, *DRAFTS}] == asked
    assert [place in found["next"]["why"] for place in ("BROKER_CONF", "VERSION")] == [
        place in asked for place in ("BROKER_CONF", "VERSION")
    ]
    after = info(golden.path, capsys)
    assert (after["problems"], after["sizes"], after["fits"]["versions"][0]) == ([], before["sizes"], "5.3")
    # The real broker's own rebuild needs no model of ours.
    made = read_files(golden.path)
    assert without_count(index_in_order(made)) == without_count(index_in_order(own))
    assert queues(made) == queues(own)
    assert main(["verify", str(golden.path), "--engine", "local"]) == 0


def test_a_config_that_is_there_is_not_drafted(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(golden.path / "consumequeue")
    assert "--write" not in info(golden.path, capsys)["next"]["commands"][0]
    (golden.path / "config" / "topics.json").unlink()
    assert info(golden.path, capsys)["next"]["commands"][0].endswith(" --write-topics --write-delay")


def test_a_repair_of_what_no_file_shows(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    sorted((golden.path / "commitlog").iterdir())[1].unlink()
    shutil.rmtree(golden.path / "index")
    (command,) = info(golden.path, capsys)["next"]["commands"]
    assert command.endswith("--replica REPLICA --broker-conf BROKER_CONF --broker-version VERSION")


@pytest.mark.parametrize("lost", ["batchconsumequeue", "all"])
def test_lost_batch_queues(lost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their topics are in config/topics.json alone, and no other file shows the size of their files."""
    store = unpack("batch-5.3", tmp_path)
    for part in ("consumequeue", "batchconsumequeue", "index", "checkpoint"):
        shutil.move(store.path / "rebuilt" / part, store.path / part)
    assert not any("batch" in problem for problem in info(store.path, capsys)["problems"])
    for part in ("consumequeue", "batchconsumequeue") if lost == "all" else (lost,):
        shutil.rmtree(store.path / part)
    found = info(store.path, capsys)
    assert "batchconsumequeue/: no queue has a file, and the log has records of batch topics" in found["problems"]
    words = followed(found, store)
    assert words[words.index("--topics-config") + 1] == str(store.path / "config" / "topics.json")
    assert "--broker-conf" in words
    sizes = {path.stat().st_size for path in (store.path / "batchconsumequeue").rglob("*") if path.is_file()}
    assert sizes == {460}
    assert not any("batch" in problem for problem in info(store.path, capsys)["problems"])


def test_a_second_advice_names_another_place(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """One that info gave first, then one of preflight, are followed one behind the other."""
    shutil.rmtree(golden.path / "index")
    first = followed(info(golden.path, capsys), golden)
    (golden.path / "index").rename(golden.path.parent / "kept")
    capsys.readouterr()
    assert main(["preflight", str(golden.path), "--broker-version", "5.3", "--json"]) == 4
    command = next(loss for loss in json.loads(capsys.readouterr().out)["losses"] if "missing" in loss["kind"])["commands"][0]
    build, fetch = (shlex.split(one) for one in command.split(" && "))
    assert (first[4], build[4]) == (f"{golden.path}.rebuilt", f"{golden.path}.rebuilt-2")
    assert main([*build[1:], "--hash-slots", "500", "--index-items", "1500", "--engine", "local"]) == 0
    assert main(fetch[1:]) == 0
    assert info(golden.path, capsys)["problems"] == []


def test_here_is_a_store(golden: GoldenStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is built lies beside it, not in it."""
    shutil.rmtree(golden.path / "index")
    monkeypatch.chdir(golden.path)
    followed(info(Path(), capsys), golden)
    assert (golden.path.parent / f"{golden.path.name}.rebuilt").is_dir()


def test_records_behind_the_last_unit(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Every queue is cut: so many records lack a unit."""
    for path in (golden.path / "consumequeue").glob("*/*/*"):
        data = path.read_bytes()
        units = len(data.rstrip(b"\0")) // 20
        if path == max(path.parent.iterdir()):
            path.write_bytes(data[: max(0, units - 3) * 20] + bytes(20 * min(units, 3)) + data[units * 20 :])
    found = info(golden.path, capsys)
    (problem,) = found["problems"]
    assert problem.startswith("consumequeue/: its last unit is of the record that ends at ")
    assert "--broker-conf" not in followed(found)
    assert info(golden.path, capsys)["problems"] == []


def test_the_newest_index_file_is_lost(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    newest = max((golden.path / "index").iterdir())
    newest.unlink()
    found = info(golden.path, capsys)
    (problem,) = found["problems"]
    assert problem.startswith("index/: ends at offset 4055822, and the log's last record, at 4528487, has keys")
    assert found["next"]["commands"][0].startswith("rmq-reindex preflight "), "which says what to do"
    max((golden.path / "index").iterdir()).write_bytes(b"short")
    assert "index/: ends at offset" in info(golden.path, capsys)["problems"][-1], "the one before it still tells"


def test_a_sample_of_a_bare_log(golden: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(golden.path / "commitlog", bare / "commitlog")
    found = info(bare, capsys)
    assert 0 < found["sampled"] < 2500
    assert {one["topic"] for one in found["topics"]} == {one["topic"] for one in info(golden.path, capsys)["topics"]}
    assert found["log"] == info(golden.path, capsys)["log"]
    assert found["fits"] == {"versions": [], "signs": []}
    other = tmp_path / "other"
    other.mkdir()
    assert info(other, capsys, "--commitlog", str(bare / "commitlog"))["log"] == found["log"]


def test_damage_that_it_sees(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    segments = sorted((golden.path / "commitlog").iterdir())
    segments[1].unlink()
    found = info(golden.path, capsys)
    size = found["log"]["segment_size"]
    assert found["problems"][0] == f"commitlog: {size:,} bytes of the log are in no file: {size} to {2 * size}"
    assert found["next"]["commands"][0].startswith(f"rmq-reindex repair {golden.path} --out DIR --replica REPLICA")
    with segments[0].open("r+b") as file:
        file.write(b"no record")
    assert any(text.startswith(f"{segments[0]}: its first record") for text in info(golden.path, capsys)["problems"])


@pytest.mark.parametrize("number", [0, 1, 4])
def test_a_segment_with_a_wrong_name(number: int, golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A repair refuses it. Its records say its name; the advice ends with a sound store."""
    sound = info(golden.path, capsys)
    segment = sorted((golden.path / "commitlog").iterdir())[number]
    wrong = segment.rename(segment.with_name(f"{99 * sound['log']['segment_size']:020d}"))
    found = info(golden.path, capsys)
    assert any(text.startswith(f"{wrong}: ") and text.endswith(f"should be {segment.name}") for text in found["problems"])
    rename, again = map(shlex.split, found["next"]["commands"])
    assert rename == ["mv", "-n", str(wrong), str(segment)]
    subprocess.run(rename, check=True)
    assert again == ["rmq-reindex", "info", str(golden.path)]
    assert info(golden.path, capsys) | {"seconds": sound["seconds"]} == sound


def test_a_wrong_place_in_one_record_is_no_wrong_name(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    segment = min((golden.path / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(28)
        file.write((1 << 40).to_bytes(8, "big"))
    found = info(golden.path, capsys)
    assert "physical offset is not where the record lies" in found["problems"][0]
    assert " repair " in found["next"]["commands"][0]


def test_a_stray_file_is_no_damage(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told, and no repair is advised for it."""
    (golden.path / "commitlog" / "notes.txt").touch()
    found = info(golden.path, capsys)
    (problem,) = found["problems"]
    assert problem.endswith("notes.txt: is no segment: not looked at")
    assert found["next"]["commands"] == [f"rmq-reindex preflight {golden.path} --broker-version 5.3"]


def test_a_broker_that_runs(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    (golden.path / "abort").touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(golden.path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:  # fmt: skip
        assert other.stdout is not None
        other.stdout.readline()
        found = info(golden.path, capsys)
        other.kill()
    assert "a broker runs on this store" in found["broker"]
    assert (found["clean_stop"], found["next"]["commands"]) == (False, [])


def test_what_fetch_put_there(golden: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(golden.path), "--out", str(tmp_path / "built"), "--engine", "local"]) == 0
    assert main(["fetch", str(tmp_path / "built"), "--to", str(golden.path)]) == 0
    capsys.readouterr()
    found = info(golden.path, capsys)
    assert set(found["build"]["parts"]) == {"consumequeue", "index", "checkpoint"}
    assert main(["info", str(golden.path)]) == 0
    assert "build    fetched: " in capsys.readouterr().out
    assert read_files(golden.path)


@pytest.mark.parametrize("only", ["", "index,checkpoint"])
def test_a_build_in_the_place_of_a_store(
    only: str, golden: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """It has no log, and none is missing: what is advised puts it into the broker's store, which has its log."""
    built, words = tmp_path / "built", ["--only", only] if only else []
    assert main(["build", str(golden.path), "--out", str(built), "--engine", "local", *words]) == 0
    capsys.readouterr()
    assert main(["info", str(built)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "log      elsewhere: a build writes none, and the broker's store has it"
    assert not [line for line in told if line.startswith("problem") or "commitlog" in line]
    found = info(built, capsys)
    assert (found["log"]["elsewhere"], found["log"]["segments"], found["problems"]) == (True, 0, [])
    assert found["next"]["why"] == "this is what a build wrote, and no store: a fetch puts it into the broker's store (STORE)"
    (command,) = found["next"]["commands"]
    assert main([str(golden.path) if word == "STORE" else word for word in shlex.split(command)[1:]]) == 0
    assert set(info(golden.path, capsys)["build"]["parts"]) >= {"index", "checkpoint"}
    (built / "reindex.json").write_text("{}")
    found = info(built, capsys)
    assert "--commitlog" in found["next"]["commands"][0]
    assert (found["log"]["elsewhere"], "commitlog: has no segment" in found["problems"]) == (False, True)


def test_builds_as_behind_a_uri(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / f"{1:010d}-{'0' * 32}.json").write_text('{"manifest": ""}')
    found = info(tmp_path, capsys)
    assert (found["exit"], found["error"]) == (
        1,
        f"{tmp_path}: holds builds as behind a URI: `rmq-reindex fetch` lays one out on a disk",
    )


def test_a_log_of_a_tebibyte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sparse: what is read does not grow with it."""
    log, size = tmp_path / "store" / "commitlog", 1 << 30
    with LogWriter(log, size) as writer:
        put = [writer.append(Message(topic="T", body=b"x" * 100)) for _ in range(200)][-1]
    for number in range(1, 1024):
        with (log / f"{number * size:020d}").open("wb") as file:
            file.truncate(size)
    found = info(tmp_path / "store", capsys)
    assert (found["log"]["segments"], found["log"]["bytes"]) == (1024, 1 << 40)
    assert found["log"]["first_time"] is not None
    assert found["seconds"] < 60
    assert put.offset == 0 or found["log"]["end_offset"] >= 0


def test_hostile_names_and_files(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of them reaches a terminal as it is, and none of them ends the look."""
    queues = golden.path / "consumequeue"
    shutil.copytree(next(queues.iterdir()), queues / "T\x1b[2J\nerror: x")
    (queues / "TopicA" / "99999999999999999999").mkdir()
    (queues / "TopicA" / "7").symlink_to(queues)
    os.mkfifo(golden.path / "commitlog" / f"{1 << 40:020d}")
    with (golden.path / "index" / "20990101000000000").open("wb") as file:
        file.truncate(1 << 40)
    (golden.path / "checkpoint").write_bytes(b"torn")
    (golden.path / ".rmq-reindex-fetched").write_text("[" * 100_000)
    assert main(["info", str(golden.path)]) == 0
    printed = capsys.readouterr()
    assert all(line.isprintable() for line in printed.out.splitlines())
    assert printed.err == ""


@pytest.mark.parametrize("words", [["nowhere"], ["store/commitlog"], ["empty"], ["file"], ["store", "--commitlog", "nowhere"]])
def test_no_store(words: list[str], golden: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store").symlink_to(golden.path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    paths = [word if word.startswith("--") else str(tmp_path / word) for word in words]
    status = main(["info", *paths])
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert (status, printed.out) == (1, "")
    assert line.startswith(f"error: {tmp_path}")


def test_the_python_api(golden: GoldenStore) -> None:
    found = rr.info(golden.path)
    assert isinstance(found, rr.InfoResult)
    assert str(found).startswith(f"store    {golden.path}\n")
    assert "<th>messages</th><td>2,500</td>" in found._repr_html_()
    with pytest.raises(rr.InputError):
        rr.info(golden.path / "commitlog")


@pytest.fixture
def ending(tmp_path: Path) -> Path:
    """A store whose last records are all of one topic, whose queue is gone."""
    store = tmp_path / "ending"
    with LogWriter(store / "commitlog", 1 << 16) as writer:
        for k in range(40):
            topic = "Gone" if k >= 30 else "Kept"
            writer.append(Message(topic, store_timestamp=EPOCH + 1000 * k, properties={"KEYS": f"k{k}"}))
    assert local_build(store, tmp_path / "built", cq_file_size=400, hash_slots=50, index_items=60).exit == 0
    for part in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "built" / part).rename(store / part)
    shutil.rmtree(store / "consumequeue" / "Gone")
    return store


def write_config(store: Path, *topics: str) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {topic: {} for topic in topics}}))


def test_records_of_a_deleted_topic_lack_no_unit(ending: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = info(ending, capsys)
    (problem,) = found["problems"]
    assert "10 records are of topics without a queue (Gone): if nobody deleted these, a build makes" in problem
    assert shlex.split(found["next"]["commands"][0])[1] == "preflight"
    assert "no problem" not in found["next"]["why"]
    write_config(ending, "Kept")
    found = info(ending, capsys)
    assert (found["problems"], shlex.split(found["next"]["commands"][0])[1]) == ([], "preflight")
    write_config(ending, "Kept", "Gone")
    found = info(ending, capsys)
    (problem,) = found["problems"]
    assert "10 records behind it, or more, have none" in problem
    assert shlex.split(found["next"]["commands"][0])[1] == "build"


def test_each_topic_has_its_times(ending: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kept,) = info(ending, capsys)["topics"]
    assert (kept["first_time"], kept["last_time"]) == (show_time(EPOCH), show_time(EPOCH + 29_000))
    shutil.rmtree(ending / "consumequeue")
    sampled = {one["topic"]: (one["first_time"], one["last_time"]) for one in info(ending, capsys)["topics"]}
    assert sampled["Gone"] == (show_time(EPOCH + 30_000), show_time(EPOCH + 39_000))
    assert main(["info", str(ending)]) == 0
    assert f"Gone: 10 messages in 1 queue, stored {show_time(EPOCH + 30_000)} to" in capsys.readouterr().out


def test_times_of_what_has_not_expired(golden: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The times of a topic are those of its records, as a reader of the log finds them."""
    first = min((golden.path / "commitlog").iterdir())
    first.unlink()
    topics, times = {one["topic"]: one for one in info(golden.path, capsys)["topics"]}, dict[str, list[int]]()
    for record in walk(*read_segments([golden.path / "commitlog"], None), Settings()).records:
        times.setdefault(record.topic, []).append(record.store_timestamp)
    for topic, of in times.items():
        assert topics[topic]["first_time"] == show_time(min(of))
        assert topics[topic]["last_time"] == show_time(max(of))


def test_more_queues_than_are_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three topics: the last has two queues that are looked into, and the files of the rest are not opened."""
    store = tmp_path / "many"
    with LogWriter(store / "commitlog", 1 << 20) as writer:
        for topic, queues in (("A", 999), ("B", 999), ("C", 5), ("D", 2)):
            for queue in range(queues):
                writer.append(Message(topic, queue, body=b""))
    assert local_build(store, tmp_path / "built", cq_file_size=400).exit == 0
    (tmp_path / "built" / "consumequeue").rename(store / "consumequeue")
    found = info(store, capsys)
    assert (found["queues"], found["queues_looked_into"], found["messages"]) == (2005, 2000, 2000)
    looked = {one["topic"]: (one["queues"], one["queues_looked_into"]) for one in found["topics"]}
    assert looked == {"A": (999, 999), "B": (999, 999), "C": (5, 2), "D": (2, 0)}
    assert main(["info", str(store)]) == 0
    told = capsys.readouterr().out
    assert "2,000 messages in the first 2,000 queues; others were not looked into" in told
    assert "C: 2 messages in 2 of 5 queues, stored " in told
    assert "D: 2 queues, not looked into" in told


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_segments_that_were_made_ahead(ahead: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log ends in front of them, in its first segment as in its second."""
    for number, records in enumerate((3, 40)):
        store = tmp_path / f"{number}"
        with LogWriter(store / "commitlog", 1 << 12) as writer:
            for record in range(records):
                writer.append(Message(body=b"b" * 60, store_timestamp=EPOCH + record))
        last = int(max((store / "commitlog").iterdir()).name)
        for k in range(1, ahead + 1):
            (store / "commitlog" / f"{last + k * (1 << 12):020d}").write_bytes(bytes(1 << 12))
        log = info(store, capsys)["log"]
        assert (log["end_offset"], log["last_time"]) == (writer.end, show_time(EPOCH + records - 1))
