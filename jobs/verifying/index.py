"""The index's part of a verify: check each IndexFile in itself, then all of their items against the log's."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import FILES_TOLD, LOST_TOLD, VerifySummary, lost_example
from rocketmq_reindex.storage_format.checks.checkpoint import IndexEnd
from rocketmq_reindex.storage_format.checks.differences import EXAMPLES_MAX, Tally
from rocketmq_reindex.storage_format.checks.index_neighbours import LogFacts, Neighbour, empty_headers, out_of_order
from rocketmq_reindex.storage_format.file_names import is_index_file
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.verify.index import CheckIndex, IndexPlace
from rocketmq_reindex.udfs.verify.items import CompareItems, IndexItems, Lost, Span

FOLDER: Final = "index"
TASKS_PER_CORE: Final = 4


@dataclass
class IndexResult:
    """What the comparison of items says."""

    tally: Tally = field(default_factory=Tally)
    lost: list[Lost] = field(default_factory=list)
    repeats: int = 0

    def take(self, words: list[str]) -> None:
        found = [json.loads(word) for word in words]
        for word in found:
            self.tally.merge(Tally.from_json(word["tally"]))
            self.repeats += word["repeats"]
        for stretch in sorted((Lost(*fields) for word in found for fields in word["lost"]), key=lambda lost: lost.first):
            # One that ends where a task's part of the log ends may go on in the next one's.
            if self.lost and self.lost[-1].closes and stretch.opens:
                self.lost[-1].join(stretch)
            else:
                self.lost.append(stretch)

    def tell(self, tally: Tally, summary: VerifySummary) -> None:
        stretches = [{k: v for k, v in vars(lost).items() if k not in ("opens", "closes")} for lost in self.lost]
        summary.lost_keys = stretches[:LOST_TOLD]
        if "index-item-missing" in self.tally.counts:
            self.tally.examples["index-item-missing"] = [lost_example(stretch) for stretch in stretches[:EXAMPLES_MAX]]
        tally.merge(self.tally)
        summary.items_there = summary.items - self.tally.counts.get("index-item-missing", 0)
        if self.repeats:
            told = f"{counted(self.repeats, 'item')} {'is' if self.repeats == 1 else 'are'} there twice"
            summary.notes.append(f"{told}: a broker dispatched its last record again at a start")


@dataclass
class Index:
    scan: Scan
    settings: VerifySettings
    checked: list[dict[str, Any]] = field(default_factory=list)

    def _places(self) -> list[IndexPlace]:
        """The files that a broker loads, in the order of their names as strings (``IndexService.load``)."""
        build, trimmed = self.settings.build, self.settings.trimmed
        named = [(name, entry.path) for name, entry in self._entries() if entry.kind == files.FILE and is_index_file(name)]
        sizes = build.hash_slots, build.index_items
        return [IndexPlace(k, name, path, *sizes, trimmed) for k, (name, path) in enumerate(sorted(named))]

    def _entries(self) -> list[tuple[str, files.Entry]]:
        """What lies in index/, by its name in a store. What the manifest of a build does not name, no fetch brings there."""
        found, names = entries_of(files.join(self.settings.build.store, FOLDER)), self.settings.index_names
        if self.settings.trimmed:
            return [(names[entry.name], entry) for entry in found if entry.name in names]
        return [(entry.name, entry) for entry in found]

    def check_files(self, log_start: int, summary: VerifySummary) -> Tally:
        """Check each file by itself; ``checked`` then holds what is known of it."""
        scan, places, tally = self.scan, self._places(), Tally()
        for name, entry in self._entries():
            if entry.kind != files.FILE or not is_index_file(name):
                text = "a folder" if entry.kind == files.FOLDER else "its name is no number"
                tally.add("index-file-name", 1, f"index/{escape(name)}", 0, text)
        if places:
            plan = files.join(scan.stage.plans, "index-files")
            data = json.dumps([dataclasses.asdict(place) for place in places]).encode()
            files.write_bytes(scan.stage.temporary, plan, [data])
            words = scan.engine.numbers(CheckIndex(scan.stage, plan, log_start), len(places))
            self.checked = sorted((json.loads(word) for word in words), key=lambda word: int(word["number"]))
        for word in self.checked:
            tally.merge(Tally.from_json(word["tally"]))
        for before, after in out_of_order(self._neighbours()):
            text = f"begins at offset {after.first}, {escape(before.name)} ends at {before.last}"
            tally.add("index-order", 1, f"index/{escape(after.name)}", 1, text)
        summary.files["index"] = len(places)
        summary.sizes["index"] = sum(word["size"] for word in self.checked)
        told = ("name", "size", "used", "sealed", "header", "slots_used", "longest_chain", "chains")
        readable = [word for word in self.checked if word["readable"]]
        summary.index_list = [{k: word[k] for k in told} for word in readable[:FILES_TOLD]]
        return tally

    def _neighbours(self) -> list[Neighbour]:
        return [
            Neighbour(word["name"], IndexHeader(**word["header"]), word["used"], word["first"], word["last"])
            if word["readable"] else Neighbour(word["name"], None, 0)
            for word in self.checked
        ]  # fmt: skip

    def _judge_empty(self, accepted: list[RangeSummary], log_start: int, unread: bool, tally: Tally) -> None:
        """Headers of files without items; ``tally`` is what the comparison of items found."""
        neighbours = self._neighbours()
        whole = not unread and "index-item-missing" not in tally.counts and not any(out_of_order(neighbours))
        last, latest = max((s.last_dispatched for s in accepted), default=-1), max((s.time_max for s in accepted), default=0)
        for file, value, text in empty_headers(neighbours, LogFacts(log_start, last, latest, whole)):
            tally.add("index-header", 1, f"index/{escape(file.name)}", value, text)

    def compare(
        self, accepted: list[RangeSummary], segments: list[Segment], unread: tuple[tuple[int, int], ...]
    ) -> IndexResult:
        scan, result = self.scan, IndexResult()
        spans = _spans(accepted, segments, unread)
        tables = self._tables(segments[0].start if segments else 0)
        plan = files.join(scan.stage.plans, "index-items")
        fields = {"spans": [dataclasses.astuple(s) for s in spans], "files": [dataclasses.astuple(t) for t in tables]}
        files.write_bytes(scan.stage.temporary, plan, [json.dumps(fields).encode()])
        tasks = max(1, min(len(spans), TASKS_PER_CORE * scan.engine.cores))
        result.take(scan.engine.numbers(CompareItems(plan, tasks), tasks))
        self._judge_empty(accepted, segments[0].start if segments else 0, bool(unread), result.tally)
        return result

    def _tables(self, log_start: int) -> list[IndexItems]:
        """What the comparison needs of the files. A first file's first time comes of one that may have expired."""
        inherited, tables = 0 if log_start == 0 else -1, []
        places = {place.number: place for place in self._places()}
        for word in self.checked:
            if not word["readable"]:
                inherited = -1
                continue
            header, place = word["header"], places[word["number"]]
            if word["used"]:
                tables.append(
                    IndexItems(
                        word["name"], place.path, place.slots, word["used"], header["begin_time"], header["end_time"],
                        inherited, word["low"], word["high"], word["chunks"],
                    )
                )  # fmt: skip
            inherited = max(0, header["end_time"])
        return tables

    def ends(self) -> list[IndexEnd]:
        """What the checkpoint has to do with each file, in the order of the log: read from the headers alone."""
        found = []
        for place in self._places():
            with files.Reader(place.path) as reader:
                size = reader.size()
                if size < HEADER_SIZE:
                    continue
                header = IndexHeader.from_bytes(reader.read(0, HEADER_SIZE))
                at = HEADER_SIZE + SLOT_SIZE * place.slots + ITEM_SIZE * (place.items - 1)
                last = reader.read(at, ITEM_SIZE) if at + ITEM_SIZE <= size else b""
            full = header.index_count >= place.items
            sealed = full and not any(last)
            items = max(0, header.index_count - 1)
            found.append(IndexEnd(place.name, header.end_time, items, full, sealed, header.end_place))
        # By names, but for a file that was renamed: that is told, and costs no word more here.
        return sorted(found, key=lambda file: file.end_place)


def _spans(accepted: list[RangeSummary], segments: list[Segment], unread: tuple[tuple[int, int], ...]) -> list[Span]:
    """The log cut where its ranges begin. What lies before, between and behind them has no items."""
    if not accepted:
        return [Span(segments[0].start if segments else 0, INT64_MAX, "", 0)] if not unread else []
    spans, starts = [], [segment.start for segment in segments]
    ordered = sorted(accepted, key=lambda s: s.low)
    lows = [s.low for s in ordered]
    if not unread:
        lows[0] = starts[0]
    for number, summary in enumerate(ordered):
        high = lows[number + 1] if number + 1 < len(ordered) else INT64_MAX
        # A sample says nothing of what follows its segment.
        high = min([high, *(low for low, _ in unread if low >= summary.high)])
        spans.append(Span(lows[number], high, summary.block, summary.items))
    return spans
