"""Messages of every fate, replayed into another broker: what clients may still get, and nothing that they may not."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import rocketmq_reindex as rr
from tests.fates.life import AGAIN, DEAD, HOUR, LEVELS, TOPICS, TRACED, Fates, key
from tests.replay.cluster import Cluster, origin


def test_each_fate_is_replayed_as_it_stands(fates: Fates, tmp_path: Path) -> None:
    topics = {name: "MIXED" for name in TOPICS if name != TRACED} | {"Mended": ""}
    with Cluster(tmp_path, topics) as cluster:
        found = rr.replay(fates.store, to=cluster.address, journal=tmp_path / "journal", delay_levels=LEVELS)
        assert (found.exit_status, found.refused, found.doubtful, found.delayed) == (0, 0, 0, 2)
        rows = cluster.stored(*(name for name in topics if name != "Mended"))
        ids = Counter(origin(row)["message_id"] for row in rows)
        assert set(ids.values()) == {1}
        # Committed, not rolled back and not undecided; delivered, not recalled.
        wanted = {key("committed"), key("level"), key("timer"), key("light")}
        wanted |= {key("plain", n) for n in range(6)} | {key("popped", n) for n in range(12)}
        wanted |= {key(name, n) for name in (AGAIN, DEAD) for n in range(2)}
        assert set(ids) == wanted
        waiting = [row for row in _waiting(cluster) if origin(row)["topic"] == "Delayed"]
        left = {origin(row)["message_id"]: row["deliverTimestamp"] for row in waiting}
        before = {
            row["uniqKey"]: row["deliverTimestamp"] for row in _rows(fates.store, "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
        }
        assert set(left) == {key("level-waits"), key("timer-waits")}
        for name, deliver_time in left.items():
            assert abs(deliver_time - before[name]) <= 1000
            assert deliver_time < time.time() * 1000 + 3 * HOUR
        dead = rr.replay(fates.store, dlq=DEAD, topic_map=f"%DLQ%{DEAD}=Mended", to=cluster.address, journal=tmp_path / "dead")
        assert (dead.exit_status, dead.topics) == (0, {"Mended": 2})
        assert {row["body"] for row in cluster.stored("Mended")} == {row["body"] for row in _rows(fates.store, f"%DLQ%{DEAD}")}


def _rows(store: Path, *topics: str) -> list[dict[str, Any]]:
    rows = [row for batch in rr.messages(store, topics=topics, damage="skip", delay_levels=LEVELS) for row in batch.to_pylist()]
    return [row | {"properties": dict(row["properties"])} for row in rows]


def _waiting(cluster: Cluster) -> list[dict[str, Any]]:
    return _rows(cluster.store, "rmq_sys_wheel_timer")
