"""What must hold of any log: of its builds, of what a repair makes of it, and of a repair of that."""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
from rocketmq_reindex.storage_format.record.layout import OUT_OF_LINE
from tests.preflight.log_walk import read_log
from tests.preflight.predicted import predict
from tests.preflight.settings import Conf, Sizes
from tests.reference.build import reference_build
from tests.repair.odd_logs import SEGMENT, OddLog
from tests.repair.repaired import DERIVED, tree
from tests.tools.local_engine import InlineEngine, local_build, local_repair
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import Put

Queue = tuple[str, int]
Units = dict[int, tuple[int, int]]
"""(phy_offset, size) by position"""
SHOWN = 4
RELEASES = {"4.9": "4.9.8", "5.3": "5.3.3", "5.4": "5.4.0", "5.5": "5.5.1"}
SAME_VERSION = 25
"""Seeds in a row whose logs are for one version."""
PRE_BLANK = (0, 2**31 - 1)
BEGUN = "queue-last-file-empty"
NO_LOG = "does not begin with a RocketMQ record"


@dataclass
class OddVerdict:
    """Of one odd log: what is wrong, and how often what was met. ``out`` is its repaired store, None where there is none."""

    seed: int
    deeds: list[str]
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    out: Path | None = None
    version: str = ""
    conf: Conf | None = None
    served: dict[Queue, list[int]] = field(default_factory=dict)
    """where the messages of each queue lie, by position: what a consumer is to be given"""
    blank_heads: set[Queue] = field(default_factory=set)
    """queues of a log that begins at 0 with units before their first record that stand for nothing"""
    crashed: bool = False
    """whether the repaired store is to be started as after a crash"""
    refused: bool = False
    """whether preflight says that the broker does not start, since its recovery begins an empty ConsumeQueue file"""
    emptied: bool = False
    """whether preflight says that this file hides the units before it, though the broker starts"""
    without_unit: int = 0
    """records of the repaired log that have none, and behind which their queue did not begin again at 0"""

    def lines(self) -> list[str]:
        """What is wrong, after a line with what repeats it."""
        return [f"--one {self.seed} ({'; '.join(self.deeds)}):", *(f"  {words}" for words in self.wrong)] if self.wrong else []


def judge(log: OddLog, scratch: Path, seed: int, crashed: bool | None = None) -> OddVerdict:
    """Build, verify and repair the log under settings that the seed draws. The repaired store is left in ``scratch``."""
    verdict = OddVerdict(seed, log.deeds, crashed=seed % 2 == 1 if crashed is None else crashed)
    verdict.counts.update(logs=1, records=len(log.puts), sound=len(log.sound), damaged=bool(log.touched))
    try:
        _Judge(log, scratch, seed, verdict).judge()
    except Exception as error:  # noqa: BLE001  whatever comes out of a command but its own errors is a finding
        verdict.wrong.append(f"raised {type(error).__name__}: {error}")
    return verdict


def version_of(seed: int) -> str:
    """The version that is to take the log of a seed: the same for many seeds in a row, so that one JVM starts their stores."""
    return sorted(RELEASES)[seed // SAME_VERSION % len(RELEASES)]


class _Judge:
    def __init__(self, log: OddLog, scratch: Path, seed: int, verdict: OddVerdict) -> None:
        self._log, self._scratch, self._verdict = log, scratch, verdict
        self._rng = random.Random(f"judge {seed}")
        sizes = Sizes(SEGMENT, self._rng.choice((200, 400, 2000)), 7, self._rng.choice((20, 150)))
        self._version = version_of(seed)
        self._settings: dict[str, Any] = {
            "cq_file_size": sizes.cq_file, "hash_slots": sizes.hash_slots, "index_items": sizes.index_items,
            "segment_size": SEGMENT, "broker_version": self._version,
        }  # fmt: skip
        self._conf = Conf(sizes)
        verdict.version, verdict.conf = RELEASES[self._version], self._conf

    def judge(self) -> None:
        before = tree(self._log.store)
        # A file that is too short is refused, if it is not the last one.
        if all(path.stat().st_size == SEGMENT for path in sorted(self._log.log.iterdir())[:-1]):
            self._builds()
        self._repairs()
        if tree(self._log.store) != before:
            self._wrong("the store was changed")

    def _wrong(self, words: str) -> None:
        self._verdict.wrong.append(words)

    def _refused(self, what: str, told: BuildResult) -> None:
        """Only a log whose first segment has no sound record may be refused: nothing shows that it is one."""
        first = int(min(path.name for path in self._log.log.iterdir()))
        is_shown = any(first <= put.offset < first + SEGMENT for put in self._log.sound)
        if is_shown or NO_LOG not in str(told.error):
            self._wrong(f"{what} ends with {told.exit}: {told.error}")
        self._verdict.counts["refused as no log"] += 1

    def _cut(self) -> dict[str, Any]:
        """Another way to cut the work up each time."""
        size = self._rng.choice((0, self._rng.randrange(150, 1000), self._rng.randrange(1000, SEGMENT)))
        return {"range_size": size, "engine": InlineEngine(self._rng.randrange(1, 4), self._rng.randrange(1, 3))}

    # -- the log as it is ----------------------------------------------------------------------------------------------------

    def _builds(self) -> None:
        out, log = self._scratch / "built", self._log
        told = local_build(log.store, out, on_damage="salvage", **self._settings, **self._cut())
        if told.error:
            self._refused("salvage", told)
            return
        self._judge_served("salvage", out, told, log.sound)
        truth = reference_build(log.store, on_damage="salvage", **self._settings)
        found = tree(out, ("consumequeue/",))
        expected = {name: data for name, data in truth.files.items() if name.startswith("consumequeue/")}
        if found != expected or told.exit != truth.summary.exit:
            names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            self._wrong(f"salvage is not as the reference: exit {told.exit}, not {truth.summary.exit}; {names[:SHOWN]}")
        strict = local_build(log.store, self._scratch / "strict", **self._settings, **self._cut())
        damaged = any(not entry["reason"].startswith(("torn", "stale")) for entry in told.damage)
        if strict.exit != (5 if damaged else told.exit):
            self._wrong(f"build ends with {strict.exit}, where salvage has {told.exit}: {strict.error}")
        self._verify("the built", out, log.log, told)

    def _verify(self, what: str, built: Path, log: Path, told: BuildResult) -> None:
        store = self._scratch / "verified"
        lay_out(built, log, store)
        found = local_verify(store, **self._settings, range_size=self._cut()["range_size"])
        others = {kind for kind in kinds(found) if not kind.startswith("log-")}
        if others or found.error:
            self._wrong(f"verify of {what}: {found.error or sorted(kinds(found).items())}")
        elif not told.lost and set(kinds(found)) - {"log-segment-short"}:
            self._wrong(f"verify of {what}: {sorted(kinds(found).items())}, and the build ends with {told.exit}")
        shutil.rmtree(store)

    # -- what a repair makes of it -------------------------------------------------------------------------------------------

    def _repairs(self) -> None:
        out, log, tombstones = self._scratch / "out", self._log, self._rng.random() < 0.5
        told = local_repair(log.store, out, tombstones=tombstones, **self._settings, **self._cut())
        if told.error:
            self._refused(f"repair{' --tombstones' if tombstones else ''}", told)
            return
        assert told.repair is not None
        self._verdict.counts.update(repaired=bool(told.repair["ranges"]), tombstones=tombstones)
        # A record whose queue offset is sure to be wrong is damage.
        wrong = [
            (one["offset"], one["offset"] + one["length"]) for one in told.repair["ranges"] if OUT_OF_LINE in one["reason"]
        ]
        sound = [put for put in log.sound if not _meets(wrong, put)]
        self._verdict.counts["wrong offsets"] += len(log.sound) - len(sound)
        changed = [put.offset for put in sound if _bytes(log.log, put) != _bytes(out / "commitlog", put)]
        if changed:
            self._wrong(f"repair changes sound records: {changed[:SHOWN]}")
        self._judge_served("repair", out, told, sound, of_repair=True)
        queues = _queues(out)
        self._verdict.served = {queue: [units[at][0] for at in sorted(units)] for queue, units in queues.items()}
        if self._log.puts[0].offset < SEGMENT:
            self._verdict.blank_heads = {queue for queue, units in queues.items() if min(units) * 20 % self._conf.sizes.cq_file}
        pointed = {place for places in self._verdict.served.values() for place in places}
        kept = read_log(out / "commitlog", RELEASES[self._version], True)
        zeros = {record.offset for record in kept if record.queue_offset == 0}
        for record in kept:
            begins = queues.get((record.topic, record.queue), {}).get(0, (-1, 0))[0]
            if record.gets_unit and record.offset not in pointed and not (begins in zeros and record.offset < begins):
                self._verdict.without_unit += 1
        self._again(out, told, tombstones)
        self._verdict.out = out

    def _again(self, out: Path, told: RepairResult, tombstones: bool) -> None:
        again, built = self._scratch / "again", self._scratch / "rebuilt"
        unplaced = [entry for entry in told.damage if OUT_OF_LINE in entry["reason"] and not _in_ranges(told, entry["offset"])]
        pending = any(entry["kind"] == "pending" for entry in told.decisions)
        second = local_repair(out, again, tombstones=tombstones, **self._settings, **self._cut())
        if second.error or (second.repair or {})["ranges"] or second.exit != (3 if unplaced or pending else 0):
            ranges = (second.repair or {}).get("ranges", [])[:SHOWN]
            self._wrong(f"repair of the repaired ends with {second.exit}: {second.error or ranges or second.warnings[:SHOWN]}")
        else:
            if tree(again, ("commitlog/",)) != tree(out, ("commitlog/",)):
                self._wrong("repair of the repaired changes the log")
            if tree(again, DERIVED) != tree(out, DERIVED):
                self._wrong("repair of the repaired derives other files")
        policy = "salvage" if unplaced else "fail"
        third = local_build(out, built, on_damage=policy, **self._settings, **self._cut())
        if third.error or third.exit != (3 if unplaced or pending else 0):
            self._wrong(f"build of the repaired ends with {third.exit}: {third.error or third.warnings[:SHOWN]}")
        elif tree(built, DERIVED) != tree(out, DERIVED):
            self._wrong("build of the repaired makes other files")
        self._verify("the repaired", out, out / "commitlog", third)
        self._preflight(out)

    def _preflight(self, out: Path) -> None:
        store = self._scratch / "started"
        lay_out(out, out / "commitlog", store)
        if self._verdict.crashed:
            (store / "abort").touch()
        said = predict(store, RELEASES[self._version], self._conf, self._scratch)
        shutil.rmtree(store)
        if isinstance(said, str):
            self._wrong(f"preflight: {said}")
        else:
            # A queue that begins above 0 in a log without lost bytes before it: preflight says what a consumer is sent past.
            told = {"records-hidden", *(["messages-passed-over"] if self._verdict.blank_heads else [])}
            self._verdict.refused = [one["kind"] for one in said["refusals"]] == [BEGUN]
            if self._verdict.refused:
                commands = said["losses"][0]["commands"]
                if not all("--queue-order broker" in words for words in commands):
                    self._wrong(f"preflight of the repaired advises {commands}")
                return
            losses = [loss for loss in said["losses"] if loss["kind"] not in told]
            if losses or said["refusals"]:
                texts = [f"{loss['kind']}: {loss['text']}" for loss in losses[:SHOWN]]
                self._wrong(f"preflight of the repaired ({self._version}): {texts} {said['refusals'][:SHOWN]}")
            hidden = sum(loss["count"] for loss in said["losses"] if loss["kind"] == "records-hidden")
            self._verdict.emptied = any(queue["ends_blank"] for queue in said["queues"])
            if self._verdict.emptied:
                commands = next(loss["commands"] for loss in said["losses"] if loss["kind"] == "records-hidden")
                if hidden <= self._verdict.without_unit or not all("--queue-order broker" in words for words in commands):
                    self._wrong(f"preflight of the repaired: {hidden} records hidden, and it advises {commands}")
            elif hidden != self._verdict.without_unit:
                self._wrong(f"preflight of the repaired: {hidden} records hidden, {self._verdict.without_unit} have no unit")

    # -- what is served ------------------------------------------------------------------------------------------------------

    def _judge_served(self, what: str, out: Path, told: BuildResult, sound: Sequence[Put], of_repair: bool = False) -> None:
        """Each sound record has its unit at its own offset, or a later life of its topic has, or the summary names it.

        A later life may begin with a record that was touched where no checksum covers it.
        """
        queues, by_queue = _queues(out), dict[Queue, list[Put]]()
        for put in self._log.puts:
            by_queue.setdefault((str(put.message.topic), put.message.queue_id), []).append(put)
        offsets = {put.offset for put in sound}
        lost = [(one["offset"], one["offset"] + one["length"]) for one in told.damage if OUT_OF_LINE in one["reason"]]
        unplaced = 0
        for queue, puts in sorted(by_queue.items()):
            units = queues.get(queue, {})
            places = [units[at][0] for at in sorted(units)]
            if places != sorted(places):
                self._wrong(f"{what}: {queue} is not in the log's order")
            pending = sum(
                one["count"] for one in told.decisions if one["kind"] == "pending" and (one["topic"], one["queue"]) == queue
            )
            puts = [put for put in puts if put.offset in offsets or units.get(put.queue_offset, (-1,))[0] == put.offset]
            # The queue's last records that follow on each other are too few to tell: two at most.
            last, left = {put.offset for put in puts[-2:]}, pending
            unplaced += pending
            low = 2**63
            for put in reversed(puts):
                if units.get(put.queue_offset, (-1,))[0] == put.offset:
                    low = min(low, put.queue_offset)
                elif put.offset in last and left:
                    left -= 1
                elif _meets(lost, put):
                    unplaced += 1
                elif put.queue_offset < low:
                    self._wrong(
                        f"{what}: {queue}: offset {put.queue_offset} at {put.offset} is not served, and nothing says so"
                    )
                else:
                    self._verdict.counts["of earlier lives"] += of_repair
        if unplaced and not told.exit:
            self._wrong(f"{what}: exit 0, and {unplaced} records have no unit")
        if of_repair:
            self._verdict.counts["unplaced"] += unplaced


def _meets(stretches: Sequence[tuple[int, int]], put: Put) -> bool:
    return any(low < put.offset + put.size and put.offset < high for low, high in stretches)


def _in_ranges(told: RepairResult, offset: int) -> bool:
    assert told.repair is not None
    return any(one["offset"] <= offset < one["offset"] + one["length"] for one in told.repair["ranges"])


def _bytes(folder: Path, put: Put) -> bytes:
    with (folder / f"{put.offset // SEGMENT * SEGMENT:020d}").open("rb") as file:
        file.seek(put.offset % SEGMENT)
        return file.read(put.size)


def _queues(out: Path) -> dict[Queue, Units]:
    found: dict[Queue, Units] = {}
    for path in sorted((out / "consumequeue").glob("*/*/*")):
        units = found.setdefault((path.parts[-3], int(path.parts[-2])), {})
        for at, (phy_offset, size, _) in enumerate(struct.iter_unpack(">qiq", path.read_bytes()), int(path.name) // 20):
            if size and (phy_offset, size) != PRE_BLANK:
                units[at] = phy_offset, size
    return found


def lay_out(built: Path, log: Path, store: Path) -> None:
    """A store of a log, and of what was built from it."""
    for name in ("consumequeue", "index"):
        if (built / name).exists():
            shutil.copytree(built / name, store / name)
    shutil.copytree(log, store / "commitlog")
    shutil.copyfile(built / "checkpoint", store / "checkpoint")
