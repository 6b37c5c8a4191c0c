"""What the commands of each page find: a store in a folder of its own, in the state that the page tells of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.docs.pages import ROOT
from tests.golden.stores import unpack
from tests.tools.derived_store import derive
from tests.tools.encode import COMMIT, EPOCH, Message
from tests.tools.log_writer import LogWriter
from tests.tools.spoil_queues import Queue

SIZES: Final = ("--cq-file-size", "4000", "--hash-slots", "100", "--index-items", "400")
CONF: Final = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=4000\nmaxHashSlotNum=500\nmaxIndexNum=1500\n"


@dataclass(frozen=True)
class World:
    """``make`` fills a folder; ``moved`` are paths of the page that stand for the folder; ``here`` is where the reader is."""

    make: Callable[[Path], None]
    moved: tuple[str, ...] = ("/data", "/snap")
    here: Path | None = None
    names: dict[str, object] = field(default_factory=dict)
    """for blocks of Python"""


def whole(folder: Path) -> None:
    """``store``, as RocketMQ wrote it, and a broker.conf of its sizes."""
    unpacked = unpack("basic-5.3", folder).path
    shutil.rmtree(unpacked / "rebuilt")
    unpacked.rename(folder / "store")
    (folder / "broker.conf").write_text(CONF)


def extended(folder: Path) -> None:
    """``store`` with consumequeue_ext, bit maps and the registrations of consumer groups, as RocketMQ 5.5 wrote it."""
    unpack("extended-5.5", folder).path.rename(folder / "store")


def shifted(folder: Path) -> None:
    """Its newest IndexFile is lost, and a queue is without its unit 40 and shifted from there on; ``replica`` is a copy."""
    whole(folder)
    store = folder / "store"
    max((store / "index").iterdir()).unlink()
    queue = Queue(store / "consumequeue" / "TopicA" / "1")
    del queue.units[40]
    queue.units.append((0, 0, 0))
    queue.write()
    shutil.copytree(store, folder / "replica")


def damaged(folder: Path) -> None:
    """The log has a record with a wrong magic, and in its last segment one with a wrong body; ``replica`` is undamaged."""
    whole(folder)
    store = folder / "store"
    shutil.copytree(store, folder / "replica")
    for at, byte in ((1779866, 0x01), (4371600, 0xFF)):
        segment = store / "commitlog" / f"{at // 1048576 * 1048576:020d}"
        data = bytearray(segment.read_bytes())
        data[at % 1048576] ^= byte
        segment.write_bytes(data)


def watched(folder: Path) -> None:
    """RocketMQ's default sizes, and where node_exporter looks."""
    whole(folder)
    for part in ("consumequeue", "index"):
        shutil.rmtree(folder / "store" / part)
    (folder / "textfile").mkdir()


def bare(folder: Path) -> None:
    """A log of 14 segments, without ConsumeQueue, index and checkpoint; a broker.conf of its sizes."""
    places = [0] * 4
    with LogWriter(folder / "store" / "commitlog", 1 << 16) as writer:
        for number in range(6700):
            queue = number % len(places)
            writer.append(Message(
                topic="orders", queue_id=queue, queue_offset=places[queue], body=b"order %d" % number,
                store_timestamp=EPOCH + 10 * number, properties={"KEYS": f"order-{number}", "TAGS": "paid"},
            ))  # fmt: skip
            places[queue] += 1
    (folder / "broker.conf").write_text(CONF.replace("1048576", str(1 << 16)))


def told(folder: Path) -> None:
    """A store with a message that was sent in a transaction, given back by a group twice, and became a dead letter."""
    key = {"UNIQ_KEY": "AC11000200002A9F0000000000000001", "KEYS": "order-17"}
    with LogWriter(folder / "store" / "commitlog", 1 << 16) as writer:

        def put(milliseconds: int, topic: str, properties: dict[str, str], **more: Any) -> int:
            time, body = EPOCH + milliseconds, more.pop("body", b"17")
            return writer.append(Message(topic=topic, properties=properties, store_timestamp=time, body=body, **more)).offset

        put(5, "RMQ_SYS_TRANS_HALF_TOPIC", key | {"REAL_TOPIC": "Orders", "REAL_QID": "0", "TRAN_MSG": "true"})
        sent = put(210, "Orders", key | {"TRAN_MSG": "true", "REAL_TOPIC": "Orders"}, sysflag=COMMIT, prepared_offset=0)
        put(215, "RMQ_SYS_TRANS_OP_HALF_TOPIC", {"TAGS": "d"}, body=b"0,")
        again = key | {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": f"0A000009{10911:08X}{sent:016X}"}
        for attempt in (1, 2):
            put(10_000 * attempt, "%RETRY%billing", again, reconsume_times=attempt)
        put(40_000, "%DLQ%billing", again | {"DLQ_ORIGIN_TOPIC": "Orders"}, reconsume_times=3)
        put(90_000, "Orders", {"UNIQ_KEY": "AC11000200002A9F0000000000000002", "KEYS": "order-18"})
    derive(folder / "store", "--snapshot", *SIZES)
    shutil.rmtree(folder / "store-out")
    offsets = {"offsetTable": {"Orders@billing": {"0": 1}, "Orders@audit": {"0": 0}}}
    (folder / "store" / "config").mkdir()
    (folder / "store" / "config" / "consumerOffset.json").write_text(json.dumps(offsets))


def nothing(_: Path) -> None:
    pass


WORLDS: Final = {
    "tutorial": World(nothing, moved=("/tmp/tutorial",), here=ROOT),
    "faq": World(whole),
    "how-to/before-start": World(bare),
    "how-to/browse": World(whole),
    "how-to/consumer-offsets": World(told),
    "how-to/damaged-log": World(damaged),
    "how-to/every-hour": World(whole),
    "how-to/export-messages": World(whole),
    "how-to/move-messages": World(whole),
    "how-to/filter-bit-maps": World(extended),
    "how-to/find-messages": World(whole),
    "how-to/inspect-a-file": World(whole),
    "how-to/notebooks": World(whole, names={"spark": None}),
    "how-to/report": World(whole),
    "how-to/verify": World(shifted),
    "how-to/watch": World(watched),
    "how-to/what-happened": World(told),
    "how-to/without-java": World(whole),
    "reference/info": World(whole),
}
"""Pages whose blocks are run from top to bottom."""
