"""A session that starts in the background."""

from __future__ import annotations

import threading
import time

import pytest

from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.storage_format.errors import InputError


def test_what_kept_it_from_starting_is_raised_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def new(*_: object, **__: object) -> None:
        raise InputError("no such master")

    monkeypatch.setattr(session, "_is_there", lambda: False)
    monkeypatch.setattr(session, "_own", lambda *_: {})
    monkeypatch.setattr(session, "_new", new)
    with session.starting("local[1]"), pytest.raises(InputError, match="no such master"):
        session.get_session("local[1]")


def test_a_session_that_nobody_asked_for_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is not up yet when the run ends: its JVM would stay."""
    spark, leaving, stopped = object(), threading.Event(), list[object]()

    def new(*_: object, **__: object) -> object:
        leaving.wait(60)
        time.sleep(0.2)
        return spark

    monkeypatch.setattr(session, "_is_there", lambda: False)
    monkeypatch.setattr(session, "_own", lambda *_: {})
    monkeypatch.setattr(session, "_new", new)
    monkeypatch.setattr(session, "stop", stopped.append)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with session.starting("local[1]"):
        leaving.set()
    assert (stopped, session._starts) == ([spark], [])
