"""One replay: messages of the log on their way to a proxy, each after those that must come before it."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.jobs.exporting.options import NAME_SHOWN, ExportResult
from rocketmq_reindex.jobs.exporting.run import Export
from rocketmq_reindex.jobs.publishing import layout
from rocketmq_reindex.jobs.replaying import journal as journals
from rocketmq_reindex.jobs.replaying.journal import Journal
from rocketmq_reindex.jobs.replaying.options import FAILURES_MAX, ReplayFailure, ReplayResult, ReplaySettings
from rocketmq_reindex.jobs.replaying.sending import Answer, Proxy
from rocketmq_reindex.jobs.replaying.sources import NORMAL, ROW, Outgoing, flaw, now, outgoing, source_of, topic_of
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError, ProgressListener
from rocketmq_reindex.storage_format.showing import counted, escape, near_in_words

# ---------------------------------------------------------------------------------------------------------------------- waiting


@dataclass
class _Message:
    """A message on its way. ``blocked`` counts those that have to be answered before it is sent."""

    offset: int
    queue_offset: int
    outgoing: Outgoing
    kind: int = NORMAL
    blocked: int = 0
    tries: int = 0
    followers: list[_Message] = field(default_factory=list)

    @property
    def lanes(self) -> list[tuple[Any, ...]]:
        """What it must keep its place in: the queue that it comes from, and its message group in the cluster."""
        own, group = self.outgoing.source, self.outgoing.group
        return [own] if group is None else [own, (None, self.outgoing.topic, group)]


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [batch.column(name) for name in ROW]
    for row in range(batch.num_rows):
        yield {name: column[row].as_py() for name, column in zip(ROW, columns, strict=True)}


# ---------------------------------------------------------------------------------------------------------------------- sending

_IN_FLIGHT: Final = 64
_WINDOW: Final = 512
"""messages that are held, those without an answer among them"""
_WINDOW_BYTES: Final = 32 << 20
_WATERMARK: Final = 1000
"""answers between two lines that say below which offset all is known"""
_TRIES: Final = 60
"""times that a message is sent again to a proxy that says it is busy"""
_PAUSE: Final = 0.5
"""seconds before that"""
_DRAIN_SECONDS: Final = 10.0
"""how long a run that was interrupted waits for answers"""


class _Stopped(InputError):
    """The run ends before the log does."""


class Sender:
    """Takes what was chosen in the order of the log, sends it, and writes the journal: an intent before, an answer after."""

    def __init__(self, settings: ReplaySettings, result: ReplayResult, journal: Journal, proxy: Proxy | None) -> None:
        self._settings, self._result, self._journal, self._proxy = settings, result, journal, proxy
        self._told, self._names = journal.told, dict(settings.topic_map)
        self._refused_before = frozenset(journal.told.refused)
        self._topics, self._met = Counter[str](), set[str]()
        self._last: dict[tuple[Any, ...], _Message] = {}
        self._held: OrderedDict[int, _Message] = OrderedDict()
        self._bytes = self._answers = self._failed = self._light = 0
        self._ready, self._flying = deque[_Message](), dict[int, _Message]()
        self._done: queue.SimpleQueue[tuple[_Message, Answer]] = queue.SimpleQueue()
        self._next_time = self._pause_until = 0.0
        self._stop = ""
        self._place = 0

    # --------------------------------------------------------------------------------------------------------------------- sink

    def add(self, encoded: pa.RecordBatch) -> None:
        """Take the messages of a batch. Raises InputError where the run stops."""
        for row in _rows(encoded):
            self._offer(row)

    def finish(self) -> list[str]:
        """Wait until all that was taken is answered. Raises InputError where the run stops.

        Return a warning for each topic of ``--topic-map`` of which no message was taken: its name may be written wrong.
        """
        while self._held:
            self._turn()
        if self._proxy is not None:
            self._journal.say(journals.BELOW, self._place)
        self._journal.flush()
        return [*map(self._unmet, sorted(self._names.keys() - self._met))]

    def _unmet(self, old: str) -> str:
        name = f"--topic-map {escape(old, NAME_SHOWN)}={self._names[old]}"
        return f"{name}: no chosen message is of topic {escape(old, NAME_SHOWN)}{near_in_words(old, self._met)}"

    def abandon(self) -> None:
        """Send nothing more, and write down the answers that still come. Raises nothing but what the journal raises."""
        end = time.monotonic() + _DRAIN_SECONDS
        with contextlib.suppress(queue.Empty):
            while self._flying and (left := end - time.monotonic()) > 0:
                self._ended(*self._done.get(timeout=left))
        self._journal.flush()

    def close(self) -> None:
        """Put what became of all messages into the result."""
        for message in self._flying.values():
            self._fail(message, "no answer came before the run ended")
        self._journal.flush()
        result, known = self._result, {failure.phy_offset for failure in self._result.failures}
        for offset, reason in self._told.doubtful.items():
            if offset not in known and len(result.failures) < 2 * FAILURES_MAX:
                reason = reason or "an earlier run ended before its answer came"
                result.failures.append(ReplayFailure("doubtful", offset, reason, message_id=self._new_id(offset)))
        if self._light:
            text = (
                f"{counted(self._light, 'message')} from light queues: no gRPC client can name these: sent to the topic alone"
            )
            result.warnings.append(text)
        result.doubtful = len(self._told.doubtful)
        result.topics = dict(sorted(self._topics.items()))
        result.failures.sort(key=lambda failure: failure.phy_offset)

    def _new_id(self, offset: int) -> str:
        digest = hashlib.blake2b(f"{self._journal.id} {offset}".encode(), digest_size=16)
        return f"01{digest.hexdigest().upper()}"

    # ------------------------------------------------------------------------------------------------------------------- taking

    def _offer(self, row: dict[str, Any]) -> None:
        self._check_stop()
        self._met.add(topic_of(row))
        self._take(row, row["commitLogOffset"])
        # Not before: a run that is interrupted meanwhile must not say that this message is done with.
        self._place = row["commitLogOffset"] + 1
        while len(self._held) >= _WINDOW or self._bytes > _WINDOW_BYTES:
            self._turn()

    def _check_stop(self) -> None:
        while self._stop:
            self._turn()

    def _take(self, row: dict[str, Any], offset: int) -> None:
        # It stays doubtful until it is answered: of its first sending nobody knows.
        again = offset in self._told.doubtful and self._settings.resend_doubtful
        if not again and not self._told.is_new(offset):
            self._result.sent_before += offset not in self._told.doubtful
            return
        if wrong := flaw(row):
            self._refuse(offset, row["topic"], row["queueId"], row["consumeQueueOffset"], wrong)
            return
        sent = outgoing(row, self._names, self._new_id(offset), queue_groups=self._settings.queue_groups)
        if self._proxy is None:
            self._count(sent)
            return
        message = _Message(offset, row["consumeQueueOffset"], sent)
        types = self._proxy.types_of(sent.topic)
        if isinstance(types, str):
            self._refuse(offset, *sent.source, message.queue_offset, types)
            return
        message.kind = sent.kind(types)
        self._hold(message)

    def _count(self, sent: Outgoing) -> None:
        self._result.sent += 1
        self._topics[sent.topic] += 1
        self._result.delayed += sent.deliver_time is not None and sent.deliver_time > now()
        self._light += sent.light_queues is not None

    def _hold(self, message: _Message) -> None:
        self._held[message.offset] = message
        self._bytes += len(message.outgoing.body)
        for lane in message.lanes:
            if (before := self._last.get(lane)) is not None:
                before.followers.append(message)
                message.blocked += 1
            self._last[lane] = message
        if not message.blocked:
            self._ready.append(message)

    # ------------------------------------------------------------------------------------------------------------------ sending

    def _turn(self) -> None:
        """Send what may be sent, and take the answers that are there; one at least, or a pause is over."""
        if not self._stop:
            self._start()
        elif not self._flying:
            raise _Stopped(self._stop)
        try:
            self._ended(*self._done.get(timeout=self._wait()))
            while True:
                self._ended(*self._done.get_nowait())
        except queue.Empty:
            pass

    def _wait(self) -> float | None:
        if not self._ready or len(self._flying) >= _IN_FLIGHT or self._stop:
            return None
        return max(0.0, max(self._next_time, self._pause_until) - time.monotonic())

    def _start(self) -> None:
        assert self._proxy is not None
        batch, now = list[_Message](), time.monotonic()
        while self._ready and len(self._flying) + len(batch) < _IN_FLIGHT and now >= self._pause_until:
            if self._settings.rate is not None:
                if now < self._next_time:
                    break
                self._next_time = max(now - 0.1, self._next_time) + 1.0 / self._settings.rate
            batch.append(self._ready.popleft())
        if not batch:
            return
        self._flying.update((message.offset, message) for message in batch)
        self._journal.intents(message.offset for message in batch)
        for message in batch:
            self._told.refused.discard(message.offset)
        for message in batch:
            self._proxy.send(message.outgoing, message.kind, partial(self._hear, message))

    def _hear(self, message: _Message, answer: Answer) -> None:
        self._done.put((message, answer))

    def _ended(self, message: _Message, answer: Answer) -> None:
        """Take the answer to a message, and let those go that waited for it."""
        if answer.is_busy and not self._stop and message.tries < _TRIES:
            message.tries += 1
            if message.offset not in self._told.doubtful:
                # Not stored, for sure: the run may end before it is sent once more.
                self._journal.say(journals.REFUSED, message.offset, answer.text)
                self._told.refused.add(message.offset)
            self._pause_until = time.monotonic() + _PAUSE
            self._flying.pop(message.offset, None)
            self._ready.appendleft(message)
            return
        if answer.is_sent:
            self._journal.say(journals.ANSWER, message.offset, answer.text)
            self._told.doubtful.pop(message.offset, None)
            self._count(message.outgoing)
        elif answer.is_refused or answer.is_busy:
            self._refuse(message.offset, *message.outgoing.source, message.queue_offset, answer.text)
        else:
            self._fail(message, answer.text)
            self._stop = self._stop or f"the answer to a message was lost: {escape(answer.text)}: run it again to go on"
        self._flying.pop(message.offset, None)
        self._held.pop(message.offset, None)
        self._bytes -= len(message.outgoing.body)
        for lane in message.lanes:
            if self._last.get(lane) is message:
                del self._last[lane]
        for follower in message.followers:
            follower.blocked -= 1
            if not follower.blocked:
                self._ready.append(follower)
        self._answers += 1
        if self._answers % _WATERMARK == 0:
            self._journal.say(journals.BELOW, next(iter(self._held), self._place))

    def _fail(self, message: _Message, reason: str) -> None:
        self._journal.say(journals.DOUBTFUL, message.offset, reason)
        self._told.doubtful[message.offset] = reason
        self._note("doubtful", message.offset, *message.outgoing.source, message.queue_offset, reason)

    def _refuse(self, offset: int, topic: str, queue_id: int, queue_offset: int, reason: str) -> None:
        if offset in self._told.doubtful:
            # Refused now, it may have been stored before.
            self._journal.say(journals.DOUBTFUL, offset, reason)
            self._note("doubtful", offset, topic, queue_id, queue_offset, f"sent again, it was refused: {reason}")
            return
        if self._proxy is not None:
            self._journal.say(journals.REFUSED, offset, reason)
            self._told.refused.add(offset)
        self._result.refused += 1
        self._note("refused", offset, topic, queue_id, queue_offset, reason)
        # Those that an earlier run was refused do not count: else no run would ever get behind them.
        self._failed += self._proxy is not None and offset not in self._refused_before
        if self._failed >= FAILURES_MAX:
            self._stop = self._stop or f"{FAILURES_MAX:,} messages were refused: nothing more is sent: run it again to go on"

    def _note(self, kind: Any, offset: int, topic: str, queue_id: int, queue_offset: int, reason: str) -> None:
        new = self._new_id(offset) if kind == "doubtful" else ""
        failure = ReplayFailure(kind, offset, escape(reason), topic, queue_id, queue_offset, new)
        if len(self._result.failures) < 2 * FAILURES_MAX:
            self._result.failures.append(failure)


# -------------------------------------------------------------------------------------------------------------------------- run


class Replay:
    """One run; ``result`` is true at every moment, also when the run fails."""

    def __init__(self, settings: ReplaySettings, result: ReplayResult, progress: ProgressListener) -> None:
        self._settings, self._result = settings, result
        self._taken = ExportResult(warnings=result.warnings)
        self._export = Export(settings.source, self._taken, progress)

    def run(self) -> list[str]:
        """Send what was chosen. Return what was done, as lines for people. Raises InputError, OSError."""
        settings, result = self._settings, self._result
        self._source = source_of(self._export)
        for place in filter(None, (settings.source.store, *settings.source.commitlogs) if settings.journal else ()):
            if files.overlap(place, settings.journal):
                raise InputError(
                    f"--journal {escape(settings.journal)}: lies inside {escape(place)}: name a file apart from it"
                )
        if settings.dry_run:
            journal = (
                Journal(settings.journal, self._bound(), write=False) if settings.journal else Journal("", {}, write=False)
            )
            self._send(journal, None)
        else:
            credentials = settings.keys()
            layout.check_writable("--journal", settings.journal, b"", "a journal of a replay")
            bound = self._bound()
            # Whether somebody is there shows before the log is read, which may take long.
            with Proxy(settings.to, credentials, tls=settings.tls) as proxy:
                journal = Journal(settings.journal, bound)
                result.to, result.journal = settings.to, settings.journal
                try:
                    self._send(journal, proxy)
                finally:
                    journal.close()
        self._export.close()
        result.exit = ExitStatus.LOST if self._taken.exit == ExitStatus.LOST else ExitStatus.DONE
        if result.refused or result.doubtful:
            result.exit = ExitStatus.FAILED
            unsent = [counted(result.refused, "message") + " refused"] * (result.refused > 0)
            unsent += [counted(result.doubtful, "message") + " doubtful"] * (result.doubtful > 0)
            result.error = f"not all was sent: {', '.join(unsent)}"
        return result.lines()

    def _bound(self) -> dict[str, Any]:
        """Return what the journal is bound to. Raises InputError for what is neither a log nor an export."""
        bound, unread = self._source.bound(), self._export.unread
        read = None
        if unread is not None:
            places = sorted((topic, *pair) for topic, queues in unread.items() for pair in queues.items())
            read = hashlib.blake2b(repr(places).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
        return {"log": bound, **self._settings.bound, "position of the group": read}

    def _send(self, journal: Journal, proxy: Proxy | None) -> None:
        result = self._result
        sender = Sender(self._settings, result, journal, proxy)
        try:
            try:
                stage = "count" if proxy is None else "replay"
                self._export.take(self._source.chosen(), sender, stage, self._source.extent)
                result.warnings += sender.finish()
            except BaseException:
                sender.abandon()
                raise
        finally:
            sender.close()
            self._copy()

    def _copy(self) -> None:
        taken, result = self._taken, self._result
        result.messages, result.size, result.left_out = taken.messages, taken.size, taken.left_out
        result.damaged, result.damaged_bytes, result.unsearched = taken.damaged, taken.damaged_bytes, taken.unsearched
