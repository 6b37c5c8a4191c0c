"""The parts of a verify for index and checkpoint: each by itself, then against the log."""

import dataclasses
import functools
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.engines.engine import DERIVED_BYTES, task_count
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import FILES_LISTED, LOST_LISTED, PartFindings, lost_example
from rocketmq_reindex.jobs.watching.progress import StageWork
from rocketmq_reindex.storage_format.checkpoints import SIZE as CHECKPOINT_SIZE
from rocketmq_reindex.storage_format.checks import checkpoint, differences as checks_differences, index as checks_index
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rocketmq_reindex.storage_format.layouts import INDEX, INT64_MAX, is_index_file
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.verify import index as verify_index, items as verify_items

# ------------------------------------------------------------------------------------------------------------------------ index
# The index's part of a verify: check each IndexFile in itself, then all of their items against the log's.


@dataclass
class IndexResult:
    """The results of all comparisons of items together."""

    tally: checks_differences.Tally = field(default_factory=checks_differences.Tally)
    lost: list[verify_index.Lost] = field(default_factory=list)
    """stretches of the log whose keys are not in the index, in order"""
    repeats: int = 0
    """items that are there twice"""
    keys: int = 0
    """items that the log has of keys"""
    tags: verify_index.TagsFound = field(default_factory=verify_index.TagsFound)
    standing: checks_differences.Tally = field(default_factory=checks_differences.Tally)
    """the tag items that stand, as differences of a store that should have none"""

    def take(self, results: list[verify_items.ItemsResult]) -> None:
        """Add the results of tasks."""
        for result in sorted(results, key=lambda result: result.first):
            self.tally.merge(result.tally)
            self.repeats += result.repeats
            self.keys += result.expected
            self.tags.add(result.tags)
            self.standing.merge(result.standing)
        for stretch in sorted((lost for result in results for lost in result.lost), key=lambda lost: lost.first):
            verify_index.put_stretch(self.lost, stretch)

    def findings(self, settings: VerifySettings) -> PartFindings:
        """Return what the run takes over; ``settings`` say by which version."""
        findings, stretches = PartFindings(self.tally), _shown(self.lost)
        findings.figures = {
            "lost_keys": stretches[:LOST_LISTED],
            "items": self.keys,
            "items_there": self.keys - self.tally.counts.get("index-item-missing", 0),
        }
        if "index-item-missing" in self.tally.counts:
            self.tally.examples["index-item-missing"] = [
                lost_example(stretch) for stretch in stretches[: checks_differences.EXAMPLES_MAX]
            ]
        if settings.rules.tag_items:
            self._judge_tags(findings, "broker_version" in settings.named)
        else:
            findings.tally.merge(self.standing)
        if self.repeats:
            items = f"{counted(self.repeats, 'item')} {'is' if self.repeats == 1 else 'are'} there twice"
            findings.notes.append(f"{items}: a broker dispatched its last record again at a start")
        return findings

    def _judge_tags(self, findings: PartFindings, named: bool) -> None:
        """Tell records that lost their tag item from those that a broker before 5.4 indexed.

        From the first tag item to the last each record with TAGS has its own. Before that, and behind it, keys without tag
        items are those of an older broker; where keys are gone as well, the tag items are gone with them. One record alone
        with its keys, behind all others, is where an index ends early. With a version that was ``named``, a store without any
        tag item is none of that version.
        """
        tags, lost = self.tags, list(self.tags.between)
        for side, place in ((tags.before, f" before offset {tags.first}"), (tags.behind, f" behind offset {tags.last}")):
            if side.lost is None:
                continue
            ends_early = side is tags.behind and side.old == 1
            if side.is_older and not ends_early and (tags.standing or not named):
                where = place if tags.standing else ""
                findings.notes.append(
                    f"no items of TAGS for {counted(side.count, 'record')}{where}, as a broker before 5.4 leaves it: no query "
                    "by tag finds them in the index, until a build makes it anew"
                )
            else:
                lost = [side.lost, *lost] if side is tags.before else [*lost, side.lost]
        stretches = _shown(lost)
        missing = sum(stretch.records for stretch in lost)
        if missing:
            findings.tally.add("index-tag-missing", missing, "index", lost[0].first, "")
            findings.tally.examples["index-tag-missing"] = [
                lost_example(stretch, "tag item") for stretch in stretches[: checks_differences.EXAMPLES_MAX]
            ]
        findings.figures["lost_tags"] = stretches[:LOST_LISTED]
        findings.figures |= {"tag_items": tags.standing + missing, "tag_items_there": tags.standing}


def _shown(stretches: list[verify_index.Lost]) -> list[dict[str, int]]:
    return [{k: v for k, v in vars(lost).items() if k not in ("opens", "closes")} for lost in stretches]


@dataclass
class IndexComparison:
    """The IndexFiles of the store, and their comparison with the log."""

    scan: Scan
    settings: VerifySettings
    checked: list[verify_index.IndexFileCheck] = field(default_factory=list)
    """by number, once ``check_files`` has run"""

    @functools.cached_property
    def _listed(self) -> list[verify_index.ListedIndexFile]:
        """The files that a broker loads, in the order of their names as strings (``IndexService.load``, 5.3).

        They are listed once: one may go away meanwhile.
        """
        named = [(name, entry.path) for name, entry in self._entries() if entry.kind == files.FILE and is_index_file(name)]
        sizes = self.settings.hash_slots, self.settings.index_items
        trimmed = self.settings.trimmed
        return [verify_index.ListedIndexFile(k, name, path, *sizes, trimmed) for k, (name, path) in enumerate(sorted(named))]

    def _entries(self) -> list[tuple[str, files.Entry]]:
        """Return the entries of index/ by their names in a store. No fetch brings what a build's manifest does not name."""
        entries, names = entries_in(files.join(self.settings.store, INDEX)), self.settings.index_names
        if self.settings.trimmed:
            return [(names[entry.name], entry) for entry in entries if entry.name in names]
        return [(entry.name, entry) for entry in entries]

    def check_files(self, log_start: int) -> PartFindings:
        """Return what is wrong with each file by itself; ``checked`` then holds what is known of it."""
        scan, listed, tally = self.scan, self._listed, checks_differences.Tally()
        for name, entry in self._entries():
            if entry.kind != files.FILE or not is_index_file(name):
                text = "a folder" if entry.kind == files.FOLDER else "its name is no number"
                tally.add("index-file-name", 1, f"index/{escape(name)}", 0, text)
        if listed:
            plan = handover.write_plan(scan.staging, "index-files", listed)
            checks = verify_index.IndexFileCheck.read(
                scan.engine.numbers(verify_index.CheckIndex(scan.staging, plan, log_start), len(listed))
            )
            self.checked = sorted(checks, key=lambda check: check.number)
        for check in self.checked:
            tally.merge(check.tally)
        for before, after in checks_index.out_of_order(self._neighbours()):
            text = f"begins at offset {after.first}, {escape(before.name)} ends at {before.last}"
            tally.add("index-order", 1, f"index/{escape(after.name)}", 1, text)
        sizes = {"index": sum(check.size for check in self.checked)}
        shown = ("name", "size", "used", "sealed", "header", "slots_used", "longest_chain", "chains")
        readable = [check for check in self.checked if check.readable]
        index_list = [{name: getattr(check, name) for name in shown} for check in readable[:FILES_LISTED]]
        figures = {"files": {"index": len(listed)}, "sizes": sizes, "index_list": index_list}
        return PartFindings(tally, figures=figures)

    def checks(self) -> StageWork:
        """Return the files that ``check_files`` checks, and a probe of how many it has."""
        total, staging = len(self._listed), self.scan.staging

        def probe() -> tuple[int, float]:
            done = sum(name.startswith(verify_index.CHUNKS) for name in files.names(staging.plans))
            return done, done / total if total else 0

        return StageWork("files", total, 0, probe)

    def _neighbours(self) -> list[checks_index.Neighbour]:
        return [
            checks_index.Neighbour(check.name, IndexHeader(**check.header), check.used, check.first, check.last)
            if check.readable else checks_index.Neighbour(check.name, None, 0)
            for check in self.checked
        ]  # fmt: skip

    def _check_empty(self, accepted: list[RangeSummary], log_start: int, unread: bool, tally: checks_differences.Tally) -> None:
        """Check the headers of files without items; ``tally`` has what the comparison of items found."""
        neighbours = self._neighbours()
        whole = not unread and "index-item-missing" not in tally.counts and not any(checks_index.out_of_order(neighbours))
        last, latest = max((s.last_dispatched for s in accepted), default=-1), max((s.time_max for s in accepted), default=0)
        for file, value, text in checks_index.empty_headers(neighbours, checks_index.LogFacts(log_start, last, latest, whole)):
            tally.add("index-header", 1, f"index/{escape(file.name)}", value, text)

    def compare(
        self, accepted: list[RangeSummary], segments: list[Segment], unread: tuple[tuple[int, int], ...]
    ) -> IndexResult:
        """Return how the items of all files differ from the keys of the log; ``unread`` as in ``Queues``."""
        scan, result = self.scan, IndexResult()
        spans, tasks = self._shared(accepted, segments, unread)
        tables = self._tables(segments[0].start if segments else 0)
        plan = handover.write_plan(scan.staging, "index-items", [spans, tables])
        result.take(
            verify_items.ItemsResult.read(scan.engine.numbers(verify_items.CompareItems(scan.staging, plan, tasks), tasks))
        )
        self._check_empty(accepted, segments[0].start if segments else 0, bool(unread), result.tally)
        return result

    def items(self, accepted: list[RangeSummary], segments: list[Segment], unread: tuple[tuple[int, int], ...]) -> StageWork:
        """Return the items of the log that are compared, and a probe of how many are; arguments as for ``compare``."""
        spans, tasks = self._shared(accepted, segments, unread)
        items = {f"items-{k}": sum(span.items for span in handover.share(spans, k, tasks)) for k in range(tasks)}
        return StageWork.of_tasks(self.scan.staging, "items of keys and TAGS", items)

    def _shared(
        self, accepted: list[RangeSummary], segments: list[Segment], unread: tuple[tuple[int, int], ...]
    ) -> tuple[list[verify_items.ItemSpan], int]:
        """Return the stretches of the log, and how many tasks share them."""
        spans, size = _spans(accepted, segments, unread), sum(summary.high - summary.low for summary in accepted)
        return spans, max(1, task_count(len(spans), size, self.scan.engine.cores, DERIVED_BYTES))

    def _tables(self, log_start: int) -> list[verify_items.CheckedIndexFile]:
        """Return what the comparison needs of the files. A first file inherits a time from one that may have expired."""
        inherited, tables = 0 if log_start == 0 else -1, []
        listed = {file.number: file for file in self._listed}
        for check in self.checked:
            if not check.readable:
                inherited = -1
                continue
            header, file = check.header, listed[check.number]
            if check.used:
                tables.append(
                    verify_items.CheckedIndexFile(
                        check.name, file.path, file.slots, check.used, header["begin_time"], header["end_time"],
                        inherited, check.low, check.high, check.chunks,
                    )
                )  # fmt: skip
            inherited = max(0, header["end_time"])
        return tables

    def ends(self) -> list[checkpoint.IndexEnd]:
        """Return the ends of the files, in the order of the log, which the checkpoint must match. Only headers are read."""
        ends = []
        for listed in self._listed:
            with files.Reader(listed.path) as reader:
                size = reader.size()
                if size < HEADER_SIZE:
                    continue
                header = IndexHeader.from_bytes(reader.read(0, HEADER_SIZE))
                at = HEADER_SIZE + SLOT_SIZE * listed.slots + ITEM_SIZE * (listed.items - 1)
                last = reader.read(at, ITEM_SIZE) if at + ITEM_SIZE <= size else b""
            full = header.index_count >= listed.items
            sealed = full and not any(last)
            items = max(0, header.index_count - 1)
            ends.append(checkpoint.IndexEnd(listed.name, header.end_time, items, full, sealed, header.end_place))
        # The names give the same order, but for a file that was renamed, which is a difference of its own.
        return sorted(ends, key=lambda file: file.end_place)


def _spans(
    accepted: list[RangeSummary], segments: list[Segment], unread: tuple[tuple[int, int], ...]
) -> list[verify_items.ItemSpan]:
    """Return the log in spans that begin with its ranges. What lies before, between and after the ranges has no items."""
    if not accepted:
        return [verify_items.ItemSpan(segments[0].start if segments else 0, INT64_MAX, "", 0)] if not unread else []
    spans, starts = [], [segment.start for segment in segments]
    ordered = sorted(accepted, key=lambda s: s.low)
    # The record of an entry lies behind its header: those of a range reach as far into the next one.
    leads = [segment.lead for segment in segments]
    lows = [s.low + leads[bisect_right(starts, s.low) - 1] for s in ordered]
    if not unread:
        lows[0] = starts[0]
    for number, summary in enumerate(ordered):
        high = lows[number + 1] if number + 1 < len(ordered) else INT64_MAX
        # A sample says nothing about what follows its segment.
        high = min([high, *(low for low, _ in unread if low >= summary.high)])
        spans.append(verify_items.ItemSpan(lows[number], high, summary.block, summary.items))
    return spans


# ------------------------------------------------------------------------------------------------------------------- checkpoint
# The checkpoint's part of a verify.

CHECKPOINT_READ: Final = 1 << 20
"""bytes that are read of it at most"""


def check_checkpoint(
    settings: VerifySettings, log: Commitlog, accepted: list[RangeSummary], index: IndexComparison
) -> PartFindings:
    """Return how the store's checkpoint (``StoreCheckpoint``) differs from what the log and the IndexFiles say."""
    findings, store = PartFindings(), settings.store
    if files.entry_of(files.join(store, "abort")).kind != files.ABSENT:
        findings.tally.add("abort-file", 1, "abort", 0, "is there")
    path = files.join(store, "checkpoint")
    if files.entry_of(path).kind != files.FILE:
        findings.tally.add("checkpoint-missing", 1, "checkpoint", 0, "is not there")
        return findings
    with files.Reader(path) as reader:
        data = reader.read(0, min(reader.size(), CHECKPOINT_READ))
    if settings.trimmed:
        data = data.ljust(CHECKPOINT_SIZE, b"\0")
    dispatched = [s for s in accepted if s.records]
    with_units = [s for s in accepted if s.unit_records]
    times = checkpoint.LogBounds(
        log.segments[0].start if log.segments else 0,
        log.segments[-1].segment_end if log.segments else 0,
        dispatched[-1].last_time if dispatched else 0,
        with_units[-1].last_unit_time if with_units else 0,
        len(dispatched),
        len(with_units),
        max((s.time_max for s in dispatched), default=0),
        dispatched[-1].last_dispatched if dispatched else 0,
        bool(settings.database),
    )
    stored, differences, usual = checkpoint.compare_checkpoint(data, times, index.ends(), settings.rules)
    findings.tally.merge(differences)
    findings.figures["checkpoint"] = dataclasses.asdict(stored)
    if usual:
        findings.notes.append(
            f"the next crash deletes the last IndexFile ({counted(usual, 'item')}), as with any broker: "
            "a build seals it, then no crash does"
        )
    if 0 < stored.physic < min(times.last_time, times.last_unit_time) and "checkpoint-stale" not in differences.counts:
        findings.notes.append(
            "the checkpoint's physicMsgTimestamp is older than the last record, as a clean stop right after it leaves it: "
            "the next crash dispatches more again"
        )
    if times.log_end < stored.master_flushed and "checkpoint-master" not in differences.counts:
        behind = stored.master_flushed - times.log_end
        findings.notes.append(
            f"masterFlushedOffset {stored.master_flushed} lies {behind:,} bytes behind the log's end: "
            "the store is a replica's, which had not caught up with its master"
        )
    return findings
