"""Light queues in a start: tests/preflight/test_other_queues.py holds them against the real stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.broker_start.loading import DispatchOutcome
from rocketmq_reindex.storage_format.broker_start.store import Store
from rocketmq_reindex.storage_format.versions import RELEASES
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter
from tests.unit.storage_format.broker_start.stores import SEGMENT, file, queue, start, units


def dispatched(folder: Path, release: str, names: str, offsets: str, lmq: bool) -> DispatchOutcome | str:
    """What is dispatched of three records, of which the last alone is to be; the kind of the refusal where it fails."""
    light = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    with LogWriter(folder, SEGMENT) as writer:
        puts = [writer.append(Message(properties=properties)) for properties in ({}, {}, light)]
    segments = [file(0, next(folder.iterdir()).read_bytes(), SEGMENT)]
    # recoverNormally of 5.x leaves out the record that begins where the last one with a unit ends.
    covered = puts[: 2 if release == "4.9.8" else 1]
    found = start(Store(segments, [queue(units(covered))]), release, lmq=lmq)
    return found.dispatch or found.refusals[0].kind


@pytest.mark.parametrize("release", RELEASES)
def test_each_gets_a_unit(release: str, tmp_path: Path) -> None:
    """Also in 4.9, where the record is read by the recovery, and once more for the dispatch."""
    for lmq, added in ((True, 3), (False, 1)):
        found = dispatched(tmp_path / str(lmq), release, "%LMQ%a,%LMQ%b,%LMQ%a", "0,0,1", lmq)
        assert isinstance(found, DispatchOutcome)
        assert (found.records, found.units, found.hidden_records) == (1, added, 0 if release == "4.9.8" else 1)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("names", "offsets", "stops"),
    [("plain,%LMQ%b", ",0", True), ("%LMQ%a", "x", True), ("%LMQ%a,%LMQ%b", "0", False)],
)
def test_an_offset_that_is_no_number(release: str, names: str, offsets: str, stops: bool, tmp_path: Path) -> None:
    found = dispatched(tmp_path / "on", release, names, offsets, True)
    assert found == "light-queue-offset" if stops else isinstance(found, DispatchOutcome)
    assert isinstance(dispatched(tmp_path / "off", release, names, offsets, False), DispatchOutcome)


def test_a_record_without_units_is_counted_once(tmp_path: Path) -> None:
    """recoverNormally of 5.x leaves out the last one: it is hidden in its own queue, and in three light ones."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,%LMQ%c", "INNER_MULTI_QUEUE_OFFSET": "0,0,0"}
    with LogWriter(tmp_path, SEGMENT) as writer:
        puts = [writer.append(Message(properties=properties)) for properties in ({}, light)]
    segments = [file(0, next(tmp_path.iterdir()).read_bytes(), SEGMENT)]
    found = start(Store(segments, [queue(units(puts[:1]))]), "5.5.1", lmq=True).dispatch
    assert found is not None
    end = puts[1].offset + puts[1].size
    assert (found.records, found.hidden_records, found.hidden_from, found.hidden_to) == (0, 1, puts[1].offset, end)
