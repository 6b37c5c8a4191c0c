"""Rules of a start, each as the real stores of the releases named follow it (tests/preflight holds thousands against them)."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex.storage_format.broker_start.loading import DispatchOutcome, IndexOutcome, LogOutcome, QueueOutcome
from rocketmq_reindex.storage_format.broker_start.store import IndexFileData, Store
from rocketmq_reindex.storage_format.record.layout import AT_PHYSICAL_OFFSET, BAD_POSITION, BAD_PROPERTY_CRC, REASONS
from rocketmq_reindex.storage_format.versions import RELEASES
from tests.tools.batch_log import batch
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter
from tests.unit.storage_format.broker_start.stores import SEGMENT, changed, checkpoint, file, log, queue, start, units

FIVE = [release for release in RELEASES if release != "4.9.8"]


def test_a_whole_store_keeps_all(tmp_path: Path) -> None:
    segments, puts = log(tmp_path)
    for release in RELEASES:
        found = start(Store(segments, [queue(units(puts))]), release)
        assert found.loads
        assert found.log is not None
        assert (found.log.max_offset, found.log.cut_bytes, found.log.deleted_segments) == (
            puts[-1].offset + puts[-1].size,
            0,
            (),
        )
        assert list(found.queues) == [QueueOutcome("TopicA", 0, 0, 30, 0, 0, 0, 30, 0)]


@pytest.mark.parametrize("release", RELEASES)
def test_a_bare_log_is_dispatched_but_for_the_limit(tmp_path: Path, release: str) -> None:
    segments, puts = log(tmp_path, 80)
    limited = release >= "5.4"
    assert len(segments) == 14
    found = start(Store(segments), release)
    first = next(number for number, put in enumerate(puts) if put.offset >= 4 * SEGMENT) if limited else 0
    assert found.dispatch is not None
    assert found.dispatch.from_offset == puts[first].offset
    assert (found.dispatch.records, found.dispatch.units, found.dispatch.hidden_records) == (80 - first, 80 - first, first)
    assert found.dispatch.hidden_to == (puts[first - 1].offset + puts[first - 1].size if limited else -1)
    assert found.queues[0] == QueueOutcome("TopicA", 0, first, 80, 0, 80 - first, 0, 80, first)
    assert found.index == IndexOutcome(1, (), 0, first)


def test_the_limit_is_a_setting(tmp_path: Path) -> None:
    segments, _ = log(tmp_path, 80)
    for most, records in ((1, 2), (14, 80), (0, 56)):
        found = start(Store(segments), "5.5.1", recover_max_segments=most)
        assert found.dispatch is not None
        assert found.dispatch.records == records


def test_what_is_not_walked_is_not_counted(tmp_path: Path) -> None:
    segments, _ = log(tmp_path, 80)
    found = start(Store(segments), "5.5.1", count_limit=4 * SEGMENT - 1)
    assert found.dispatch == DispatchOutcome(4 * SEGMENT, 56, 56, 56, 0, 4 * SEGMENT, -1)
    assert (found.queues[0].log_min, found.queues[0].log_max, found.queues[0].hidden) == (-1, 80, -1)


@pytest.mark.parametrize("release", FIVE)
def test_the_record_at_the_end_of_the_queues_is_left_out(tmp_path: Path, release: str) -> None:
    """``recoverNormally`` dispatches what lies behind the queues' end, not what begins there."""
    segments, puts = log(tmp_path)
    found = start(Store(segments, [queue(units(puts[:20]))]), release)
    assert found.dispatch is not None
    assert (found.dispatch.from_offset, found.dispatch.records) == (puts[21].offset, 9)
    assert (found.dispatch.hidden_from, found.dispatch.hidden_records) == (puts[20].offset, 1)
    # The units behind it stand one place too low.
    assert (found.queues[0].max_offset, found.queues[0].units_added) == (29, 9)


def test_4_9_dispatches_from_where_the_queues_end(tmp_path: Path) -> None:
    segments, puts = log(tmp_path)
    found = start(Store(segments, [queue(units(puts[:20]))]), "4.9.8")
    assert found.dispatch is not None
    assert (found.dispatch.from_offset, found.dispatch.records, found.dispatch.hidden_records) == (puts[20].offset, 10, 0)


@pytest.mark.parametrize("release", RELEASES)
def test_damage_cuts_the_log_and_the_units_behind(tmp_path: Path, release: str) -> None:
    segments, puts = log(tmp_path)
    damaged, number = puts[17].offset, puts[17].offset // SEGMENT
    data = bytearray(segments[number].data.tobytes())
    data[damaged % SEGMENT + 100] ^= 1
    segments[number] = file(number * SEGMENT, bytes(data), SEGMENT)
    found = start(Store(segments, [queue(units(puts))], checkpoint=checkpoint()), release, abnormal=True)
    end = puts[-1].offset + puts[-1].size
    assert found.log == LogOutcome(
        True, segments[0].name, 0, False, 0, damaged, end, "body CRC does not match", end - damaged, 12,
        tuple(segment.name for segment in segments[number + 1 :]),
    )  # fmt: skip
    assert found.queues[0] == QueueOutcome("TopicA", 0, 0, 17, 13, 0, 0, 17, 0)


def test_a_checkpoint_tells_where_an_abnormal_start_begins(tmp_path: Path) -> None:
    segments, puts = log(tmp_path)
    third = next(put for put in puts if put.offset >= 3 * SEGMENT)
    time = third.message.store_timestamp
    for release, file_time, begins in (
        ("4.9.8", time + 3000, 3), ("4.9.8", time + 2999, 2), ("5.4.0", time + 3000, 3), ("5.4.0", time + 2999, 2),
        ("5.5.1", time, 3), ("5.5.1", time - 1, 2),
    ):  # fmt: skip
        store = Store(segments, [queue(units(puts))], checkpoint=checkpoint(file_time, file_time))
        found = start(store, release, abnormal=True)
        assert found.log is not None
        assert found.log.start_offset == begins * SEGMENT
    store = Store(segments, [queue(units(puts))], checkpoint=checkpoint(EPOCH, EPOCH, logics_offset=third.offset))
    found = start(store, "5.5.1", abnormal=True, accelerated=True)
    assert found.log is not None
    assert found.log.start_offset == third.offset


def test_acceleration_wants_the_sixth_field(tmp_path: Path) -> None:
    segments, puts = log(tmp_path)
    store = Store(segments, [queue(units(puts))], checkpoint=checkpoint(EPOCH, EPOCH))
    found = start(store, "5.5.1", abnormal=True, accelerated=True)
    assert [refusal.kind for refusal in found.refusals] == ["checkpoint-logics-offset"]
    assert start(store, "5.5.1", accelerated=True).loads
    assert start(store, "5.4.0", abnormal=True, accelerated=True).loads


@pytest.mark.parametrize("abnormal", [False, True])
def test_a_record_too_large_for_java(tmp_path: Path, abnormal: bool) -> None:
    """4.9 makes an array of TOTALSIZE before any check. 5.x holds it against the file first."""
    segments, puts = log(tmp_path)
    for size, kinds in ((2**31 - 1, ["record-too-large"]), (2**31 - 2, ["record-too-large"]), (2**31 - 3, [])):
        spoilt = changed(segments, puts[20].offset, size.to_bytes(4, "big"))
        for release in RELEASES:
            found = start(Store(spoilt, [queue(units(puts))]), release, abnormal=abnormal)
            old = release == "4.9.8"
            assert [refusal.kind for refusal in found.refusals] == (kinds if old else [])
            # Whether it starts hangs on the heap.
            assert [f"says that it has {size:,} bytes" in note for note in found.notes] == ([True] if old and not kinds else [])
            if abnormal and found.log is not None:
                assert found.log.max_offset == puts[20].offset


def test_4_9_dispatches_into_a_record_too_large(tmp_path: Path) -> None:
    """The recovery reads three segments, the dispatch those below."""
    segments, puts = log(tmp_path)
    spoilt = changed(segments, puts[2].offset, (2**31 - 1).to_bytes(4, "big"))
    found = start(Store(spoilt), "4.9.8")
    assert [(r.kind, r.path) for r in found.refusals] == [("record-too-large", f"commitlog/{segments[0].name}")]
    # What is no message is not read so far.
    no_message = Store(changed(spoilt, puts[2].offset + 4, bytes(4)))
    assert start(no_message, "4.9.8").loads


@pytest.mark.parametrize("release", RELEASES)
def test_a_topic_that_cannot_be_a_folder_ends_all_units(tmp_path: Path, release: str) -> None:
    """The broker gives up after 30 tries, and puts no unit into any queue any more; items it still puts."""
    segments, puts = log(tmp_path)
    topic = segments[puts[9].offset // SEGMENT].data.tobytes().index(b"TopicA", puts[9].offset % SEGMENT)
    spoilt = changed(segments, puts[9].offset // SEGMENT * SEGMENT + topic, b"Top\0cA")
    found = start(Store(spoilt, checkpoint=checkpoint()), release, abnormal=True)
    # 4.9 then dispatches once more from where the queues end, in vain; the index takes the last record twice.
    records, items = (51, 31) if release == "4.9.8" else (30, 30)
    first, end = puts[9].offset, puts[-1].offset + puts[-1].size
    assert found.dispatch == DispatchOutcome(0, records, 9, items, first, end, 21, first)
    assert [(q.topic, q.max_offset, q.hidden) for q in found.queues] == [("Top\0cA", 0, 1), ("TopicA", 9, 20)]


def test_items_that_a_cut_file_lacks_are_none(tmp_path: Path) -> None:
    """An IndexFile that is too short is mapped with zeros behind it: those are no items of the record at 0."""
    segments, puts = log(tmp_path)
    header = struct.pack(">4q2i", 0, EPOCH * 2, 0, puts[-1].offset, 0, 31)
    items = b"".join(struct.pack(">iqii", 7, put.offset, 0, 0) for put in puts[:20])
    cut = IndexFileData("20240101000000000", np.frombuffer((header + bytes(40 + 20) + items).ljust(1000, b"\0"), np.uint8))
    # The queues hold all, so nothing is dispatched again: the recovery begins behind what the lost items are of.
    store = Store(segments, [queue(units(puts))], [cut], checkpoint(EPOCH * 2, EPOCH * 2))
    found = start(store, "5.3.3", abnormal=True)
    assert found.index is not None
    assert found.dispatch is not None
    below = sum(put.offset < found.dispatch.from_offset for put in puts)
    assert found.index == IndexOutcome(1, (cut.name,), min(below, 20), below)


def test_an_empty_last_queue_file(tmp_path: Path) -> None:
    segments, puts = log(tmp_path, 21)
    # The last record gets no unit in 5.x: else a cut would make a unit of zeros.
    folder = queue(units(puts[:20]) + bytes(20))
    assert len(folder.files) == 3
    kinds = {release: [r.kind for r in start(Store(segments, [folder]), release).refusals] for release in RELEASES}
    wrong = ["queue-last-file-empty"]
    assert kinds == {"4.9.8": [], "5.3.3": wrong, "5.3.4": wrong, "5.4.0": wrong, "5.5.0": [], "5.5.1": []}


@pytest.mark.parametrize("release", ["5.3.4", "5.4.0", "5.5.0", "5.5.1"])
def test_a_unit_of_zeros_behind_full_files_hides_them(tmp_path: Path, release: str) -> None:
    """After a crash, in a log that begins above 0: the file that a record below the queue's end began has one such unit."""
    with LogWriter(tmp_path, SEGMENT, 8 * SEGMENT) as writer:
        for number in (*range(20), 17):
            writer.append(Message(body=b"b" * 60, queue_offset=number, store_timestamp=EPOCH + number))
        # Its unit ends where the log does: else nothing is cut.
        writer.append(Message("TopicA", 1, b"b" * 60, queue_offset=0, store_timestamp=EPOCH + 20))
    segments = [file(int(path.name), path.read_bytes(), SEGMENT) for path in sorted(tmp_path.iterdir())]
    store = Store(segments, [queue(units(writer.puts[:20]))])
    clean, killed = start(store, release).queues[0], start(store, release, abnormal=True).queues[0]
    assert (clean.min_offset, clean.max_offset, clean.hidden, clean.ends_blank) == (0, 20, 1, False)
    assert (killed.min_offset, killed.max_offset, killed.hidden, killed.ends_blank) == (21, 21, 21, True)


def test_a_missing_segment(tmp_path: Path) -> None:
    segments, puts = log(tmp_path)
    del segments[2]
    for release in RELEASES:
        found = start(Store(segments, [queue(units(puts))]), release)
        assert found.log is not None
        assert found.log.max_offset == puts[-1].offset + puts[-1].size
    # Nothing leads 4.9's dispatch over the gap.
    assert [r.kind for r in start(Store(segments), "4.9.8").refusals] == ["dispatch-stuck"]
    assert start(Store(segments), "5.5.1").loads


@pytest.mark.parametrize("release", RELEASES)
def test_an_empty_log_takes_the_queues_with_it(tmp_path: Path, release: str) -> None:
    _, puts = log(tmp_path)
    found = start(Store([], [queue(units(puts))]), release)
    assert found.log == LogOutcome(False, "", 0, False, -1, 0, 0, "", 0, 0, ())
    assert list(found.queues) == [QueueOutcome("TopicA", 0, 0, 0, 30, 0, -1, -1, 0)]


def test_a_log_that_begins_later(tmp_path: Path) -> None:
    segments, puts = log(tmp_path)
    for release in RELEASES:
        found = start(Store(segments[3:], [queue(units(puts))]), release)
        first = next(number for number, put in enumerate(puts) if put.offset >= 3 * SEGMENT)
        # 4.9 looks at the first file of a queue alone, and 5.x searches no other.
        assert (found.queues[0].min_offset, found.queues[0].max_offset) == (first if first < 10 else 0, 30)


def test_an_unknown_release() -> None:
    with pytest.raises(ValueError, match=r"no release '5\.2'"):
        start(Store([]), "5.2")


def test_batch_topics_get_batch_queues(tmp_path: Path) -> None:
    segments, _ = log(tmp_path, 12)
    found = start(Store(segments, batch_topics=frozenset({"TopicA"})), "5.5.1", batch_cq_file_size=460)
    assert list(found.queues) == [QueueOutcome("TopicA", 0, 0, 12, 0, 12, 0, 12, 0)]


@pytest.mark.parametrize("release", ["5.3.3", "5.5.1"])
def test_a_batch_has_as_many_offsets_as_its_properties_say(tmp_path: Path, release: str) -> None:
    with LogWriter(tmp_path / "commitlog", SEGMENT, 0) as writer:
        for base, count in ((0, 3), (3, 5)):
            writer.append(batch(base, count, "TopicA"))
    (path,) = (tmp_path / "commitlog").iterdir()
    store = Store([file(0, path.read_bytes(), SEGMENT)], batch_topics=frozenset({"TopicA"}))
    found = start(store, release, batch_cq_file_size=460)
    assert found.log is not None
    assert found.log.cut_reason == ""
    assert list(found.queues) == [QueueOutcome("TopicA", 0, 0, 8, 0, 2, 0, 8, 0)]


@pytest.mark.parametrize("name", ["INNER_NUM", "INNER_BASE"])
def test_a_batch_with_half_of_its_properties_is_one_message(name: str, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "commitlog", SEGMENT, 0) as writer:
        for _ in range(2):
            writer.append(Message("TopicA", 0, properties={name: "7"}))
    (path,) = (tmp_path / "commitlog").iterdir()
    store = Store([file(0, path.read_bytes(), SEGMENT)], batch_topics=frozenset({"TopicA"}))
    found = start(store, "5.5.1", batch_cq_file_size=460)
    assert list(found.queues) == [QueueOutcome("TopicA", 0, 0, 2, 0, 2, 0, 2, 0)]


def test_a_start_that_checks_offsets_says_so(tmp_path: Path) -> None:
    segments, puts = log(tmp_path)
    spoilt = changed(segments, puts[14].offset + AT_PHYSICAL_OFFSET, struct.pack(">q", 50 * SEGMENT))
    found = start(Store(spoilt), "5.5.1", abnormal=True, check_offset=True)
    assert found.log is not None
    assert (found.log.max_offset, found.log.cut_reason) == (puts[14].offset, REASONS[BAD_POSITION])


def test_a_start_that_wants_a_crc_of_the_whole_record(tmp_path: Path) -> None:
    """``forceVerifyPropCRC`` (5.x): a record without one ends the log."""
    with LogWriter(tmp_path / "commitlog", SEGMENT) as writer:
        puts = [writer.append(Message(body=b"b", crc_property=number < 2)) for number in range(3)]
    store = Store([file(0, next((tmp_path / "commitlog").iterdir()).read_bytes(), SEGMENT)])
    for release in RELEASES:
        found = start(store, release, abnormal=True, force_verify_prop_crc=True).log
        assert found is not None
        whole = release == "4.9.8"
        assert found.max_offset == (puts[2].offset + puts[2].size if whole else puts[2].offset)
        assert found.cut_reason == ("" if whole else REASONS[BAD_PROPERTY_CRC])
