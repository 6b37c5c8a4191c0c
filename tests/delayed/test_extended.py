"""Delayed messages of a broker with consumequeue_ext: what preflight says of them is what a broker delivers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.topics import SCHEDULE_TOPIC
from tests.delayed.life import UNREAD, Life
from tests.delayed.log import Stored
from tests.serving.broker import write_topics
from tests.serving.stores import SEGMENT, build_into
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter

LEVEL, STUCK, DELAYED = 1, 25, 40
EXT_SIZE = 4096
SETTINGS: dict[str, str | int] = {
    "mappedFileSizeCommitLog": SEGMENT,
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": EXT_SIZE,
    **UNREAD,
}


def a_store(folder: Path, version: str) -> Path:
    """A store with one message, and delayed ones that wait for it; each unit has an address."""
    waiting = {"DELAY": str(LEVEL), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    with LogWriter(folder / "commitlog", SEGMENT) as writer:
        writer.append(Message(topic="orders", properties={"UNIQ_KEY": f"{0:032X}"}))
        for number in range(1, DELAYED + 1):
            properties = waiting | {"UNIQ_KEY": f"{number:032X}"}
            writer.append(Message(topic=SCHEDULE_TOPIC, queue_id=LEVEL - 1, properties=properties))
    write_topics(folder, writer.puts[:1])
    build_into(folder, cq_ext="plain", cq_ext_file_size=EXT_SIZE, broker_version=version[:3])
    return folder


def delivered(log: list[Stored]) -> int:
    return sum(record.topic == "orders" for record in log) - 1


@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"])
def test_where_their_times_come_from(version: str, tmp_path: Path) -> None:
    """From consumequeue_ext, from the log where that is gone; and a unit that cannot be read stops the delivery."""
    whole = a_store(tmp_path / "whole", version)
    for name in ("gone", "damaged"):
        shutil.copytree(whole, tmp_path / name)
    shutil.rmtree(tmp_path / "gone" / "consumequeue_ext")
    path = tmp_path / "damaged" / "consumequeue_ext" / SCHEDULE_TOPIC / str(LEVEL - 1) / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[STUCK * 20 + 18 : STUCK * 20 + 20] = b"\x7f\xff"
    path.write_bytes(data)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    for name, stuck_at in (("whole", -1), ("gone", -1), ("damaged", STUCK)):
        (level,) = rr.preflight(tmp_path / name, broker_version=version, broker_conf=conf).delayed
        assert (level["level"], level["stuck_at"], level["waiting"]) == (LEVEL, stuck_at, DELAYED)
        count = DELAYED if stuck_at < 0 else stuck_at
        # 4.9 delivers the message in front of the damage again and again.
        again = stuck_at >= 0 and version.startswith("4.9")
        with Life(version, tmp_path / name, tmp_path, SETTINGS) as life:
            wanted = count + 3 if again else count
            life.wait(lambda log, wanted=wanted: delivered(log) >= wanted, f"{wanted} of them")  # type: ignore[misc]
            assert again or (life.settle() and delivered(life.log()) == count)
