"""What a run that failed says: one line, and an exit status."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from rocketmq_reindex.jobs.command.results import JVM_GONE, Interrupts, outcome
from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.storage_format.errors import RefusedError, UsageError

MORE = ": nothing was published"
NO_X = "An error occurred while calling o7.x. Trace:"
"""what py4j says of a call that Java does not know"""
RESULTS = "Total size of serialized results of 1 tasks (3.4 KiB) is bigger than spark.driver.maxResultSize (1.0 B)"
INSTANTIATING = """An error occurred while calling o7.x.
: java.lang.IllegalArgumentException: Error while instantiating 'org.x.Builder':
\tat org.x.A.a(A.scala:1)
Caused by: java.lang.reflect.InvocationTargetException: null
\tat org.x.B.b(B.scala:2)
Caused by: java.lang.IllegalArgumentException: spark.x should be int
\tat org.x.C.c(C.scala:3)
"""


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UsageError("--crc: no"), 2, "--crc: no"),
        (RefusedError("segment 0: damage"), 5, "segment 0: damage"),
        (KeyboardInterrupt(), 130, f"interrupted{MORE}"),
        (FileNotFoundError(2, "No such file", "a\nb"), 1, rf"a\nb: No such file{MORE}"),
        (OSError("gone"), 1, f"the input: gone{MORE}"),
        (ConnectionRefusedError(111, "refused"), 1, f"{JVM_GONE}{MORE}"),
        (ConnectionResetError(104, "reset", "/mnt/share/x"), 1, f"/mnt/share/x: reset{MORE}"),
        (Py4JNetworkError("Answer from Java side is empty"), 1, f"{JVM_GONE}{MORE}"),
        (Py4JError("An error occurred while calling o7.x"), 1, f"{JVM_GONE}{MORE}"),
        (Py4JError("An error occurred while calling o7.x. Trace:\npy4j.Py4JException: no x\n"), 1, f"Py4JError: {NO_X}{MORE}"),
        (RuntimeError("in a task\n  File x\nInputError: /a/b: is short"), 1, "/a/b: is short"),
        (RuntimeError("Job aborted due to stage failure: org.x.SomeException: heap\n at y"), 1, f"RuntimeError: heap{MORE}"),
        (
            RuntimeError(f"x\n: java.lang.Error: Job aborted due to stage failure: {RESULTS}\n at y"),
            1,
            f"spark.driver.maxResultSize is too small: {RESULTS}{MORE}",
        ),
        (
            RuntimeError("An error occurred\n: java.lang.Error: Job aborted.\n at y\nCaused by: z.Error: no room\n at z"),
            1,
            f"RuntimeError: no room{MORE}",
        ),
        (Py4JError(INSTANTIATING), 1, f"Py4JError: spark.x should be int{MORE}"),
        (ValueError(), 1, f"ValueError: no message{MORE}"),
    ],
)
def test_one_line_and_a_status(error: BaseException, status: int, line: str) -> None:
    assert outcome(error, Interrupts(), "the input", MORE) == (status, line)


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """SIGHUP as a terminal's command has it, also where the tests were started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_run(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt), interrupts:
        signal.raise_signal(number)
    assert interrupts.seen
    assert outcome(ValueError(), interrupts, "input") == (128 + number, "interrupted")
    assert signal.getsignal(number) == before
    with interrupts.ignored():
        signal.raise_signal(number)


def test_a_second_hang_up_does_not_disturb_the_clearing_up() -> None:
    """The kernel sends one to the terminal's processes, their shell another."""
    interrupts = Interrupts()
    with interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_nohup() -> None:
    """A SIGHUP that is ignored when the run starts stays so, also while it is told how the run ended, and after it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interrupts = Interrupts()
        for part in (interrupts, interrupts.ignored()):
            with part:
                assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
                signal.raise_signal(signal.SIGHUP)
        assert not interrupts.seen
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_is_told_whatever_py4j_made_of_it() -> None:
    interrupts = Interrupts()
    interrupts.seen = True
    assert outcome(RefusedError("damage"), interrupts, "input") == (130, "interrupted")


def test_errors_that_are_each_others_cause() -> None:
    """As PySpark 4.2 raises what a failed call raised: the command said nothing more, and did not end."""
    first, second = ValueError("first"), RuntimeError("second")
    first.__context__, second.__cause__ = second, first
    assert outcome(second, None, "input") == (1, "RuntimeError: second")
    first.__context__ = KeyboardInterrupt()
    assert outcome(second, Interrupts(), "input") == (130, "interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_spark_starts(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits for its session. What comes up then is stopped: it would leave its temporary folders."""
    waited, stopped, spark = threading.Event(), list[object](), object()

    usual = session._Start.session

    def asked(self: session._Start) -> object:
        waited.set()
        return usual(self)

    def start(*_words: object, **_more: object) -> object:
        waited.wait()
        os.kill(os.getpid(), number)
        return spark

    monkeypatch.setattr(session, "_is_there", lambda: False)
    monkeypatch.setattr(session, "_own", lambda *_: {})
    monkeypatch.setattr(session, "_new", start)
    monkeypatch.setattr(session._Start, "session", asked)
    monkeypatch.setattr(session, "stop", stopped.append)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(KeyboardInterrupt), Interrupts(), session.starting("local[1]"):
        session.get_session("local[1]")
    assert (stopped, session._starts) == ([spark], [])
