"""Many damaged places in one log: with salvage every undamaged record has its unit and its items, and no damaged one has."""

from __future__ import annotations

import random
import struct
from collections import Counter
from functools import partial
from pathlib import Path

from rocketmq_reindex.jobs.building.summary import BuildResult
from tests.fault.case import Case, Segments, some_range_size, some_settings
from tests.fault.layout import Laid, flip, laid_records, overwrite
from tests.fault.stores import orderly_store
from tests.golden.stores import read_files
from tests.reference import consume_queue as cq, java, records
from tests.reference.index_file import key_hash
from tests.reference.settings import Settings

FLIPPED = ("MAGICCODE", "BODYCRC", "PHYSICALOFFSET", "BODY", "TOTALSIZE", "BODYLENGTH")
"""One bit of these is always seen."""
KINDS = (*FLIPPED, "zeros", "garbage", "garbage over two", "size", "body length")
PER_PLACE = 6
"""Records of the log for each damaged place."""


def make(seed: int, number: int) -> Case:
    """``number`` damaged places in one log."""
    rng = random.Random(f"salvage {seed} {number}")
    segments = orderly_store(seed, PER_PLACE * number)[0]
    laid = laid_records(segments)
    hit = sorted(rng.sample(range(len(laid)), k=number))
    spoilt, damaged = segments, set[int]()
    for at in hit:
        spoilt = _spoil(spoilt, laid, at, rng, damaged)
    settings = some_settings(
        rng, on_damage="salvage", queue_order=rng.choice(("logical", "broker")), broker_version="5.5", lmq=True,
        max_fill=10**6, crc=rng.choice(("body", "all")),
    )  # fmt: skip
    whole = [record for k, record in enumerate(laid) if k not in damaged]
    extra = partial(_all_there, segments, whole, settings["queue_order"] == "logical")
    field = f"{number} places, {len(damaged)} of {len(laid)} records, {settings['queue_order']}"
    return Case("salvage", seed, number, field, spoilt, settings, some_range_size(rng), extra)


def _spoil(segments: Segments, laid: list[Laid], which: int, rng: random.Random, damaged: set[int]) -> Segments:
    """Hit one record, or it and the next; their numbers go to ``damaged``."""
    record = laid[which]
    damaged.add(which)
    kind = rng.choice(KINDS)
    if kind in FLIPPED:
        at, length = record.fields[kind]
        return flip(segments, record.segment, at + rng.randrange(length), rng.randrange(8))
    if kind in ("size", "body length"):
        at = record.fields["TOTALSIZE" if kind == "size" else "BODYLENGTH"][0]
        there = int.from_bytes(segments[record.segment][at : at + 4], "big", signed=True)
        values = {0, 1, -1, -(2**31), 2**31 - 1, there - 4, there + 4, there - 90, there + 500} - {there}
        value = rng.choice(sorted(values))
        return overwrite(segments, record.segment, at, struct.pack(">i", value))
    low, length = record.at, record.size
    if kind == "garbage over two" and which + 1 < len(laid) and laid[which + 1].segment == record.segment:
        # Into the next one's magic at least.
        low += rng.randrange(record.fields["BODY"][0] - record.at)
        length = record.at + record.size - low + rng.randrange(8, 60)
        damaged.add(which + 1)
    data = bytes(length) if kind == "zeros" else rng.randbytes(length)
    return overwrite(segments, record.segment, low, data)


def _all_there(segments: Segments, whole: list[Laid], logical: bool, summary: BuildResult, out: Path) -> list[str]:
    """What is missing or too many, record by record; parsed from the log as it was before it was spoilt."""
    if summary.exit not in (0, 3):
        return [f"exit {summary.exit}: {summary.error}"]
    files = read_files(out)
    units, items = _units(files), _items(files)
    anywhere = {(*key[:2], unit) for key, unit in units.items()}
    found: list[str] = [] if summary.records == len(whole) else [f"{summary.records} records instead of {len(whole)}"]
    rules = Settings(lmq=True)
    known: set[int] = set()
    for laid in whole:
        base, data = int(laid.segment), segments[laid.segment]
        record = records.parse(data, laid.at, base, base + len(data), rules)
        assert isinstance(record, records.Record)
        known.add(record.offset)
        for (name, queue_id), unit in cq.dispatches(record, once=True):
            key = (java.python_text(name), queue_id)
            wanted = (unit.record, unit.size, unit.tags_code)
            there = units.get((*key, unit.queue_offset)) == wanted if logical else (*key, wanted) in anywhere
            if not there:
                found.append(f"record {record.offset}: no unit in {key} for {unit.queue_offset}")
        for text in record.index_keys():
            items[key_hash(text), record.offset] -= 1
    found += [f"item {item}: {-count} missing" if count < 0 else f"item {item}: {count} too many"
              for item, count in items.items() if count]  # fmt: skip
    of = {offset for offset, _, _ in units.values()}
    return found + [f"a unit for {offset}, where no undamaged record lies" for offset in sorted(of - known)]


def _units(files: dict[str, bytes]) -> dict[tuple[str, int, int], tuple[int, int, int]]:
    """(topic, queue, position): unit."""
    found = {}
    for path, content in files.items():
        if path.startswith("consumequeue/"):
            _, topic, queue, name = path.split("/")
            for number, unit in enumerate(struct.iter_unpack(">qiq", content)):
                if unit[1] not in (0, 2**31 - 1):
                    found[topic, int(queue), int(name) // 20 + number] = unit
    return found


def _items(files: dict[str, bytes]) -> Counter[tuple[int, int]]:
    """(key hash, offset): how often it is in the index."""
    found: Counter[tuple[int, int]] = Counter()
    for path, content in files.items():
        if path.startswith("index/"):
            for hashed, offset, _, _ in struct.iter_unpack(">iqii", content[40 + 4 * 50 :]):
                found[hashed, offset] += 1
    del found[0, 0]
    return found
