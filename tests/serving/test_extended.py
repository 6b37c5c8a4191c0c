"""A real broker filters by the bit maps that were built: a consumer of an SQL92 expression gets each message that it takes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.golden.test_extended import FILTERS
from tests.oracle.test_extended import real
from tests.serving.broker import Broker, by_queue, write_topics
from tests.serving.programs import Program
from tests.serving.stores import build_into, keyed_log, queues_of

GROUP, EXPRESSION = "selecting", "TAGS IN ('paid', 'Aa')"
EXT_SIZE = 4096
SETTINGS = (
    f"enableConsumeQueueExt=true,enableCalcFilterBitMap=true,enablePropertyFilter=true,mappedFileSizeConsumeQueueExt={EXT_SIZE}"
)


@pytest.mark.random
@pytest.mark.parametrize("version", [pytest.param("5.5.0", marks=pytest.mark.slow), "5.5.1"])
def test_a_consumer_of_an_expression(version: str, seed: int, tmp_path: Path) -> None:
    """Also of units without bit maps, of units without consumequeue_ext, and never by bits that were not asked for."""
    store = tmp_path / "bitmap"
    puts = keyed_log(store, 400, seed)
    write_topics(store, puts)
    lines = [f"{topic}\t{GROUP}\t{EXPRESSION}\n" for topic in sorted({topic for topic, _ in queues_of(puts)})]
    (tmp_path / "subscriptions").write_text("".join(lines))
    # 5.5.1 takes none on a topic that its broker does not have.
    real("5.5.0", store, "--register", str(tmp_path / "subscriptions"))
    # A group that is older than the messages: a broker trusts the bits of those that came after it alone.
    registered = re.sub(r'"bornTime":\s*\d+', '"bornTime":1', (store / FILTERS).read_text())
    assert len(json.loads(registered)["filterDataByTopic"]) == 3
    (store / FILTERS).write_text(registered)
    for name in ("plain", "none"):
        shutil.copytree(store, tmp_path / name)
        build_into(tmp_path / name, cq_ext=name, cq_ext_file_size=EXT_SIZE)
    build_into(store, cq_ext="bitmap", cq_ext_file_size=EXT_SIZE)
    assert not (tmp_path / "none" / "consumequeue_ext").exists()
    # Where no bit is set, nothing comes: else it would not show that the bits are what the broker goes by.
    shutil.copytree(store, tmp_path / "unset")
    for path in (tmp_path / "unset" / "consumequeue_ext").glob("*/*/*"):
        path.write_bytes(without_bits(path.read_bytes()))
    due = queues_of(put for put in puts if dict(put.message.properties)["TAGS"] in ("paid", "Aa"))  # type: ignore[arg-type]
    taken = {queue: [put.offset for put in of_queue] for queue, of_queue in due.items()}
    count = sum(map(len, taken.values()))
    with Program(version, "Serve", tmp_path) as program:
        for name in ("bitmap", "plain", "none", "unset"):
            expected = 0 if name == "unset" else count
            with Broker(program, name, tmp_path / name, tmp_path, "--set", SETTINGS) as broker:
                got = by_queue(broker.consumed("push", expected, 8000 if name == "unset" else 1500, GROUP, EXPRESSION))
            places = {queue: sorted(place for _, place in messages) for queue, messages in got.items()}
            assert places == ({} if name == "unset" else taken), name


def without_bits(data: bytes) -> bytes:
    """A file of consumequeue_ext with the same units, of whose bits none is set."""
    out, at = bytearray(data), 0
    while (size := int.from_bytes(data[at : at + 2], "big", signed=True)) > 0:
        out[at + 20 : at + size] = bytes(size - 20)
        at += size
    return bytes(out)
