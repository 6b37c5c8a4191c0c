"""The page: one HTML file with everything in it, also when messages were stored. It loads nothing and runs nothing."""

import datetime as dt
import functools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from html import escape as html
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.jobs.reporting import plots
from rocketmq_reindex.jobs.reporting.model import IndexFileShown, Model, Queue
from rocketmq_reindex.jobs.reporting.parts import ChartBar, bars, differences, legend, said, section, table, whole
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.checks.index import slot_lengths
from rocketmq_reindex.storage_format.index.file import IndexView, open_index
from rocketmq_reindex.storage_format.kernels.raw_bytes import int64_at
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import store_time_at

# ------------------------------------------------------------------------------------------------------------------------ times
# When messages were stored, by topic: read at evenly spread units, so that a log of any size takes a second or two.
#
# A unit's position is a count, and its record has the time: nothing has to be read in between.

SAMPLES: Final = 20_000
"""Records looked at in all, but for the least of each topic."""
SAMPLES_OF_TOPIC: Final = 20
_HEADER: Final = r.AT_STORE_TIMESTAMP + r.IPV6_EXTRA + 8

Times = dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
"""by topic: milliseconds, and how many messages each stands for"""


def segments_of(commitlog: str) -> list[files.Entry]:
    """Return the segments in a folder, by their names."""
    return [e for e in files.listing(commitlog) if e.kind == files.FILE and layouts.first_byte(e.name) is not None]


class LogTimes:
    """Store times of records by their offsets. Files stay open until ``close``."""

    def __init__(self, folder: str) -> None:
        entries = segments_of(folder)
        self._starts = [int(entry.name) for entry in entries]
        self._entries = entries
        self._open: dict[int, files.Reader] = {}

    def time(self, phy_offset: int) -> int | None:
        """Return the store time of the record at an offset of the log, in milliseconds since 1970; None where there is no
        record."""
        number = bisect_right(self._starts, phy_offset) - 1
        if number < 0 or phy_offset + _HEADER > self._starts[number] + self._entries[number].size:
            return None
        if number not in self._open:
            self._open[number] = files.Reader(self._entries[number].path)
        data = np.frombuffer(self._open[number].read(phy_offset - self._starts[number], _HEADER), np.uint8)
        if int64_at(data, r.AT_PHYSICAL_OFFSET) != phy_offset:
            return None
        return store_time_at(data.data, 0)

    def close(self) -> None:
        for reader in self._open.values():
            reader.__exit__(None, None, None)


def message_times(model: Model, folder: str, commitlog: str) -> Times:
    """Return times of messages of the queues under ``folder``/consumequeue, by the log in ``commitlog``.

    Light queues are left out: their messages stand in queues of their own topics, too.
    """
    log, times_by_topic = LogTimes(commitlog), Times()
    topics = {topic: queues for topic, queues in model.topics.items() if not queues[0].light}
    size = int(model.settings.get("cq_file_size", 0) or 0)
    try:
        for topic, queues in topics.items():
            samples = max(SAMPLES_OF_TOPIC, SAMPLES // len(topics))
            step = max(1, -(-sum(q.end - q.first for q in queues) // samples))
            times = [
                t
                for q in queues
                for phy_offset in _phy_offsets(folder, q, size, step)
                if (t := log.time(phy_offset)) is not None
            ]
            if times:
                times_by_topic[topic] = (np.array(times, np.int64), np.full(len(times), step, np.int64))
    finally:
        log.close()
    return times_by_topic


def _phy_offsets(folder: str, queue: Queue, file_size: int, step: int) -> list[int]:
    """Return offsets of every ``step``-th record of a queue."""
    phy_offsets: list[int] = []
    per_file = max(1, file_size // UNIT_SIZE)
    position = queue.first + (step - 1) // 2
    reader, opened, last = None, -1, -1
    try:
        while position < queue.end:
            start = position // per_file * per_file
            if start != opened:
                if reader is not None:
                    reader.__exit__(None, None, None)
                path = files.join(folder, layouts.QUEUES, queue.topic, str(queue.number), f"{start * UNIT_SIZE:020d}")
                reader, opened = files.Reader(path), start
            assert reader is not None
            (unit,) = np.frombuffer(reader.read((position - start) * UNIT_SIZE, UNIT_SIZE), UNIT)
            # Missing offsets repeat the next message's unit.
            if unit["size"] > 0 and unit["size"] != PRE_BLANK_SIZE and int(unit["phy_offset"]) != last:
                phy_offsets.append(last := int(unit["phy_offset"]))
            position += step
    except (OSError, errors.InputError):
        pass  # a file that is missing or short: what was read of the queue is shown
    finally:
        if reader is not None:
            reader.__exit__(None, None, None)
    return phy_offsets


def look_into(index: IndexFileShown, folder: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return slots of an IndexFile by chain length (0, 1, 2, 3-4, 5-8, ...), and times of evenly spread items."""
    if not index.slots or not index.items:
        return None
    with files.Reader(files.join(folder, "index", index.name)) as reader:
        view = open_index(reader.whole(), index.slots, index.places + 1)
        lengths = slot_lengths(view, index.items)
        return _by_power(lengths), _item_times(view, index.items)


def _by_power(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    used = lengths[lengths > 0]
    powers = np.ceil(np.log2(used)).astype(np.int64) if len(used) else np.zeros(0, np.int64)
    counted = np.concatenate([[len(lengths) - len(used)], np.bincount(powers)])
    return np.asarray(counted, np.int64)


def _item_times(view: IndexView, items: int) -> npt.NDArray[np.int64]:
    # The first item's time counts from the file before.
    step = max(1, items // 500)
    times = [int(view.times(view.read(n, 1).time_diff)[0]) for n in range(2 if items > 1 else 1, items + 1, step)]
    return np.array(times, np.int64)


# ------------------------------------------------------------------------------------------------------------------------- page
# The page: one HTML file with everything in it. It loads nothing, runs nothing, and follows the reader's light or dark.

TOPICS_SHOWN: Final = 20
QUEUES_SHOWN: Final = 200
TILES_SOME: Final = 5
TILES_MANY: Final = 7
"""tiles in a row, at most: in a window of some 1,000 pixels, and in a wider one"""


class Page:
    """Cards, side by side where there is room, between sections as wide as the page; ``number`` counts the plots."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.above: list[str] = []
        self.cards: list[str] = []
        self.below: list[str] = []
        self.number = 0

    def card(self, title: str, *inner: str) -> None:
        self.cards.append(section(title, *inner))

    def plot(self, label: str, height: float, paint: plots.Paint, *below: str, caption: str = "") -> str:
        self.number += 1
        return figure(plots.draw(self.number, html(label, quote=True), height, paint), *below, caption=caption)

    def to_html(self) -> str:
        title = f"{self.model.command}: {showing.escape(self.model.title)}"
        facts = "".join(_fact(name, value) for name, value in self.model.facts)
        tiles = len(self.model.facts)
        columns = f"--some:{columns_of(tiles, TILES_SOME)};--many:{columns_of(tiles, TILES_MANY)}"
        when = f" \u00b7 {html(self.model.when)}" if self.model.when else ""
        cards = f'<div class="grid">{"".join(self.cards)}</div>'
        return whole(
            title,
            f"rmq-reindex {html(self.model.version)}{when}",
            _verdict(self.model),
            said("Warnings", self.model.warnings),
            f'<dl class="facts" style="{columns}">{facts}</dl>',
            *self.above,
            cards,
            *self.below,
        )


def figure(*inner: str, caption: str = "") -> str:
    text = f"<figcaption>{html(caption)}</figcaption>" if caption else ""
    return f"<figure>{''.join(inner)}{text}</figure>"


def columns_of(tiles: int, columns_max: int) -> int:
    """Return how many tiles stand in a row, at most ``columns_max``, so that none stands alone in the last one."""
    for rows in range(-(-tiles // columns_max), tiles):
        columns = -(-tiles // rows)
        if tiles - columns * (rows - 1) > 1:
            return columns
    return 1


def _fact(name: str, value: str) -> str:
    bad = ' class="bad"' if name == "damaged places" and value != "0" else ""
    return f"<div><dt>{html(name)}</dt><dd{bad}>{html(value)}</dd></div>"


def _verdict(model: Model) -> str:
    steps = "".join(f"<li>{html(text)}{_command(command)}</li>" for text, command in model.steps)
    listed = f'<ul class="steps">{steps}</ul>' if steps else ""
    tone = "good" if model.good else "bad"
    return f'<section class="verdict {tone}"><h2>{html(model.verdict)}</h2>{listed}</section>'


def _command(command: str) -> str:
    return f"<pre><code>{html(command)}</code></pre>" if command else ""


def show_utc(milliseconds: int) -> str:
    """Return a store time as people write it; a number that no calendar has as it is."""
    try:
        time = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)  # noqa: DTZ001  UTC, and said so
        return time.isoformat(" ", "seconds") + " UTC"
    except OverflowError:
        return f"{milliseconds} ms"


def bytes_text(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return showing.counted(round(size), "byte") if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def render(model: Model, times: Times, sampled: str, chains: Sequence[npt.NDArray[np.int64]], cut: str = "") -> str:
    """Return the whole page. ``chains``: of each IndexFile looked into, slots by chain length; ``cut`` says if that is not
    all."""
    page = Page(model)
    page.above.append(said("Notes", model.notes))
    if model.findings:
        page.above.append(section("Differences", differences(model.findings)))
    _times(page, times, sampled)
    _queues(page)
    _sizes(page)
    _index(page, chains, cut)
    _damage(page)
    if any(model.seconds.values()):
        page.card("Time by stage", bars([ChartBar(name, value, f"{value:.1f} s") for name, value in model.seconds.items()]))
    settings = [[name, _setting(value)] for name, value in sorted(model.settings.items())]
    inner = table(("setting", ""), settings)
    page.below.append(
        section("Settings", f"<details><summary>{showing.counted(len(settings), 'setting')}</summary>{inner}</details>")
    )
    return page.to_html()


def _setting(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _times(page: Page, times: Times, sampled: str) -> None:
    series, whole = plots.largest(times)
    if series:
        sampled += f"; {whole}" if whole else ""
        plot = page.plot(
            "messages over time by topic", 2.6, lambda axes: plots.timeline(axes, series),
            legend([showing.printable(name) for name, _, _ in series]), caption=f"{sampled}; UTC",
        )  # fmt: skip
        page.card("Messages over time", plot)


def _queues(page: Page) -> None:
    topics = page.model.topics
    if not topics:
        return
    shown = list(topics.items())[:TOPICS_SHOWN]
    rows = []
    for name, queues_of_topic in shown:
        units, gaps = sum(q.units for q in queues_of_topic), sum(q.gaps for q in queues_of_topic)
        text = f"{units:,}" + (f", {gaps:,} missing" if gaps else "")
        rows.append(ChartBar(showing.printable(name), sum(q.messages for q in queues_of_topic) + gaps, text, gaps))
    caption = f"units by topic: {showing.counted(len(topics), 'topic')} with {showing.counted(len(page.model.queues), 'queue')}"
    if len(rows) < len(topics):
        caption += f"; the {len(rows)} largest topics are shown"
    # Those with gaps first: they are what one looks for.
    queues = sorted(page.model.queues, key=lambda q: -q.gaps)
    lines = [[showing.printable(q.topic), q.number, q.first, q.end, q.units, q.gaps] for q in queues]
    listing = table(("topic", "queue", "first offset", "end", "units", "missing offsets"), lines, QUEUES_SHOWN)
    every = f"<details><summary>every queue</summary>{listing}</details>"
    page.card("Queues", figure(bars(rows), caption=caption), every)


def _sizes(page: Page) -> None:
    if page.model.sizes:
        page.card("Bytes", bars([ChartBar(name, size, bytes_text(size)) for name, size in page.model.sizes.items()]))


def _index(page: Page, chains: Sequence[npt.NDArray[np.int64]], cut: str) -> None:
    files = page.model.index
    if not files:
        return
    inner: list[str] = []
    shown = files[-TOPICS_SHOWN:]
    rows = []
    for file in shown:
        share = 100 * file.slots_used / file.slots if file.slots else 0.0
        rows.append(ChartBar(showing.escape(file.name), share, f"{share:.1f} %"))
    caption = (
        f"slots in use; the last {len(shown)} of {showing.counted(len(files), 'file')}"
        if len(shown) < len(files)
        else "slots in use"
    )
    inner.append(figure(bars(rows, full=100), caption=caption))
    if chains:
        summed = np.zeros(max(len(counts) for counts in chains), np.int64)
        for counts in chains:
            summed[: len(counts)] += counts
        counted_slots = zip(_powers(len(summed)), summed.tolist(), strict=True)
        rows = [ChartBar(label, slots, showing.counted(slots, "slot")) for label, slots in counted_slots]
        inner.append(figure(bars(rows, "c3"), caption=f"items in a slot's chain: what a lookup walks{cut}"))
    lines = [[showing.escape(f.name), f.items, f.places, f.slots_used, show_utc(f.begin), show_utc(f.end)] for f in files]
    listing = table(("file", "items", "room", "slots used", "first", "last"), lines)
    page.card("Index", *inner, f"<details><summary>every file</summary>{listing}</details>")


def _powers(count: int) -> Iterator[str]:
    """Return the labels 0, 1, 2, 3-4, 5-8, ..."""
    for k in range(count):
        low, high = (2 ** (k - 2) + 1, 2 ** (k - 1)) if k > 1 else (k, k)
        yield str(high) if low == high else f"{low:,} to {high:,}"


def _damage(page: Page) -> None:
    model = page.model
    if not model.segments and not model.damage:
        return
    lost = sum(length for _, length, _ in model.damage)
    inner = []
    if model.segments:
        caption = "the log from its first byte to its last, each line beginning at the offset shown; damage is marked"
        height = 0.5 + 0.2 * min(24, len(model.segments))
        paint = functools.partial(plots.damage_map, segments=model.segments, damage=model.damage)
        inner.append(page.plot("map of the log", height, paint, caption=caption))
    if model.damage:
        rows = [[offset, length, reason] for offset, length, reason in model.damage]
        inner.append(table(("offset", "bytes", "what"), rows))
    places = f"{showing.counted(len(model.damage), 'damaged place')}, {bytes_text(lost)}"
    page.card(f"The log: {places if model.damage else 'no damage'}", *inner)
