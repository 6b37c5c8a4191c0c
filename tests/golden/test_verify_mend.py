"""What verify advises to build loses nothing: the command carries the options it needs, or there is none, and a reason."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.verifying.options import parse_verify
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from tests.golden.stores import GoldenStore
from tests.tools import spoil
from tests.tools.batch_log import SIZES as BATCH_SIZES
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine, local_build, run_build, single
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

PARTS = ("consumequeue", "batchconsumequeue", "index", "checkpoint")


def built(store: Path, **settings: Any) -> Path:
    """A build in its store."""
    out = store.with_name(f"{store.name}-out")
    summary = local_build(store, out, **(SMALL | settings))
    assert summary.exit == 0, summary.error
    for part in PARTS:
        if (out / part).exists():
            shutil.move(out / part, store / part)
    shutil.rmtree(out)
    return store


def written(store: Path, *messages: Message) -> Path:
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        for message in messages:
            writer.append(message)
    return store


def zero_unit(store: Path, queue: str, slot: int = 1) -> None:
    path = min((store / "consumequeue" / queue).iterdir())
    data = bytearray(path.read_bytes())
    data[20 * slot : 20 * slot + 20] = bytes(20)
    path.write_bytes(data)


def spoil_index(store: Path) -> None:
    """An item's hash of the first file."""
    path = min((store / "index").iterdir())
    data = bytearray(path.read_bytes())
    data[40 + 4 * SMALL["hash_slots"] + 20 + 3] ^= 1
    path.write_bytes(data)


def mended(summary: VerifyResult, store: Path) -> VerifyResult:
    """What verify says once the build that it advises has taken the place of what it replaces."""
    assert summary.mend is not None
    _, _, *words = shlex.split(summary.mend)
    out = store.with_name(f"{store.name}-mended")
    words[words.index("DIR")] = str(out)
    assert run_build(parse_settings(words), single(InlineEngine())).exit == 0
    for part in PARTS:
        if (out / part).exists():
            old = store / part
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
            shutil.move(out / part, old)
    return local_verify(store)


def test_light_queues_need_their_option(tmp_path: Path) -> None:
    """Their names need not begin with %LMQ%, so nothing else tells of them."""
    messages = [Message(topic="T", properties={"KEYS": f"k{k}"}, lmq=("light",)) for k in range(30)]
    store = built(written(tmp_path / "store", *messages), lmq=True)
    summary = local_verify(store, **SMALL)
    assert kinds(summary) == {"queue-unit-extra": 30}
    assert summary.mend is None
    assert summary.not_mended == ["light is a light queue, which a build drops without --lmq: verify with --lmq"]
    zero_unit(store, "light/0")
    summary = local_verify(store, lmq=True, **SMALL)
    assert kinds(summary) == {"queue-unit-missing": 1}
    assert summary.mend is not None
    assert "--lmq" in summary.mend
    mended(summary, store)
    assert kinds(local_verify(store, lmq=True, **SMALL)) == {}


def test_batch_queues_need_their_topics(golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    source, store = golden_store("batch-5.3").path, tmp_path / "store"
    shutil.copytree(source / "commitlog", store / "commitlog")
    shutil.copytree(source / "rebuilt", store, dirs_exist_ok=True)
    sizes: dict[str, Any] = dict(BATCH_SIZES)
    summary = local_verify(store, **sizes)
    assert summary.mend is None
    assert "there are batch queues, which a build drops without --topics-config: verify with it" in summary.not_mended

    topics = tmp_path / "topics.json"
    shutil.copy(source / "config" / "topics.json", topics)
    (store / "checkpoint").unlink()
    words = [str(store), "--topics-config", str(topics)]
    words += [word for name, value in sizes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    settings = parse_verify(words)
    assert settings.topics_config == str(topics)


def test_queues_whose_records_have_expired_are_kept(tmp_path: Path) -> None:
    """A build has no folder of such a queue, and a broker would number its next message 0."""
    old = [Message(topic="Old", properties={"KEYS": "k"}) for _ in range(30)]
    store = built(
        written(tmp_path / "store", *old, *(Message(topic="New", body=bytes(200), properties={"KEYS": "n"}) for _ in range(60)))
    )
    segments = sorted((store / "commitlog").iterdir())
    for segment in segments[:2]:
        segment.unlink()
    assert local_verify(store, **SMALL).idle_queues == 1
    zero_unit(store, "New/0", 19)
    summary = local_verify(store, **SMALL)
    assert (kinds(summary), summary.mend) == ({"queue-unit-missing": 1}, None)
    (reason,) = summary.not_mended
    assert reason.startswith("queues that hold units of expired records alone: 1: a build drops them")
    spoil_index(store)
    assert "--only index,checkpoint " in (local_verify(store, **SMALL).mend or "")


def test_a_queue_as_a_broker_left_it(tmp_path: Path) -> None:
    """A topic made anew: the older life's units stand before the new ones', and a build by default drops them."""
    offsets = [*range(30), *range(12)]
    messages = [Message(topic="T", queue_offset=offset, properties={"KEYS": "k"}) for offset in offsets]
    store = built(written(tmp_path / "store", *messages), queue_order="broker")
    assert local_verify(store).orders.get("broker") == 1
    spoil_index(store)
    assert "--queue-order" not in (local_verify(store, **SMALL).mend or "")
    zero_unit(store, "T/0")
    summary = local_verify(store, **SMALL)
    assert "--queue-order broker" in (summary.mend or "")
    assert kinds(mended(summary, store)) == {}


def test_an_index_of_unknown_sizes(tmp_path: Path) -> None:
    store = built(written(tmp_path / "store", *(Message(topic="T") for _ in range(30))), hash_slots=37, index_items=93)
    (store / "index" / "junk").touch()
    summary = local_verify(store)
    assert (kinds(summary), summary.mend) == ({"index-file-name": 1}, None)
    assert summary.not_mended == ["no file says how many slots and items an IndexFile has: give --hash-slots and --index-items"]
    (store / "index" / "junk").unlink()
    (store / "checkpoint").write_bytes(Checkpoint().to_bytes())
    assert "--only checkpoint" in (local_verify(store, broker_version="5.4").mend or "")


def test_options_are_carried(tmp_path: Path) -> None:
    store = built(written(tmp_path / "store", *(Message(topic="T", properties={"KEYS": f"k{k}"}) for k in range(30))))
    zero_unit(store, "T/0")
    summary = local_verify(store, crc="all", max_fill=7, delay_levels="1s 2s", broker_version="4.9")
    for words in ("--crc all", "--max-fill 7", "--delay-levels '1s 2s'", "--broker-version 4.9", "--cq-file-size 400"):
        assert words in (summary.mend or "")
    assert json.loads(summary.to_json())["not_mended"] == []


def test_damage_that_a_broker_cuts_away(tmp_path: Path) -> None:
    """An index from beyond the cut would keep new keys out (tests/serving/test_recovery.py)."""
    store = built(written(tmp_path / "store", *(Message(topic="T", properties={"KEYS": f"k{k}"}) for k in range(120))))
    last = spoil.segment_paths(store)[-1]
    number = next(k for k, (offset, _) in enumerate(spoil.record_offsets(store)) if offset >= int(last.name)) + 3
    place = spoil.record_offsets(store)[number][0]
    spoil.bad_magic(store, number)
    ways = [way["command"] for way in local_verify(store, **SMALL).other_ways]
    assert sum(f"--on-damage salvage --until-offset {place}" in way for way in ways) == 1
    first = tmp_path / "first"
    shutil.copytree(store, first)
    spoil.bad_magic(first, 2)
    assert any("--until-offset" in way["command"] for way in local_verify(first, **SMALL).other_ways)
    short = built(written(tmp_path / "short", *(Message(topic="T") for _ in range(9))))
    spoil.bad_magic(short, 0)
    assert "cuts its log there at offset 0, and" in local_verify(short, **SMALL).other_ways[-1]["loses"]


def test_what_was_not_compared(tmp_path: Path) -> None:
    store = built(written(tmp_path / "store", *(Message(topic="T", properties={"KEYS": f"k{k}"}) for k in range(120))))
    spoil.bad_magic(store, 5)
    summary = local_verify(store, only=("log",), **SMALL)
    assert (summary.mend or "").startswith("rmq-reindex repair ")
    assert summary.other_ways == []
    assert summary.not_mended == [], "the repair makes these parts, and nobody asked for them"
    zero_unit(store, "T/0")
    summary = local_verify(store, sample=0.5, **SMALL)
    assert (summary.mend or "").startswith("rmq-reindex repair ")
    assert summary.not_mended == ["a sample does not tell what a build of consumequeue would lose: verify all of it"]


def test_a_missing_segment_may_only_be_out_of_reach(tmp_path: Path) -> None:
    """A repair without a replica puts fillers in its place: the advice is to look for the segment first."""
    store = built(written(tmp_path / "store", *(Message(topic="T", body=bytes(200)) for _ in range(60))))
    assert len(spoil.segment_paths(store)) > 3
    spoil.remove_segment(store, 1)
    summary = local_verify(store, **SMALL)
    (finding,) = (found for found in summary.findings if found["kind"] == "log-segment-missing")
    assert finding["mend"].startswith("look first whether the disk that holds the segment is mounted")
    assert finding["mend"].endswith(f"if it is lost: {summary.mend}")
    first, repair, command = [line for line in summary.to_text().splitlines() if line.startswith("mend ")]
    assert "its disk may not be mounted" in first
    assert "repair the log first" in repair
    assert command == f"mend     {summary.mend}"
