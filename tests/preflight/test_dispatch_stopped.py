"""A topic that cannot be a folder: the real RocketMQ dispatches nothing more at each start, until the log is repaired.

`make slow` runs it with 5.3.3, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.repairing.options import parse_settings
from rocketmq_reindex.storage_format.record.layout import HEADER_SIZE
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.repair.odd_judge import lay_out
from tests.tools.encode import Message
from tests.tools.local_engine import InlineEngine, run_build, single
from tests.tools.log_writer import LogWriter, overwrite

SEGMENT = 1 << 14
CONF = Conf(Sizes(SEGMENT, 4000, 50, 400))
RECORDS, SPOILT, BODY = 200, 120, 60


@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.0"])
def test_the_advised_repair_ends_it(version: str, tmp_path: Path) -> None:
    store, started, mended = (tmp_path / name for name in ("store", "started", "mended"))
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(RECORDS):
            writer.append(Message(body=bytes(BODY), properties={"KEYS": f"k{number}"}))
    spoilt = writer.puts[SPOILT]
    # Behind the body lies the topic's length.
    overwrite(store / "commitlog", spoilt.offset + HEADER_SIZE + BODY + 1, b"\0")
    said = _predicted(store, version, tmp_path)
    assert {"records-hidden", "dispatch-stopped"} <= {loss["kind"] for loss in said["losses"]}
    assert said["dispatch"]["stopped_at"] == spoilt.offset
    (command,) = {command for loss in said["losses"] for command in loss["commands"]}
    with RealStores(version, tmp_path) as real:
        shutil.copytree(store, started)
        for _ in range(2):
            found = real.start(started, CONF)
            assert found.loads
            assert found.queues is not None
            assert found.queues["TopicA", 0].max_offset == SPOILT
            real.leave(started)
        words = command.split()
        assert words[:3] == ["rmq-reindex", "repair", str(store)]
        at = words.index("--replica")
        settings = parse_settings([*words[2:at], *words[at + 2 :]])
        told = run_build(settings, single(InlineEngine()))
        assert (told.exit, told.error) == (3, None)
        out = Path(settings.out)
        lay_out(out, out / "commitlog", mended)
        assert _predicted(mended, version, tmp_path)["losses"] == []
        found = real.start(mended, CONF)
        assert (found.loads, found.behind) == (True, 0)
        given = real.read(mended)["TopicA", 0]
        assert list(dict.fromkeys(given)) == [put.offset for put in writer.puts if put is not spoilt]
        assert [put.offset for put in real.put(mended, 1, 3, [("TopicA", 0)])]
        real.leave(mended)


def _predicted(store: Path, version: str, scratch: Path) -> dict[str, Any]:
    said = predict(store, version, CONF, scratch)
    assert isinstance(said, dict), said
    return said
