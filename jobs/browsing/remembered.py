"""Answers about a store that are remembered while its files look the same; and how they look, which reads none of them.

A wrong answer is worse than a slow one. So an answer is only kept where every file of the store was looked at, where the last
change is old enough that a later one would have another time, and for ten minutes. Who holds the lock counts, too.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing.options import Facts
from rocketmq_reindex.jobs.building import store_signs
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import ReindexError
from rocketmq_reindex.udfs.times import show_time

FILES_MAX: Final = 50_000
"""files and folders of a store that are looked at: of one with more nothing is remembered"""
SETTLED: Final = 2_500_000_000
"""nanoseconds: a file that was changed after its state was taken, and so soon after the change before, may look the same. Some
file systems, and buckets, have times in seconds"""
KEPT_SECONDS: Final = 600.0
ANSWERS_MAX: Final = 64
BYTES_MAX: Final = 8 << 20
"""of all answers, as JSON"""
_LARGE: Final = BYTES_MAX // 4
"""bytes of an answer that is not kept: it would push too many others out"""
LATE_SECONDS: Final = 20.0
"""for which an answer that came too late for who asked waits for the next one: of a store that always changes none is kept"""
LOOKED_AT: Final = "lookedAt"

# ----------------------------------------------------------------------------------------------------------------------- states
# How the files of a store look.


def states_of(store: TracedStore) -> files.FolderStates:
    """Return how the files of a store, and of its log where that lies elsewhere, look. Each name is the path from the store;
    that of a log elsewhere begins with ``commitlog``.

    Raises OSError and InputError.
    """
    found, whole = files.states(store.path, FILES_MAX)
    # A log that was named may be the one to which a link in the store leads.
    seen = {state.mark[1:] for state in found}
    for number, root in enumerate(store.commitlogs):
        if files.within(root, store.path) or files.entry_of(root).kind != files.FOLDER:
            continue
        elsewhere = files.states(root, FILES_MAX)
        new = (state for state in elsewhere.files if state.mark[1:] == (0, 0) or state.mark[1:] not in seen)
        found += [state._replace(name=f"{layouts.COMMITLOG}/{number}/{state.name}") for state in new]
        whole = whole and elsewhere.whole
    return files.FolderStates(found, whole)


def mark_of(store: TracedStore, now: int) -> str | None:
    """Return a text that is another one once a file of the store, or who holds its lock, is another one.

    None where it might be the same all the same. ``now`` is nanoseconds since 1970. Raises OSError and InputError.
    """
    states = states_of(store)
    newest = max((max(state.modified, state.mark[0]) for state in states.files), default=0)
    if not states.whole or newest > now - SETTLED:
        return None
    digest = hashlib.blake2b(digest_size=20)
    for state in sorted(states.files):
        digest.update(repr(state).encode())
    digest.update(repr(store_signs.brokers(StoreSettings(store.path, commitlogs=store.commitlogs))).encode())
    return digest.hexdigest()


def mark_of_logs(stores: Sequence[TracedStore], now: int) -> str | None:
    """Return a text that is another one once a segment of one of the stores is another one.

    None where it might be the same all the same, as while a broker maps the log. ``now`` is nanoseconds since 1970.
    """
    digest = hashlib.blake2b(digest_size=20)
    try:
        for store in stores:
            if any(store_signs.brokers(StoreSettings(store.path, commitlogs=store.commitlogs))):
                return None
            for root in store.roots:
                states = files.states(root, FILES_MAX)
                newest = max((max(state.modified, state.mark[0]) for state in states.files), default=0)
                if not states.whole or newest > now - SETTLED:
                    return None
                digest.update(repr((store.name, root, sorted(states.files))).encode(errors="surrogateescape"))
    except (OSError, ValueError, ReindexError):
        # Who makes the answer is told why.
        return None
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------------------------------- answers
# Answers as JSON: whoever gets one may change it.


class _Answer(NamedTuple):
    mark: str
    made: float
    """seconds, of a clock that only goes on"""
    text: str


class _Asking:
    """An answer that a thread makes. ``found`` is it, or what was raised, ``at`` when it came (seconds)."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: Facts | Exception | None = None
        self.at = 0.0


class Remembered:
    """Answers by store and question. ``clock`` gives seconds, ``now`` nanoseconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, now: Callable[[], int] = time.time_ns) -> None:
        self._clock, self._now = clock, now
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, str], _Answer] = OrderedDict()
        self._bytes = 0
        self._asking: dict[tuple[str, str], _Asking] = {}

    def ask(self, store: TracedStore, question: str, make: Callable[[], Facts]) -> Facts:
        """Return what ``make`` gives, or has given for the same question while the store looked as now.

        ``make`` gives plain values for JSON, and names what it depends on beside the store in ``question``. The answer also
        says when it looked. Raises what ``make`` raises, which is not remembered.
        """
        return self._ask((store.name, question), self._mark(store), make)

    def ask_logs(self, stores: Sequence[TracedStore], question: str, make: Callable[[], Facts]) -> Facts:
        """Return the same of an answer that the logs of some stores give, in this order, and nothing beside them.

        One that says to have come no further (``toWalk``) is not remembered, and none with warnings: what could not be read
        may be there when it is asked for again.
        """
        mark = mark_of_logs(stores, self._now())
        return self._ask(("", question), mark, make, lambda found: not found.get("toWalk") and not found.get("warnings"))

    def _ask(
        self, key: tuple[str, str], mark: str | None, make: Callable[[], Facts], lasts: Callable[[Facts], bool] = lambda _: True
    ) -> Facts:
        with self._lock:
            kept = self._answers.get(key)
            if kept is not None and (kept.mark != mark or self._clock() - kept.made > KEPT_SECONDS):
                self._forget(key)
                kept = None
            if kept is not None:
                self._answers.move_to_end(key)
        if kept is None:
            made, looked = self._clock(), show_time(self._now() // 1_000_000)
            found = make()
            kept = _Answer(mark or "", made, json.dumps(found | {LOOKED_AT: looked}))
            if mark is not None and lasts(found):
                self._keep(key, kept)
        told: Facts = json.loads(kept.text)
        return told

    def _mark(self, store: TracedStore) -> str | None:
        try:
            return mark_of(store, self._now())
        except (OSError, ValueError, ReindexError):
            # Who makes the answer is told why.
            return None

    def _keep(self, key: tuple[str, str], answer: _Answer) -> None:
        if len(answer.text) > _LARGE:
            return
        with self._lock:
            self._forget(key)
            self._answers[key] = answer
            self._bytes += len(answer.text)
            while len(self._answers) > ANSWERS_MAX or self._bytes > BYTES_MAX:
                self._forget(next(iter(self._answers)))

    def _forget(self, key: tuple[str, str]) -> None:
        gone = self._answers.pop(key, None)
        self._bytes -= len(gone.text) if gone is not None else 0

    def ask_all(
        self, stores: Sequence[TracedStore], question: str, make: Callable[[TracedStore], Facts], seconds: float
    ) -> list[Facts | Exception | None]:  # fmt: skip
        """Return the answer of each store, or what was raised; None where there is none after ``seconds`` for all of them.

        Each is made in a thread, which goes on: who asks next gets its answer, which says when it looked.
        """
        asked = [self._begin(store, question, make) for store in stores]
        until = self._clock() + seconds
        for each in asked:
            each.done.wait(max(0.0, until - self._clock()))
        told = [each.found if each.done.is_set() else None for each in asked]
        with self._lock:
            for store, each, found in zip(stores, asked, told, strict=True):
                if found is not None and self._asking.get((store.name, question)) is each:
                    del self._asking[store.name, question]
        return told

    def _begin(self, store: TracedStore, question: str, make: Callable[[TracedStore], Facts]) -> _Asking:
        key = store.name, question
        with self._lock:
            begun = self._asking.get(key)
            if begun is not None and (not begun.done.is_set() or self._clock() - begun.at <= LATE_SECONDS):
                return begun
            asking = self._asking[key] = _Asking()

        def answer() -> None:
            try:
                asking.found = self.ask(store, question, lambda: make(store))
            except Exception as error:  # noqa: BLE001  it is raised, or shown, where it was asked for
                asking.found = error
            finally:
                with self._lock:
                    asking.at = self._clock()
                    if key in self._answers:
                        del self._asking[key]
                asking.done.set()

        # A store that does not answer must not keep the process.
        threading.Thread(target=answer, name=f"browse: {question}", daemon=True).start()
        return asking
