"""Records made of fields or taken from another log: the bytes that a broker's encoder writes, at their new places."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from rocketmq_reindex.storage_format.record import making
from tests.tools.encode import COMMIT, Message, body_start, encode, property_bytes


def texts(values: Sequence[bytes]) -> making.Texts:
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])]).astype(np.int64)
    return making.Texts(offsets, np.frombuffer(b"".join(values), np.uint8).copy())


def host(address: bytes) -> bytes:
    return address.ljust(making.HOST_SIZE, b"\0")


def messages(seed: int) -> list[Message]:
    rng = random.Random(seed)
    return [
        Message(
            topic=rng.choice(["a", "Orders", "Тема", "L" * 127, "M" * 128, "N" * 255]), queue_id=rng.randrange(9),
            body=rng.randbytes(rng.choice([0, 1, 9, 300])),
            properties={"KEYS": "k", "x": "é" * rng.randrange(9)} if rng.random() < 0.7 else {},
            sysflag=rng.choice([0, COMMIT]), flag=rng.randrange(-5, 5), born_timestamp=rng.randrange(1 << 40),
            store_timestamp=rng.randrange(1 << 40), born_host=rng.choice([("10.0.0.1", 80), ("2001:db8::1", 99)]),
            store_host=rng.choice([("10.0.0.9", 10911), ("fe80::9", 10911)]), reconsume_times=rng.randrange(4),
            prepared_offset=rng.randrange(1 << 50), crc_property=rng.random() < 0.5,
        )
        for _ in range(200)
    ]  # fmt: skip


@pytest.mark.random
def test_records_of_their_fields(seed: int) -> None:
    wanted = messages(seed)
    for message in wanted:
        message.crc_property = False
    encoded = [encode(message, 0) for message in wanted]
    hosts = {}
    for name, at in (("born_host", 48), ("store_host", 64)):
        # The encoder of the tests knows how an address is written.
        v6 = [":" in getattr(message, name)[0] for message in wanted]
        begin = [at + (12 if name == "store_host" and ":" in message.born_host[0] else 0) for message in wanted]
        hosts[name] = [host(data[low : low + (20 if long else 8)]) for data, low, long in zip(encoded, begin, v6, strict=True)]
    flags = [int.from_bytes(data[36:40], "big") for data in encoded]

    def numbers(name: str) -> making.Int64s:
        return np.array([getattr(message, name) for message in wanted], np.int64)

    made = making.make_records(making.RecordFields(
        numbers("queue_id"), numbers("flag"), np.array(flags, np.int64), numbers("born_timestamp"),
        np.frombuffer(b"".join(hosts["born_host"]), np.uint8).reshape(-1, making.HOST_SIZE), numbers("store_timestamp"),
        np.frombuffer(b"".join(hosts["store_host"]), np.uint8).reshape(-1, making.HOST_SIZE), numbers("reconsume_times"),
        numbers("prepared_offset"), texts([message.body for message in wanted]),
        texts([str(message.topic).encode() for message in wanted]),
        texts([property_bytes(message.properties) for message in wanted]),
    ))  # fmt: skip
    places = making.places(made.sizes, 0, 1 << 30)
    assert making.settle(made, places, np.zeros(len(places), np.int64)) == -1
    assert made.data.tobytes() == b"".join(encode(m, place) for m, place in zip(wanted, places.tolist(), strict=True))


@pytest.mark.random
def test_records_of_another_log(seed: int) -> None:
    """With or without a checksum over all of it, a record is as if the broker had put it there."""
    wanted = messages(seed)
    taken = texts([encode(message, 7777, 99) for message in wanted])
    rng = np.random.default_rng(seed)
    places, numbers = rng.integers(0, 1 << 50, len(wanted)), rng.integers(0, 1 << 50, len(wanted))
    assert making.settle(taken, places, numbers) == -1
    put = zip(wanted, places.tolist(), numbers.tolist(), strict=True)
    assert taken.data.tobytes() == b"".join(encode(message, place, number) for message, place, number in put)


def test_what_is_no_record_is_told() -> None:
    good, flipped = encode(Message(body=b"hello"), 0), bytearray(encode(Message(body=b"hello"), 0))
    flipped[body_start(Message())] ^= 1
    wrong = texts([good, bytes(flipped), good])
    assert making.settle(wrong, np.array([0, 100, 200]), np.zeros(3, np.int64)) == 1


def test_where_records_lie() -> None:
    """Eight bytes of each segment stay for its filler."""
    assert making.places(np.array([100, 100, 92, 8, 200]), 0, 300).tolist() == [0, 100, 200, 300, 308]
    assert making.places(np.array([92, 1]), 200, 300).tolist() == [200, 300]
    assert making.places(np.array([93]), 200, 300).tolist() == [300]
    assert making.places(np.array([], np.int64), 5, 300).tolist() == []
    with pytest.raises(ValueError, match="293 bytes does not fit into a segment of 300"):
        making.places(np.array([293]), 0, 300)
