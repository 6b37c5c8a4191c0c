"""What an operator has to look at before anything is built: verify advises no build, and says what to look at."""

from __future__ import annotations

import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.checks.differences import KINDS
from tests.golden.test_verify_mend import built, mended, written, zero_unit
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.stale_log import message, stale_log

FILES: dict[str, Any] = {name: SMALL[name] for name in ("cq_file_size", "hash_slots", "index_items")}
SEGMENT = 1 << 12


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three queues of 40 units, over some segments."""
    return built(written(tmp_path / "store", *_messages(120)))


def _messages(count: int) -> list[Message]:
    return [Message(topic=f"T{k % 3}", queue_offset=k // 3, properties={"KEYS": f"k{k}"}) for k in range(count)]


def _no_build(store: Path, **settings: Any) -> str:
    """The one reason for which no build is advised, neither for a kind nor for all."""
    summary = local_verify(store, **settings)
    assert (summary.exit, summary.mend, len(summary.not_mended)) == (4, None, 1), summary.to_text()
    (reason,) = summary.not_mended
    assert summary.to_text().splitlines()[-1] == f"mend     no build is advised: {reason}"
    for finding in summary.findings:
        assert not KINDS[finding["kind"]].mend or finding["mend"] == f"no build is advised: {reason}"
    return reason


def test_a_misnamed_segment(store: Path) -> None:
    """A build would drop its records: they are all there, under another name."""
    segment = sorted((store / "commitlog").iterdir())[1]
    wrong = segment.rename(segment.with_name(f"{20 * SEGMENT:020d}"))
    assert _no_build(store, **SMALL) == (
        f"{wrong.name}: segment is misnamed: its records tell offsets from {SEGMENT} on, so its name should be {segment.name}: "
        "rename it first"
    )
    wrong.rename(segment)
    assert kinds(local_verify(store, **SMALL)) == {}


def test_the_only_segment_is_misnamed(tmp_path: Path) -> None:
    """No record lies where it says. Its disk is mounted all the same."""
    store = built(written(tmp_path / "store", *_messages(8)))
    (segment,) = (store / "commitlog").iterdir()
    wrong = segment.rename(segment.with_name(f"{SEGMENT:020d}"))
    summary = local_verify(store, **SMALL)
    assert (summary.exit, summary.mend) == (4, None)
    assert summary.not_mended[0].endswith(f"so its name should be {segment.name}: rename it first")
    assert not any("mounted" in text for text in (*summary.notes, *summary.not_mended))
    wrong.rename(segment)
    assert kinds(local_verify(store, **SMALL)) == {}


def test_a_doubtful_stale_tail(seed: int, tmp_path: Path) -> None:
    """Old records behind the log's end, it seems, but one of them is younger than those in front."""
    young = message(random.Random(seed), EPOCH + 10**12, 100, 1)
    log = stale_log(tmp_path / "store", seed, old=replace(young, topic="other"))
    store = built(log.bare)
    shutil.copytree(tmp_path / "store/commitlog", store / "commitlog", dirs_exist_ok=True)
    reason = _no_build(store, **FILES)
    assert reason.startswith(f"at offset {log.end} old records may begin that a truncation left behind the log's end, but: ")
    assert reason.endswith(
        "choose --on-damage stop if the broker cut its log there; if the disk is damaged, repair the log first"
    )


def test_a_disk_that_is_not_mounted(store: Path, tmp_path: Path) -> None:
    """An empty folder gives an empty build, which would take the place of what the broker has."""
    shutil.move(store / "commitlog", tmp_path / "away")
    (store / "commitlog").mkdir()
    asked = "holds no segment: is its disk mounted?"
    assert _no_build(store, **SMALL) == f"{store}/commitlog: {asked} A build drops all that the log does not hold"

    # One disk of two: the last segments are on it.
    other = tmp_path / "other"
    other.mkdir()
    for segment in sorted((tmp_path / "away").iterdir())[:2]:
        segment.rename(other / segment.name)
    both = (str(other), str(tmp_path / "away"))
    assert local_verify(store, commitlogs=both, **SMALL).notes == []
    (tmp_path / "away").rename(tmp_path / "gone")
    (tmp_path / "away").mkdir()
    assert _no_build(store, commitlogs=both, **SMALL).startswith(f"{tmp_path}/away: {asked}")


def test_segments_without_a_record(store: Path) -> None:
    for segment in (store / "commitlog").iterdir():
        segment.write_bytes(bytes(SEGMENT))
    assert _no_build(store, **SMALL).startswith("the log holds no record: is its disk mounted?")


def test_an_unclean_stop_needs_all_parts(store: Path) -> None:
    """Beside a file abort a checkpoint that is built alone vouches for no more than the old one did: it mends nothing."""
    by = SMALL | {"broker_version": "5.4"}
    old = replace(Checkpoint.from_bytes((store / "checkpoint").read_bytes()), logics_offset=0)
    (store / "checkpoint").write_bytes(replace(old, logics=1).to_bytes())
    assert "--only checkpoint" in (local_verify(store, **by).mend or "")
    (store / "abort").touch()
    summary = local_verify(store, **by)
    assert kinds(summary) == {"checkpoint-stale": 1, "abort-file": 1}
    assert "--only" not in (summary.mend or "--only")
    assert kinds(mended(summary, store)) == {"abort-file": 1}
    (store / "checkpoint").write_bytes(replace(old, logics=1).to_bytes())
    summary = local_verify(store, only=("checkpoint",), **by)
    assert (summary.mend, [reason.partition(" ")[0] for reason in summary.not_mended]) == (None, ["consumequeue", "index"])


def test_what_is_left_of_expired_records_is_no_garbage(tmp_path: Path) -> None:
    """Units that no record explains make no queue one of expired records."""
    messages = [Message(topic="T", body=bytes(200), properties={"KEYS": "k"}) for _ in range(60)]
    store = built(written(tmp_path / "store", *messages))
    for segment in sorted((store / "commitlog").iterdir())[:2]:
        segment.unlink()
    (junk,) = shutil.copytree(store / "consumequeue/T/0", store / "consumequeue/Junk/0").glob(f"{0:020d}")
    size = junk.stat().st_size
    for path in junk.parent.iterdir():
        path.unlink()
    for place, idle in ((1 << 40, 0), (0, 1)):
        junk.write_bytes(struct.pack(">qiq", place, 200, 0).ljust(size, b"\0"))
        summary = local_verify(store, **SMALL)
        assert (summary.idle_queues, summary.exit) == (idle, 0 if idle else 4), kinds(summary)


def test_a_queue_made_anew_that_jumped(tmp_path: Path) -> None:
    """Its broker appended what came behind the jump, and served it there; no build puts it at that place."""
    offsets = [*range(30), *range(12), *range(15, 24)]
    messages = [Message(topic="T", queue_offset=offset, properties={"KEYS": f"k{offset}"}) for offset in offsets]
    with LogWriter(tmp_path / "store" / "commitlog", SEGMENT) as writer:
        for one in [*messages, *_messages(30)]:
            writer.append(one)
    store = built(tmp_path / "store")
    shutil.rmtree(store / "consumequeue/T/0")
    (store / "consumequeue/T/0").mkdir()
    units = b"".join(struct.pack(">qiq", put.offset, put.size, 0) for put in writer.puts[30:51])
    for at in range(0, len(units), SMALL["cq_file_size"]):
        data = units[at : at + SMALL["cq_file_size"]].ljust(SMALL["cq_file_size"], b"\0")
        (store / f"consumequeue/T/0/{at:020d}").write_bytes(data)
    summary = local_verify(store, **SMALL)
    assert (kinds(summary), summary.orders.get("made anew")) == ({}, 1)
    zero_unit(store, "T1/0")
    assert _no_build(store, **SMALL).startswith("queues that were made anew, and are out of order since then: 1: a build puts")
