"""Old records behind the log's end: known for what they are under every policy, and never a way to hide damage."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.udfs.sql.sources import CommitlogSource
from tests.golden.stores import read_files
from tests.tools import spoil
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message, body_start, encode
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.read_rows import read_rows
from tests.tools.seeds import STEP, cases
from tests.tools.stale_log import SEGMENT, StaleLog, copy_log, message, stale_log, write_at

POLICIES = ("fail", "stop", "salvage")
FILES: dict[str, Any] = {name: SMALL[name] for name in ("cq_file_size", "hash_slots", "index_items")}
PART = ("consumequeue/", "index/", "checkpoint")
FUTURE = EPOCH + 10**12


def built(store: Path, out: Path, **settings: Any) -> tuple[BuildResult, dict[str, bytes]]:
    """The summary, and what was built but for the manifest."""
    summary = local_build(store, out, InlineEngine(2, 2), **FILES, **settings)
    found = read_files(out) if out.exists() else {}
    return summary, {path: data for path, data in found.items() if path.startswith(PART)}


def refused(store: Path, out: Path) -> str:
    summary, files = built(store, out, on_damage="fail")
    assert (summary.exit, files) == (5, {}), summary.damage
    assert summary.error
    return summary.error


@pytest.mark.parametrize("queues", [1, 4])
def test_the_log_is_whole(queues: int, seed: int, tmp_path: Path) -> None:
    """Each policy, and any ranges, give what the live records alone give, and exit 0 with one word of it."""
    store = tmp_path / "store"
    log = stale_log(store, seed, queues=queues)
    _, wanted = built(log.bare, tmp_path / "bare-out")
    ways = [(policy, ranges) for policy in POLICIES for ranges in (0, 500)]
    for policy, ranges in random.Random(seed).sample(ways, cases(len(ways), 2)):
        summary, files = built(store, tmp_path / f"{policy}-{ranges}", on_damage=policy, range_size=ranges)
        assert (summary.exit, summary.records, summary.error) == (0, len(log.live), None)
        assert files == wanted
        (entry,) = summary.damage
        assert (entry["segment"], entry["offset"]) == (f"{0:020d}", log.end)
        assert entry["offset"] + entry["length"] == log.old[-1].offset + log.old[-1].size
        assert entry["reason"].startswith(f"stale tail: {len(log.old)} old records behind the log's end")
        assert [warning for warning in summary.warnings if str(log.end) in warning] == summary.warnings
        assert len(summary.warnings) == 1
    verified = local_verify(tmp_path / f"{policy}-{ranges}", commitlogs=(str(store / "commitlog"),), **FILES)
    assert (verified.exit, verified.findings, verified.damage) == (0, [], [])
    assert [note for note in verified.notes if "stale tail" in note] == [
        f"offset {log.end}, {entry['length']:,} bytes: {entry['reason']}"
    ]


def test_any_end_of_what_is_read(seed: int, tmp_path: Path) -> None:
    """--until-offset in live records, in the gap, among old ones and behind them: as of the live records alone."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    gap, data = log.old[0].offset, (store / "commitlog" / f"{0:020d}").read_bytes()
    ends = (log.end - 100, log.end, log.end + 1, gap + 1, log.old[2].offset, log.old[-1].offset)
    for number, until in random.Random(seed).sample(list(enumerate(ends)), cases(len(ends), 2)):
        policy = POLICIES[number % 3]
        _, wanted = built(log.bare, tmp_path / f"bare-{number}", until_offset=until)
        summary, files = built(store, tmp_path / f"{number}", until_offset=until, on_damage=policy, range_size=700)
        assert (summary.exit, files) == (0, wanted), (until, policy, summary.error)
        # Zeros behind the live records are no old record's.
        assert [entry["offset"] for entry in summary.damage] == ([log.end] if any(data[log.end : until]) else [])


def test_what_reads_the_log_without_a_build(seed: int, tmp_path: Path) -> None:
    """The SQL source serves the live records, whatever its ranges, and tells of the others once."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    # Ranges of 500 bytes take five times as long as the others.
    sizes = (500, 1 << 12, 1 << 20)
    for ranges in cases(sizes, (sizes[0 if seed // STEP % 6 == 0 else 1 + seed // STEP % 2],)):
        rows = read_rows(CommitlogSource, store, damage="rows", rangeSize=ranges)
        told = [row for row in rows if row["damage"]]
        assert [row["commitLogOffset"] for row in rows if not row["damage"]] == [put.offset for put in log.live]
        assert [(row["commitLogOffset"], row["damage"][:10]) for row in told] == [(log.end, "stale tail")]
        assert len(read_rows(CommitlogSource, store, damage="fail", rangeSize=ranges)) == len(log.live)
        assert len(read_rows(CommitlogSource, store, rangeSize=ranges, endOffset=log.old[3].offset)) == len(log.live)
        assert read_rows(CommitlogSource, store, rangeSize=ranges, startOffset=log.old[1].offset) == []


def test_looks_by_hand(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``query --scan`` finds no old record; ``inspect`` lists them, and says what they are."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    for put, found in ((log.live[-1], 1), (log.old[-1], 0)):
        assert isinstance(put.message.properties, dict)
        words = ["query", str(store), "--topic", "orders", "--key", put.message.properties["UNIQ_KEY"], "--scan", "--json"]
        status = main(words)
        out = capsys.readouterr()
        assert len([line for line in out.out.splitlines() if line]) == found, (status, out)
    main(["inspect", str(store / "commitlog" / f"{0:020d}"), "--json"])
    (damage,) = json.loads(capsys.readouterr().out.splitlines()[0])["damage"]
    assert (damage["offset"], damage["reason"][:10]) == (log.end, "stale tail")


def test_an_incremental_build_is_that_of_a_full_one(seed: int, tmp_path: Path) -> None:
    """Of the log before it was truncated, then after, then grown over some of its old records."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    path = store / "commitlog" / f"{0:020d}"
    truncated = path.read_bytes()
    rng, now = random.Random(seed), log.last_time
    with LogWriter(tmp_path / "grown/commitlog", SEGMENT) as writer:
        for put in log.live:
            writer.append(put.message)
        for _ in range(4):
            now += 1_000
            writer.append(message(rng, now, 90, 1))
    grown = (tmp_path / "grown/commitlog" / path.name).read_bytes()[: writer.end] + truncated[writer.end :]
    (tmp_path / "tables").mkdir()
    for number, data in enumerate(((log.before / "commitlog" / path.name).read_bytes(), truncated, truncated, grown)):
        path.write_bytes(data)
        summary, files = built(store, tmp_path / "out", incremental=True, tables=str(tmp_path / "tables"), range_size=2_000)
        full, wanted = built(store, tmp_path / f"full-{number}")
        assert (summary.exit, summary.damage, files) == (0, full.damage, wanted)
        assert bool(summary.damage) == (number > 0)


def test_units_and_items_behind_the_end(seed: int, tmp_path: Path) -> None:
    """A broker drops units that point behind its log's end: no difference. Others are."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    built(log.bare, tmp_path / "own")
    copy_log(store, tmp_path / "own")
    path = max((tmp_path / "own" / "consumequeue/orders/0").iterdir())
    units = path.read_bytes()
    used = len(units.rstrip(b"\0")) // 20 * 20 + 20 if units.rstrip(b"\0") else 0
    used = next(at for at in range(0, len(units) + 1, 20) if not any(units[at : at + 20]))
    for place, clean in ((log.old[1].offset, True), (log.live[3].offset + 1, False)):
        path.write_bytes((units[:used] + struct.pack(">qiq", place, 300, 0)).ljust(len(units), b"\0"))
        verified = local_verify(tmp_path / "own", **FILES)
        assert (verified.exit == 0) == clean, kinds(verified)
        assert any(note.startswith("1 unit at the ends of queues points behind") for note in verified.notes) == clean


# -- what cannot be told, and what must stay damage ------------------------------------------------------------------------


def going_on(store: Path, seed: int) -> StaleLog:
    """Old records whose queue goes on as if one record was lost that had no unit."""
    return stale_log(store, seed, records=40, kept=30, new=3, body=(300, 200))


def test_the_checkpoint_decides_what_else_cannot_be_told(seed: int, tmp_path: Path) -> None:
    store = tmp_path / "store"
    log = going_on(store, seed)
    assert log.old[0].queue_offset == log.live[-1].queue_offset + 1
    words = refused(store, tmp_path / "out")
    assert f"at offset {log.end} old records may begin" in words
    assert "--on-damage stop if the broker cut its log there; if the disk is damaged, repair the log first" in words
    for number, (physic, logics, status) in enumerate((
        (log.last_time, log.last_time, 0),
        (0, log.last_time, 0),
        (log.last_time - 1, log.last_time - 1, 5),
        (log.last_time + 1, log.last_time, 5),
    )):  # fmt: skip
        (store / "checkpoint").write_bytes(Checkpoint(physic, logics).to_bytes())
        summary, _ = built(store, tmp_path / f"{number}")
        assert summary.exit == status, (number, summary.damage)
        said, _, _ = (summary.error or "").partition("\n  choose ")
        assert ("checkpoint" in said) == (physic > log.last_time)
        # Alone the log says nothing of it.
        summary = local_build("", tmp_path / f"bare-{number}", commitlogs=(str(store / "commitlog"),), **FILES)
        assert summary.exit == 5


def test_a_store_time_of_0_is_named_by_no_checkpoint(seed: int, tmp_path: Path) -> None:
    """Where there is no checkpoint its times read as 0, and the last record before the gap may be stored at 0."""
    store = tmp_path / "store"
    log = going_on(store, seed)
    for put in (*log.live, *log.old):
        write_at(store, put.offset + 56, struct.pack(">q", put.message.store_timestamp - log.last_time))
    assert f"at offset {log.end} old records may begin" in refused(store, tmp_path / "out")
    (store / "checkpoint").write_bytes(Checkpoint().to_bytes())
    assert f"at offset {log.end} old records may begin" in refused(store, tmp_path / "again")


@pytest.mark.parametrize("kind", ["zeros", "garbage", "bad-magic"])
def test_a_clock_that_was_set_back_is_damage(kind: str, seed: int, tmp_path: Path) -> None:
    """All behind a lost record is older than what lies before it, but every queue goes on."""
    rng, now = random.Random(seed), EPOCH
    with LogWriter(tmp_path / "store/commitlog", SEGMENT) as writer:
        for number in range(60):
            now += rng.randrange(1, 900) - (3_600_000 if number == 31 else 0)
            writer.append(message(rng, now, 150, 4))
    hit = spoil.RECORD_KINDS[kind](tmp_path / "store", 30, seed)
    assert str(writer.puts[30].offset) in refused(tmp_path / "store", tmp_path / "out")
    summary, _ = built(tmp_path / "store", tmp_path / "salvaged", on_damage="salvage")
    assert (summary.exit, summary.records) == (3, 59), hit


def test_a_record_that_came_later_makes_it_damage(seed: int, tmp_path: Path) -> None:
    """One record behind the gap is as young as those before it: no stale tail. Salvage lists what it leaves out."""
    rng = random.Random(seed)
    store = tmp_path / "store"
    log = stale_log(store, seed, old=replace(message(rng, FUTURE, 100, 1), topic="other"))
    words = refused(store, tmp_path / "out")
    assert "not all records behind it are older, and queue offsets repeat" in words
    _, wanted = built(log.bare, tmp_path / "bare-out")
    summary, files = built(store, tmp_path / "salvaged", on_damage="salvage")
    assert summary.exit == 3
    assert any("out of line (queue orders/0)" in entry["reason"] for entry in summary.damage)
    queue = "consumequeue/orders/0/"
    assert {path: data for path, data in files.items() if path.startswith(queue)} == {
        path: data for path, data in wanted.items() if path.startswith(queue)
    }, "no old record takes the place of an acknowledged one"


def test_a_topic_that_was_new_when_the_log_was_cut(seed: int, tmp_path: Path) -> None:
    """Its old records begin at 0 as well: they look like the topic made anew, and take no acknowledged one's place."""
    rng, store, bare = random.Random(seed), tmp_path / "store", tmp_path / "bare"
    kept = [message(rng, EPOCH + 100 * number, 150, 1) for number in range(30)]
    old = [replace(message(rng, EPOCH + 5_000, 600, 1), topic="gone", queue_id=number) for number in range(3)]
    old += [replace(message(rng, EPOCH + 6_000, 150, 1), topic="new") for _ in range(6)]
    live = [replace(message(rng, EPOCH + 90_000, 400, 1), topic="new") for _ in range(3)]
    with LogWriter(store / "commitlog", SEGMENT) as before:
        for one in (*kept, *old):
            before.append(one)
    with LogWriter(bare / "commitlog", SEGMENT) as after:
        for one in (*kept, *live):
            after.append(one)
    last = before.puts[32]
    assert last.offset + 100 < after.end < last.offset + last.size, "only old records of the new topic lie whole behind it"
    write_at(store, 0, (bare / "commitlog" / f"{0:020d}").read_bytes()[: after.end])
    _, wanted = built(bare, tmp_path / "bare-out")
    assert "old records may begin" in refused(store, tmp_path / "out")
    summary, files = built(store, tmp_path / "salvaged", on_damage="salvage")
    assert summary.exit == 3
    told = [entry["offset"] for entry in summary.damage if "out of line (queue new/0)" in entry["reason"]]
    assert told == [before.puts[33].offset], summary.damage
    queues = {path: data for path, data in files.items() if path.startswith("consumequeue/")}
    assert queues == {path: data for path, data in wanted.items() if path.startswith("consumequeue/")}
    verified = local_verify(tmp_path / "salvaged", commitlogs=(str(store / "commitlog"),), **FILES)
    assert not [kind for kind in kinds(verified) if kind.startswith("queue")], kinds(verified)


@pytest.mark.parametrize("kind", ["topic", "position"])
def test_a_sound_record_that_is_refused_in_front_of_it(kind: str, seed: int, tmp_path: Path) -> None:
    """The last live one: it is damage with its reason, and what lies behind it is a stale tail all the same."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    last = log.live[-1]
    if kind == "topic":
        data = (store / "commitlog" / f"{0:020d}").read_bytes()
        write_at(store, data.index(b"orders", last.offset), b"or\ters")
    else:
        write_at(store, last.offset + 28, struct.pack(">q", last.offset + 7))
    assert f"damage at offset {last.offset}" in refused(store, tmp_path / "out")
    ways = [(policy, ranges) for policy in ("stop", "salvage") for ranges in (0, 500)]
    for policy, ranges in random.Random(seed).sample(ways, cases(len(ways), 1)):
        summary, _ = built(store, tmp_path / f"{policy}-{ranges}", on_damage=policy, range_size=ranges)
        assert (summary.exit, summary.records) == (3, len(log.live) - 1), summary.damage
        told = [(entry["offset"], entry["reason"][:10]) for entry in summary.damage]
        assert told[0][0] == last.offset
        assert told[1:] == ([(log.end, "stale tail")] if policy == "salvage" else [])
    rows = read_rows(CommitlogSource, store, damage="rows", rangeSize=500)
    assert [row["commitLogOffset"] for row in rows if not row["damage"]] == [put.offset for put in log.live[:-1]]


@pytest.mark.parametrize("crc", ["none", "body", "all"])
def test_a_record_that_a_crash_tore_in_front_of_it(crc: str, seed: int, tmp_path: Path) -> None:
    """The broker crashed again, over old records: what it wrote last is cut away with them."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    last = log.live[-1]
    for number, (at, size) in enumerate(((100, 20), (0, 50), (0, last.size - 1))):
        write_at(store, last.offset + at, bytes(size))
        for policy in POLICIES:
            summary, _ = built(store, tmp_path / f"{number}-{policy}", on_damage=policy, crc=crc, range_size=3_000)
            # A body alone is not looked at without its CRC.
            whole = crc == "none" and number == 0
            end = log.end if whole else last.offset
            assert (summary.exit, summary.records) == (0, len(log.live) - (not whole)), summary.error
            assert [(entry["offset"], entry["reason"][:10]) for entry in summary.damage] == [(end, "stale tail")]


def test_only_the_crc_of_all_tells_that_the_last_record_is_torn(seed: int, tmp_path: Path) -> None:
    """Its frame and its body are whole: it is no proof that the log goes on."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    last = log.live[-1]
    shorter = (replace(last.message, body=last.message.body[:-cut], crc_property=True) for cut in range(20, 30))
    data = next(one for one in (encode(some, last.offset, last.queue_offset) for some in shorter) if len(one) == last.size)
    write_at(store, last.offset, data)
    for byte, records in ((data[48:49], len(log.live)), (bytes([data[48] ^ 1]), len(log.live) - 1)):
        write_at(store, last.offset + 48, byte)
        for policy in POLICIES:
            summary, _ = built(store, tmp_path / f"{records}-{policy}", on_damage=policy, crc="all")
            assert (summary.exit, summary.records) == (0, records), summary.error
            assert [entry["reason"][:10] for entry in summary.damage] == ["stale tail"]


def test_a_segment_behind_it_makes_it_damage(seed: int, tmp_path: Path) -> None:
    """A truncation deletes what lies behind; zeros that were allocated ahead are nothing."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    behind = store / "commitlog" / f"{SEGMENT:020d}"
    behind.write_bytes(bytes(SEGMENT))
    assert built(store, tmp_path / "zeros")[0].exit == 0
    behind.write_bytes(bytes(SEGMENT - 1) + b"\1")
    assert str(log.end) in refused(store, tmp_path / "out")


@pytest.mark.parametrize("kind", ["flip-body", "zeros", "garbage"])
def test_damage_before_a_stale_tail(kind: str, seed: int, tmp_path: Path) -> None:
    """It stays damage; salvage brings back what lies between, and no old record takes another's place."""
    store = tmp_path / "store"
    log = stale_log(store, seed)
    at = log.live[20].offset
    spoil.RECORD_KINDS[kind](store, 20, seed)
    assert f"damage at offset {at}" in refused(store, tmp_path / "out")
    stopped, _ = built(store, tmp_path / "stopped", on_damage="stop")
    assert (stopped.exit, stopped.records) == (3, 20)
    summary, files = built(store, tmp_path / "salvaged", on_damage="salvage")
    assert summary.exit == 3
    units = b"".join(files[path] for path in sorted(files) if path.startswith("consumequeue/orders/0/"))
    for position, put in enumerate(log.live):
        if position != 20:
            assert struct.unpack_from(">q", units, 20 * position)[0] == put.offset


def forged(rng: random.Random, image: Message, lead: int, at: int, **more: Any) -> Message:
    """A message whose body, at ``at`` of the log, holds the image of a record."""
    one = message(rng, EPOCH + 50_000, 0, 1)
    body = rng.randbytes(lead)
    place = at + body_start(one) + lead
    return replace(one, body=body + encode(replace(image, **more), place, 0))


@pytest.mark.parametrize("time", [EPOCH - 1, FUTURE])
@pytest.mark.parametrize("lead", [0, 70])
def test_no_body_turns_damage_into_a_stale_tail(time: int, lead: int, seed: int, tmp_path: Path) -> None:
    """Images in a lost record's body: older ones that repeat a queue's offsets, younger ones that make others old."""
    rng = random.Random(seed)
    store, now = tmp_path / "store", EPOCH
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(60):
            now += 1_000
            if number == 30:
                image = Message(topic="orders", body=b"mine", queue_offset=12, store_timestamp=time)
                writer.append(forged(rng, image, lead, writer.end))
            else:
                writer.append(message(rng, now, 150, 1))
    put = writer.puts[30]
    for number, spoilt in enumerate((bytes(88), rng.randbytes(28), bytes(8))):
        write_at(store, put.offset, spoilt)
        assert str(put.offset) in refused(store, tmp_path / f"{number}")
        assert built(store, tmp_path / f"salvaged-{number}", on_damage="salvage")[0].exit == 3


def test_an_image_that_covers_all_that_follows(seed: int, tmp_path: Path) -> None:
    """One without a body has no CRC: its properties can reach over the last records of the log. They are seen all the same."""
    rng = random.Random(seed)
    store, now = tmp_path / "store", EPOCH
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for _ in range(30):
            now += 1_000
            writer.append(message(rng, now, 150, 1))
        image = Message(topic="orders", body=b"", queue_offset=12, store_timestamp=EPOCH - 1)
        start = encode(replace(image, properties=bytes(3_000)), writer.end + 88, 0)[:-3_000]
        writer.append(replace(message(rng, now, 0, 1), body=start))
        for _ in range(5):
            now += 1_000
            writer.append(message(rng, now, 150, 1))
    write_at(store, writer.puts[30].offset, bytes(8))
    assert str(writer.puts[30].offset) in refused(store, tmp_path / "out")
