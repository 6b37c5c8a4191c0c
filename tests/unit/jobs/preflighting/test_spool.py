"""What a preflight puts away comes back as it was, in whatever order it is asked for."""

from __future__ import annotations

from rocketmq_reindex.jobs.preflighting.folders import TemporarySpool


def test_what_is_put_behind_what_was_read() -> None:
    with TemporarySpool() as spool:
        first, second = spool.put(b"first"), spool.put(b"second")
        assert bytes(spool.get(first, 5)) == b"first"
        third = spool.put(b"third")
        found = [bytes(spool.get(place, size)) for place, size in ((third, 5), (second, 6), (first, 5))]
    assert found == [b"third", b"second", b"first"]
