"""How long the pages of ``rmq-reindex browse`` take on a store of 8 GiB with 20 million index items, and with how much memory:
python -m tests.bench.browse_latency FOLDER

The store is that of ``query_latency``, spread over eight segments: between its records lie some of 4 MiB, whose bodies of zeros
take no disk. A process serves it, and is asked over HTTP, one connection after another; cold: the store's pages are dropped
from memory before each request (POSIX_FADV_DONTNEED); first: so, and the process has not made such a page; warm: the same page
was asked for just before. Of a search of the log each part is asked for cold, then once more. FOLDER must be new; its 3 GB are
removed at the end. Prints tables, and ends with status 1 where a median, a first page or the most memory misses its target.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from tests.bench.query_latency import QUEUES, RECORDS, SEGMENT, UNIQUE, arguments, built_store, forget, template, write_small
from tests.bench.steps import own_memory
from tests.tools.encode import EPOCH, Message, blank, body_start, encode

SEGMENTS = 8
COLD, WARM = 0.3, 0.1
"""seconds that any page may take"""
MEMORY = 300_000_000
"""bytes: of the process and its children, mapped files counted"""
START = 1.0
"""seconds from the start of the process to the first page, with bytecode that is kept"""
LEADING = (
    "/", "/store?store=s", "/topics?store=s", "/topic?store=s&topic=orders", "/message?store=s&physical=0", "/search?store=s",
)  # fmt: skip
"""pages whose links lead to all other kinds"""
SCANS = {"scan without a hit": "key=none", "scan of bodies": "text=4712", "scan with 100 hits": "tag=paid"}
"""searches of the log, by what they are"""
LOADED = 5
"""seconds behind a form of a search in which the process loads what a search needs: a person types"""
_BIG = (4 << 20) - 1024
_AT_ONCE = 8
PATIENCE = 60


def write_sparse_log(folder: Path, count: int) -> None:
    """``count`` small records in eight segments of 1 GiB, each filled up by records with bodies of zeros, which are holes."""
    share, made = -(-count // SEGMENTS), 0
    folder.mkdir(parents=True)
    for number in range(SEGMENTS):
        low, high, base = number * share, min((number + 1) * share, count), number * SEGMENT
        with (folder / f"{base:020d}").open("wb") as file:
            write_small(file, low, high, base)
            while file.tell() + _BIG + 1024 < SEGMENT:
                message = Message("archive", body=bytes(_BIG), store_timestamp=EPOCH + high)
                record, head = encode(message, base + file.tell(), made), body_start(message)
                file.write(record[:head])
                file.seek(_BIG, os.SEEK_CUR)
                file.write(record[head + _BIG :])
                made += 1
            file.write(blank(SEGMENT - file.tell()))
            file.truncate(SEGMENT)


class Asked(NamedTuple):
    """A question, and what must stand in its answer."""

    kind: str
    path: str
    told: str


def questions(rng: random.Random, count: int, size: int) -> Iterator[Asked]:
    """Yield pages at random places. ``size``: bytes of a small record."""
    share = -(-RECORDS // SEGMENTS)
    for _ in range(count):
        k = rng.randrange(RECORDS)
        queue, offset, key = k % QUEUES, k // QUEUES, f"{UNIQUE}{k:08d}"
        at = k // share * SEGMENT + k % share * size
        yield Asked("stores", "/", "store?store=s")
        yield Asked("store", "/store?store=s", "IndexFiles")
        yield Asked("topics", "/topics?store=s", "orders")
        yield Asked("topic", "/topic?store=s&topic=orders", "last stored")
        yield Asked("queue by offset", f"/queue?store=s&topic=orders&queue={queue}&from={offset}", key)
        yield Asked("queue by time", f"/queue?store=s&topic=orders&queue={queue}&time={EPOCH + k}", key)
        yield Asked("message by its place", f"/message?store=s&physical={at}", key)
        yield Asked("message by its queue", f"/message?store=s&topic=orders&queue={queue}&offset={offset}", key)
        yield Asked("message of 4 MiB", f"/message?store=s&topic=archive&queue=0&offset={k % 1000}", "archive")
        yield Asked("search by key", f"/search?topic=orders&key=order-{k:08d}", "orders")
        yield Asked("search by unique key", f"/search?id={key}", "orders")
        yield Asked("search by time", f"/search?topic=orders&queue={queue}&time={EPOCH + k}", "orders")
        yield Asked("message as JSON", f"/message?store=s&physical={at}&format=json", key)


class Browser:
    """Asks for pages, with the token."""

    def __init__(self, url: str) -> None:
        self.place, _, self._token = url.partition("/?token=")

    def get(self, path: str) -> str:
        asked = Request(self.place + path, headers={"Authorization": f"Bearer {self._token}"})
        with urlopen(asked, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def seconds(self, asked: Asked) -> float:
        """What a page took. Raises AssertionError for a wrong one."""
        began = time.perf_counter()
        text = self.get(asked.path)
        took = time.perf_counter() - began
        assert asked.told in text, (asked, text[:2000])
        return took

    def others(self, known: set[str]) -> list[Asked]:
        """Return one address of each further kind of page that the pages lead to."""
        found = dict[str, str]()
        for page in LEADING:
            for link in map(unescape, re.findall(r'href="(/[^"]*)"', self.get(page))):
                path = link.partition("?")[0]
                if path not in known and path != "/body" and "format=json" not in link:
                    found.setdefault(path, link)
        return [Asked(path.strip("/"), link, "") for path, link in sorted(found.items())]


class Memory:
    """The most memory of a process and its children, looked at every few milliseconds."""

    def __init__(self, process: int) -> None:
        self._process, self._ended = process, threading.Event()
        self.own = self.resident = 0
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._ended.wait(0.005):
            processes = [self._process, *self._children()]
            self.own = max(self.own, sum(map(own_memory, processes)))
            self.resident = max(self.resident, sum(map(_resident, processes)))

    def _children(self) -> list[int]:
        found = list[int]()
        for path in Path(f"/proc/{self._process}/task").glob("*/children"):
            # A thread may end while it is looked at.
            with contextlib.suppress(OSError):
                found += map(int, path.read_text().split())
        return found

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.resident = max(self.resident, _status(self._process, "VmHWM:"))


def _status(process: int, field: str) -> int:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
        return int((text.partition(field)[2].split() or ["0"])[0]) << 10
    return 0


def _resident(process: int) -> int:
    return _status(process, "VmRSS:")


def proportional(process: int) -> int:
    """Bytes of memory of a process, pages that others map shared out among them."""
    return int(Path(f"/proc/{process}/smaps_rollup").read_text().partition("Pss:")[2].split()[0]) << 10


@contextlib.contextmanager
def served(store: Path, *, bytecode: bool = True) -> Iterator[tuple[subprocess.Popen[str], Browser, float]]:
    """Give a process that serves ``store``, and the seconds from its start to its first page.

    Without ``bytecode`` Python compiles all sources at the start, as where it may write none and none is there.
    """
    words = [sys.executable, "-m", "rocketmq_reindex", "browse", f"s={store}", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    none = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(store / "none")}
    began = time.perf_counter()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=environment if bytecode else environment | none,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            browser = Browser(process.stdout.readline().split()[1])
            browser.get("/")
            yield process, browser, time.perf_counter() - began
        finally:
            process.terminate()


class Pace(NamedTuple):
    """Seconds of each request for a kind of page, and of a core for all of the process's in them."""

    seconds: list[float]
    core: list[float]


def core_of(process: int) -> float:
    """Return the seconds of a core that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def paces(store: Path, process: int, browser: Browser, runs: int, seed: int) -> dict[str, dict[str, Pace]]:
    """Ask for each kind of page: first of all, then cold and warm. Return what that took, by kind and state of the store."""
    size, took = len(template()), dict[str, dict[str, Pace]]()

    def ask(asked: Asked, how: str) -> None:
        before = core_of(process)
        seconds = browser.seconds(asked)
        pace = took.setdefault(asked.kind, {}).setdefault(how, Pace([], []))
        pace.seconds.append(seconds)
        pace.core.append(core_of(process) - before)

    known = [*questions(random.Random(f"{seed} first"), 1, size)]
    for asked in known:
        forget(store)
        ask(asked, "first")
    others = browser.others({asked.path.partition("?")[0] for asked in known} | {"/style.css"})
    for asked in others:
        forget(store)
        ask(asked, "first")
    for how in ("cold", "warm"):
        for asked in [*questions(random.Random(f"{seed} {how}"), runs, size), *(others * runs)]:
            if how == "warm":
                browser.seconds(asked)
            else:
                forget(store)
            ask(asked, how)
    return took


def scan_paces(store: Path, process: int, browser: Browser, runs: int, rng: random.Random) -> dict[str, dict[str, Pace]]:
    """Search in the log, part by part: each one cold, and once more. Return what that took, by kind and state of the store."""
    took: dict[str, dict[str, Pace]] = {}

    def ask(kind: str, path: str, how: str) -> str:
        before, began = core_of(process), time.perf_counter()
        text = browser.get(path)
        pace = took.setdefault(kind, {}).setdefault(how, Pace([], []))
        pace.seconds.append(time.perf_counter() - began)
        pace.core.append(core_of(process) - before)
        assert "Found in this part" in text, text[:2000]
        return text

    for kind, words in SCANS.items():
        path = f"/scan?{words}"
        for number in range(runs + 1):
            forget(store)
            text = ask(kind, path, "cold" if number else "first")
            if number:
                ask(kind, path, "warm")
            path = unescape(re.findall(r'rel="next" href="([^"]+)"', text)[0])
    for how in ("first", *("cold", "warm") * runs):
        if how != "warm":
            place = f"0.{rng.randrange(SEGMENTS) * SEGMENT + rng.randrange(SEGMENT // 8)}"
            forget(store)
        # Parts on the way to a place are none that could be remembered.
        while how == "warm" and "still to be walked" in browser.get(f"/scan?key=none&cursor={place}"):
            pass
        ask("scan at a new place", f"/scan?key=none&cursor={place}", how)
    return took


def first_scan(store: Path, wait: float) -> float:
    """Return the seconds of the first search of a process, cold, so long after its form was shown."""
    with served(store) as (_, browser, _):
        browser.get("/scan")
        time.sleep(wait)
        forget(store)
        return browser.seconds(Asked("", "/scan?key=none", "Found in this part"))


def started(store: Path, bytecode: bool) -> tuple[float, float]:
    """Return the seconds from the start of a process to its first page, and those of a core."""
    with served(store, bytecode=bytecode) as (process, _, seconds):
        return seconds, core_of(process.pid)


def show(took: dict[str, dict[str, Pace]]) -> bool:
    """Print what the pages took. Return whether each target is met."""
    good = True
    print(f"{'seconds of':24}{'first':>8}{'cold, p50':>11}{'worst':>8}{'warm, p50':>11}{'worst':>8}{'a core, warm':>14}")
    for kind, by in took.items():
        first, cold, warm = by["first"].seconds[0], by["cold"].seconds, by["warm"].seconds
        met = max(first, statistics.median(cold)) < COLD and statistics.median(warm) < WARM
        good &= met
        print(
            f"{kind:24}{first:8.3f}{statistics.median(cold):11.3f}{max(cold):8.3f}{statistics.median(warm):11.3f}{max(warm):8.3f}"
            f"{statistics.mean(by['warm'].core):14.3f}{'' if met else '  MISSED'}"
        )
    return good


def measured(store: Path, runs: int, seed: int) -> bool:
    """Print what the pages of a store take. Return whether each target is met."""
    started(store, True)
    starts = {name: [started(store, kept) for _ in range(5)] for name, kept in (("kept", True), ("not there", False))}
    with served(store) as (process, browser, _), Memory(process.pid) as memory:
        good = show(paces(store, process.pid, browser, runs, seed))
        browser.get("/scan")
        time.sleep(LOADED)
        good &= show(scan_paces(store, process.pid, browser, runs, random.Random(seed)))
        alone = memory.resident, memory.own
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            together = [*pool.map(browser.seconds, questions(random.Random(seed), runs, len(template())))]
            scans = [Asked("", f"/scan?text=none-{k}&cursor=0.{k % SEGMENTS * SEGMENT}", "part") for k in range(_AT_ONCE)]
            searched = [*pool.map(browser.seconds, scans)]
        shared = proportional(process.pid)
    first = first_scan(store, LOADED)
    good &= first < COLD
    print(
        f"the first search of a process, cold, {LOADED} s behind its form: {first:.3f}{'' if first < COLD else '  MISSED'}; "
        f"at once {first_scan(store, 0.0):.3f}; {_AT_ONCE} searches at once: worst {max(searched):.3f}"
    )
    for name, values in starts.items():
        seconds, cores = zip(*values, strict=True)
        good &= (met := name != "kept" or statistics.median(seconds) < START)
        figures = f"p50 {statistics.median(seconds):.3f}, worst {max(seconds):.3f}, of a core {statistics.median(cores):.2f}"
        print(f"start to the first page, bytecode {name}: {figures}{'' if met else '  MISSED'}")
    print(f"{_AT_ONCE} at once, warm: p50 {statistics.median(together):.3f}, worst {max(together):.3f}")
    met = memory.resident < MEMORY
    print(
        f"memory, MB: resident {alone[0] // 10**6} one by one, {memory.resident // 10**6} with {_AT_ONCE} at once; of its own "
        f"{alone[1] // 10**6} and {memory.own // 10**6}; proportional at the end {shared // 10**6}{'' if met else '  MISSED'}"
    )
    return good and met


def main() -> int:
    asked = arguments()
    with built_store(asked.folder, write_sparse_log) as (store, summary):
        disk = sum(path.stat().st_blocks for path in store.rglob("*")) * 512
        print(
            f"{summary.items:,} index items, {SEGMENTS * SEGMENT:,} bytes of log; on the disk {disk:,}; {asked.runs} runs each"
        )
        return 0 if measured(store, asked.runs, asked.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
