"""A session that starts in the background."""

from __future__ import annotations

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
