"""Random synthetic commitlogs that hold every oddity the format allows; one seed, one log."""

import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tests.tools.encode import (
    COMMIT,
    EPOCH,
    PREPARED,
    ROLLBACK,
    Message,
    blank,
    body_start,
    encode,
    property_bytes,
)  # fmt: skip
from tests.tools.log_writer import LogWriter, Put

__all__ = ["FEATURES", "LogWriter", "Message", "Put", "encode", "evil_body", "random_log"]

FEATURES = frozenset({
    "blanks", "unicode", "malformed", "collide", "tags", "transactions", "delay", "lmq", "v2", "ipv6", "evil",
    "clock", "crc", "rawprops", "gaps", "compressed",
})  # fmt: skip
# Left out unless asked for: queue offsets that repeat or jump.
ORDERLY = FEATURES - {"gaps"}
TOPICS = ("TopicA", "TopicB", "%RETRY%group-1", "rmq_sys_x", "%DLQ%g_1", "Тема", "a b", "x~y!")
LONG_TOPICS = ("L" * 128, "M" * 200, "é" * 100, "N" * 255)
DELAYS = ("1", "3", "18", "19", "0", "-1", "+5", "007", "2147483647", "-2147483648", "٣", "\uff15")
UNICODE = ("ключ", "键", "😀", "a😀b", "\u0000", "k\u0000z", "é", "e\u0301", "\u200b", "\uffff", "Ǆ")
MALFORMED = (
    b"\xed\xa0\x80", b"\xed\xb0\x80x", b"\xc0\x80", b"\xf0\x9f\x98", b"\xff", b"a\xe2\x82",
    b"\xf4\x90\x80\x80", b"\xf8\x88", b"\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf",
)  # fmt: skip
COLLIDING = ("Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa")
RAW = (
    b"", b"KEYS\x01a b", b"\x01\x02", b"KEYS\x01\x02", b"KEYS\x01a\x02KEYS\x01b\x02", b"K\x02", b"k\x01v",
    b"KEYS", b"\x02\x02KEYS\x01k\x02\x02", b"a\x01\x02TAGS\x01t", b"\x01v\x02KEYS\x01\x01\x02",
    b"TAGS\x01\x01\x02",
    b"UNIQ_KEY\x01u\x01\x01v\x02KEYS\x01x\x01y z\x02", b"UNIQ_KEY\x01a b\x02KEYS\x01 \x02",
    b"DELAY\x01nonsense\x02", b"INNER_NUM\x01many\x02", b"INNER_BASE\x01-7\x02INNER_NUM\x01+0\x02",
)  # fmt: skip


def random_log(
    folder: Path, seed: int, *, records: int = 300, segment_size: int = 1 << 15, first_offset: int = 0,
    features: Collection[str] = ORDERLY, topics: int = 3, queues: int = 3, biggest_body: int = 700,
) -> list[Put]:  # fmt: skip
    """Write `records` messages under `folder` (a commitlog folder); returns where each went.

    Without "gaps" every queue counts up from 0, and every record is good under every setting.
    """
    unknown = set(features) - FEATURES
    if unknown:
        raise ValueError(f"no such features: {sorted(unknown)}")
    rng = random.Random(seed)
    chosen = rng.sample(TOPICS, topics)
    now = EPOCH
    with LogWriter(folder, segment_size, first_offset) as writer:
        for _ in range(records):
            now += _tick(rng, features)
            message = _message(rng, features, chosen, queues, biggest_body, now)
            if "evil" in features and rng.random() < 0.2:
                message = evil_body(writer, message, rng)
            writer.append(message)
            if rng.random() < 0.005 and writer.segment:
                writer.roll()
        return writer.puts


def _tick(rng: random.Random, features: Collection[str]) -> int:
    if "clock" in features and rng.random() < 0.05:
        return rng.choice((-3_600_000, -1, 999, 1000, 86_400_000, 40 * 365 * 86_400_000))
    return rng.randrange(0, 2_000)


def _message(
    rng: random.Random, features: Collection[str], topics: list[str], queues: int, biggest_body: int, now: int
) -> Message:
    message = Message(
        topic=rng.choice(topics), queue_id=rng.randrange(queues),
        body=rng.randbytes(rng.randrange(biggest_body + 1)), flag=rng.randrange(-5, 5),
        born_timestamp=now - rng.randrange(9_999), store_timestamp=now, properties=_properties(rng, features),
    )  # fmt: skip
    if "v2" in features and rng.random() < 0.2:
        message = replace(message, topic=rng.choice(LONG_TOPICS), version=2)
    elif "v2" in features and rng.random() < 0.05:
        message = replace(message, version=2)
    if "ipv6" in features:
        message = replace(
            message,
            born_host=rng.choice((message.born_host, ("2001:db8::1", 80))),
            store_host=rng.choice((message.store_host, ("fe80::9", 10911))),
        )
    if "compressed" in features and rng.random() < 0.2:
        message = replace(message, sysflag=message.sysflag | rng.choice((0x1, 0x101, 0x201, 0x301)))
    if "transactions" in features and rng.random() < 0.3:
        state = rng.choice((PREPARED, COMMIT, ROLLBACK))
        message = replace(message, sysflag=message.sysflag | state, prepared_offset=rng.randrange(99))
    if "delay" in features and rng.random() < 0.15:
        # Last, so that it wins over a raw DELAY that is no number.
        extra = property_bytes({"DELAY": rng.choice(DELAYS), "REAL_TOPIC": "TopicA", "REAL_QID": "0"})
        topic = "SCHEDULE_TOPIC_XXXX" if rng.random() < 0.8 else message.topic
        properties = property_bytes(message.properties) + b"\x02" + extra
        message = replace(message, topic=topic, version=None, properties=properties)
    if "lmq" in features and rng.random() < 0.2:
        names = tuple(rng.choices(("%LMQ%one", "%LMQ%two", "plain", "%LMQ%/slash", "%LMQ%😀"), k=rng.randrange(1, 4)))
        message = replace(message, lmq=tuple(dict.fromkeys(names)))
    if "gaps" in features and rng.random() < 0.05:
        message = replace(message, queue_offset=rng.choice((0, 0, 1, 2, 5, 50, 1000)))
    return replace(message, crc_property="crc" in features and rng.random() < 0.3)


def _properties(rng: random.Random, features: Collection[str]) -> bytes:
    if "rawprops" in features and rng.random() < 0.1:
        return rng.choice(RAW)
    pairs: list[tuple[bytes, bytes]] = []
    if rng.random() < 0.8:
        pairs.append((b"UNIQ_KEY", rng.randbytes(8).hex().upper().encode()))
    words = [_key(rng, features) for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 5, 8)))]
    if words:
        separators = (b" ", b"  ", b"   ", b"\t ") if "blanks" in features else (b" ",)
        text = b"".join(word + rng.choice(separators) for word in words)
        pairs.append((b"KEYS", text if "blanks" in features and rng.random() < 0.3 else text.strip(b" ")))
    if "tags" in features and rng.random() < 0.7:
        pairs.append((b"TAGS", rng.choice((b"TagA", b"TagB", "тег😀".encode(), b"BB", b"polygenelubricants"))))
    rng.shuffle(pairs)
    return b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs if value)


def _key(rng: random.Random, features: Collection[str]) -> bytes:
    kind = rng.random()
    if "unicode" in features and kind < 0.2:
        return rng.choice(UNICODE).encode()
    if "malformed" in features and kind < 0.3:
        return b"m" + rng.choice(MALFORMED) + rng.choice((b"", b"z"))
    if "collide" in features and kind < 0.5:
        return rng.choice(COLLIDING).encode()
    return f"key-{rng.randrange(60)}".encode() * (rng.randrange(20, 60) if kind > 0.98 else 1)


def evil_body(writer: LogWriter, message: Message, rng: random.Random) -> Message:
    """The message with a body of whole record images, which tell their true offsets in half of all bodies.

    A filler image may follow that reaches exactly to the segment's end.
    """
    images = [Message(topic="Evil", body=rng.randbytes(rng.randrange(20)), properties={"KEYS": "evil"})
              for _ in range(rng.randrange(1, 4))]  # fmt: skip
    true_offsets = rng.random() < 0.5
    lead = rng.randbytes(rng.randrange(9))
    sizes = [len(encode(image, 0)) for image in images]
    with_filler = rng.random() < 0.3
    body = lead + bytes(sum(sizes)) + bytes(8 if with_filler else 0)
    # With LMQ properties the record is longer than this: if it then rolls, the images tell a wrong place.
    at = writer.place(len(encode(replace(message, body=body), 0))) + body_start(message) + len(lead)
    out = lead
    for image, size in zip(images, sizes, strict=True):
        out += encode(image, at if true_offsets else rng.randrange(1 << 40), rng.randrange(5))
        at += size
    if with_filler:
        out += blank(writer.segment_size - at % writer.segment_size)
    return replace(message, body=out)
