"""A log without its last segment: what the real RocketMQ makes of it is what ``preflight`` and ``info`` say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.describing.look import InfoResult, StoreLook
from rocketmq_reindex.jobs.store.settings import StoreSettings
from tests.preflight.bases import complete
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter
from tests.tools.tiers import ends

SIZES = Sizes(1 << 14, 4000, 50, 400)
CONF, RECORDS, QUEUE = Conf(SIZES), 200, ("TopicA", 0)
SAID = "new messages take their offsets, and they cannot be put back"


@pytest.mark.parametrize("version", ends(["4.9.8", "5.3.3", "5.5.0"]))
def test_new_messages_take_the_offsets_of_what_is_missing(version: str, tmp_path: Path) -> None:
    whole, put_back, goes_on = (tmp_path / name for name in ("whole", "put-back", "goes-on"))
    with LogWriter(whole / "commitlog", SIZES.segment) as writer:
        for _ in range(RECORDS):
            writer.append(Message(body=bytes(60)))
    last = whole / "commitlog" / f"{writer.puts[-1].offset // SIZES.segment * SIZES.segment:020d}"
    missing = [put for put in writer.puts if put.offset >= int(last.name)]
    with RealStores(version, tmp_path) as real:
        complete(real, whole, SIZES)
        for store in (put_back, goes_on):
            shutil.copytree(whole, store)
            for segment in (store / "commitlog").iterdir():
                if segment.name >= last.name:
                    segment.unlink()
        said = predict(goes_on, version, CONF, tmp_path)
        assert isinstance(said, dict)
        assert [note for note in said["notes"] if SAID in note and f"has {len(missing)} units, which the start cuts" in note]
        assert [text for text in _problems(goes_on) if SAID in text]
        assert [_is_told_by_a_build(store) for store in (whole, goes_on)] == [False, True]

        with _started(real, put_back) as served:
            assert served == [put.offset for put in writer.puts if put not in missing]
        shutil.copy(last, put_back / "commitlog" / last.name)
        with _started(real, put_back) as served:
            # Nothing is lost for good as long as no message came.
            assert served == [put.offset for put in writer.puts]

        with _started(real, goes_on):
            new = real.put(goes_on, 1, 1, [QUEUE])[0]
        assert (new.queue_offset, new.offset) == (missing[0].queue_offset, missing[0].offset)
        assert (goes_on / "commitlog" / last.name).exists()


@contextmanager
def _started(real: RealStores, store: Path) -> Iterator[list[int]]:
    """The store, started and closed again, with the places that a consumer from the beginning on is given."""
    assert real.start(store, CONF).loads
    yield real.read(store)[QUEUE]
    real.close(store)


def _is_told_by_a_build(store: Path) -> bool:
    sizes = {"segment-size": SIZES.segment, "cq-file-size": SIZES.cq_file, "hash-slots": SIZES.hash_slots}
    words = [f"--{name}={size}" for name, size in (sizes | {"index-items": SIZES.index_items}).items()]
    settings = parse_settings([str(store), "--out", f"{store}.rebuilt", *words])
    return any("a build lacks their messages" in note for note in look_at(settings).notes)


def _problems(store: Path) -> list[str]:
    summary = InfoResult()
    StoreLook(StoreSettings(str(store)), summary).run()
    return summary.problems
