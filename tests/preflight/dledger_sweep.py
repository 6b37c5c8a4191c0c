"""``python -m tests.preflight.dledger_sweep``: spoilt stores of a node of DLedger that is alone in its group.

    python -m tests.preflight.dledger_sweep [--count 300] [--seed S] [--version 4.9.8,5.3.3]

Exit status 0: every statement holds; 1: some do not, each told with the seed of its store.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.preflight import spoil_dledger, spoil_queues, spoil_rest
from tests.preflight.bases import Base
from tests.preflight.compare import Outcome, compare
from tests.preflight.disk import Disk, read_disk
from tests.preflight.log_walk import LogRecord, good_record
from tests.preflight.predicted import predict
from tests.preflight.real import DLEDGER, RealStores
from tests.preflight.seeds import based
from tests.preflight.settings import Conf, Sizes, random_flags
from tests.preflight.spoil import Deed, Spoilt, befall
from tests.preflight.spoil_dledger import INDEX_FILE, NODE
from tests.preflight.sweep import Judged, Sweep
from tests.tools.ports import free_ports

VERSIONS = ("4.9.8", "5.3.3", "5.3.4", "5.4.0", "5.5.0", "5.5.1")
PER_BASE = 10
LIFETIME = 40
KINDS: Sequence[tuple[float, Sequence[Deed]]] = (
    (4.0, spoil_dledger.ENTRIES), (2.0, spoil_dledger.FILES), (3.0, spoil_dledger.BESIDE), (1.5, spoil_queues.LOST),
    (1.0, spoil_queues.DAMAGED), (1.0, spoil_rest.CHECKPOINT), (1.0, spoil_rest.INDEX),
)  # fmt: skip
LAST = (spoil_dledger.wrong_size, spoil_dledger.wrong_name)
FLAGS = (
    "checkCRCOnRecover", "messageIndexEnable", "messageIndexSafe", "recheckReputOffsetFromCq", "enableAcceleratedRecovery",
)  # fmt: skip


def dledger() -> dict[str, str]:
    """The settings of a node that is alone, with a port of its own."""
    return {
        DLEDGER: "true", "dLegerGroup": "group", "dLegerSelfId": "n0", "dLegerPeers": f"n0-127.0.0.1:{free_ports(1)[0]}",
    }  # fmt: skip


def make_base(real: RealStores, path: Path, seed: int) -> Base:
    """A store that a real node has written, in a third of all cases behind the log of a broker without DLedger."""
    rng = random.Random(seed)
    sizes = Sizes(rng.choice((1 << 13, 1 << 14, 20_000)), rng.choice((400, 1000)), rng.choice((7, 50)), rng.choice((60, 400)))
    queues = [(f"Topic{topic}", queue) for topic in "AB" for queue in range(rng.randrange(1, 3))]
    lives = [{}, dledger()] if rng.random() < 0.33 else [dledger()]
    for more in lives:
        told = real.start(path, Conf(sizes, more))
        assert told.loads, told
        real.put(path, rng.randrange(1 << 30), rng.randrange(15, 40) if not more else rng.randrange(30, 200), queues)
        assert real.look(path).behind == 0
        real.close(path)
    for file in (path / NODE / "index").iterdir():
        _shorten(file)
    return Base(path, sizes)


def _shorten(file: Path) -> None:
    """To copy 160 MiB with a hole takes time and room."""
    with file.open("r+b") as opened:
        opened.truncate(os.lseek(opened.fileno(), 0, os.SEEK_HOLE))


def copied(base: Path, store: Path) -> None:
    """Copy a base; its index is whole again."""
    shutil.copytree(base, store)
    for file in (store / NODE / "index").iterdir():
        with file.open("r+b") as opened:
            opened.truncate(INDEX_FILE)


def spoil(path: Path, sizes: Sizes, seed: int) -> Spoilt:
    """Spoil the store in ``path``; one seed, the same deeds."""
    rng = random.Random(seed)
    told, abnormal = befall(path, sizes, rng, KINDS, LAST)
    flags = {name: value for name, value in random_flags(rng).items() if name in FLAGS}
    return Spoilt(path, Conf(sizes, flags | dledger()), told, abnormal)


def read_log(store: Path, release: str, crc: bool) -> list[LogRecord]:
    """The good records of both logs, each where it says that it lies."""
    found = []
    folders = [store / "commitlog", store / NODE / "data"]
    for path in (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()) if path.name.isdigit()):
        data, at = path.read_bytes(), 0
        while (at := data.find(b"\xda\xa3\x20", at)) >= 0:
            record = good_record(data, at - 4, int(path.name), release, crc) if at >= 4 else None
            found += [record] if record else []
            at = at - 4 + record.size if record else at + 1
    return found


def _disk(store: Path, hash_slots: int) -> Disk:
    disk = read_disk(store, hash_slots)
    folder = store / NODE / "data"
    return replace(disk, segments=(*disk.segments, *sorted(path.name for path in folder.iterdir() if path.is_file())))


def _blank_at(files: list[tuple[int, bytes]], max_offset: int, size: int) -> int:
    """The bytes of the blank that stands at ``max_offset``; 0 for none."""
    begin = max_offset - max_offset % size
    data = next((data for start, data in files if start == begin), b"")
    return begin + size - max_offset if data[max_offset - begin :][:4] == b"\xff\xff\xff\xff" else 0


def judged(real: RealStores, scratch: Path, seed: int, count: int) -> Iterator[Judged]:
    """The stores of the seeds from ``seed`` on."""
    for number, base in based(make_base, real, scratch, range(seed, seed + count), PER_BASE):
        store = scratch / str(number)
        copied(base.path, store)
        spoilt = spoil(store, base.sizes, number)
        yield judge(real, store, spoilt, scratch, number)


def judge(real: RealStores, store: Path, spoilt: Spoilt, scratch: Path, seed: int) -> Judged:
    """Predict the start of a store, start it, and compare; the store is gone then."""
    conf = spoilt.conf
    said = predict(store, real.release, conf, scratch)
    before = _disk(store, conf.sizes.hash_slots)
    log = read_log(store, real.release, conf.flag("checkCRCOnRecover", True))
    files = [
        (int(path.name), path.read_bytes().rstrip(b"\0")) for path in spoil_dledger.data_files(store) if path.name.isdigit()
    ]
    told = real.start(store, conf)
    if not told.loads or isinstance(said, str):
        shutil.rmtree(store, ignore_errors=True)
        if isinstance(said, str):
            return Judged(seed, spoilt, None, told.loads, said)
        outcome = Outcome(real.release, spoilt.abnormal, told, before, before, log, 0, False, True, False)
        return Judged(seed, spoilt, compare(said, outcome), told.loads)
    after = _disk(store, conf.sizes.hash_slots)
    real.leave(store)
    shutil.rmtree(store, ignore_errors=True)
    end = max((start + len(data) for start, data in files if data), default=0)
    blank = _blank_at(files, told.max_offset, conf.sizes.segment)
    indexed = conf.flag("messageIndexEnable", True)
    # DLedger recovers entries, the broker then dispatches from elsewhere on: as if all of it was dispatched once more.
    outcome = Outcome(real.release, spoilt.abnormal, told, before, after, log, end, False, indexed, True, blank)
    return Judged(seed, spoilt, compare(said, outcome), told.loads)


SWEEP = Sweep("dledger_sweep", 300, VERSIONS, judged, LIFETIME)

if __name__ == "__main__":
    sys.exit(SWEEP.main(__doc__))
