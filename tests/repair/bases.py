"""Sound stores to be damaged: of random logs, of light and batch queues, and such as the real store wrote by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.preflight.bases import complete
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.test_other_queues import write_light
from tests.tools.batch_log import BATCH_TOPICS, SIZES as BATCH_SIZES, random_batch_log, topics_json
from tests.tools.make_log import FEATURES, random_log

LEFT_OUT = {"lmq", "gaps", "evil"}
"""What makes a truth unsure: queue offsets that repeat, and whole records in bodies, which damage may lay bare.

And light queues as 5.x does not take them (``tests.preflight.bases``)."""


@dataclass(frozen=True)
class Base:
    """A closed store; ``conf`` starts it, and ``build`` are the settings of a build or repair of it."""

    path: Path
    kind: str
    conf: Conf
    build: dict[str, Any]

    @property
    def checks_own_crc(self) -> bool:
        """Whether the broker checks ``__CRC32#``."""
        return self.conf.more.get("forceVerifyPropCRC") == "true"


def make_base(real: RealStores, path: Path, seed: int) -> Base:
    """A store of 2 to 12 segments. One seed, one kind of store and one random log."""
    rng = random.Random(f"base {seed}")
    makers: list[Callable[[RealStores, Path, random.Random], Base]] = [_random, _random, _random, _written, _light]
    if not real.release.startswith("4."):
        makers += [_written, _batch]
    return rng.choice(makers)(real, path, rng)


def _sizes(rng: random.Random) -> Sizes:
    return Sizes(
        rng.choice((1 << 14, 1 << 14, 20_000, 1 << 15)), rng.choice((400, 1000, 2000)), 50, rng.choice((150, 400, 2000))
    )


def _base(real: RealStores, path: Path, kind: str, conf: Conf, **more: Any) -> Base:
    sizes = conf.sizes
    build = {
        "cq_file_size": sizes.cq_file, "hash_slots": sizes.hash_slots, "index_items": sizes.index_items,
        "segment_size": sizes.segment, "broker_version": real.release[:3], "crc": "all", **more,
    }  # fmt: skip
    return Base(path, kind, conf, build)


def _random(real: RealStores, path: Path, rng: random.Random) -> Base:
    """Synthetic records of every kind; the real store makes what is derived from them."""
    sizes, segments, body = _sizes(rng), rng.randrange(2, 13), rng.choice((60, 300, 700))
    features = {feature for feature in sorted(FEATURES - LEFT_OUT) if rng.random() < 0.35}
    if real.release.startswith("4."):
        features -= {"v2"}
    random_log(
        path / "commitlog", rng.randrange(1 << 30), records=int((segments - 0.5) * sizes.segment / (200 + body * 0.6)),
        segment_size=sizes.segment, first_offset=sizes.segment * rng.choice((0, 0, 0, 1, 1000)), features=features,
        topics=rng.randrange(1, 5), queues=rng.randrange(1, 4), biggest_body=body,
    )  # fmt: skip
    complete(real, path, sizes)
    return _base(real, path, f"random ({', '.join(sorted(features))})", Conf(sizes))


def _written(real: RealStores, path: Path, rng: random.Random) -> Base:
    """The real store itself puts all messages, on 5.x in one of two cases with ``__CRC32#``, which it then demands."""
    sizes, more = _sizes(rng), {}
    if not real.release.startswith("4.") and rng.random() < 0.6:
        more = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
    conf = Conf(sizes, more)
    path.mkdir(parents=True)
    real.start(path, conf)
    queues = [(f"Topic{letter}", queue) for letter in "ABC" for queue in range(rng.randrange(1, 4))]
    real.put(path, rng.randrange(1 << 30), int(rng.randrange(2, 12) * sizes.segment / 700), queues)
    real.look(path)
    real.close(path)
    return _base(real, path, "written with CRC" if more else "written", conf, property_crc_forced=bool(more))


def _light(real: RealStores, path: Path, rng: random.Random) -> Base:
    """Light queues, which most records name."""
    _ = rng
    conf = Conf(Sizes(1 << 14, 400, 50, 400), {"enableLmq": "true", "enableMultiDispatch": "true"})
    write_light(path / "commitlog")
    complete(real, path, conf.sizes, conf.more)
    return _base(real, path, "light", conf, lmq=True)


def _batch(real: RealStores, path: Path, rng: random.Random) -> Base:
    """Topics with batch ConsumeQueues."""
    conf = Conf(Sizes(1 << 14, 400, 50, 400), {"mapperFileSizeBatchConsumeQueue": str(BATCH_SIZES["batch_cq_file_size"])})
    random_batch_log(path / "commitlog", rng.randrange(1 << 30), records=rng.randrange(300, 900), odd=False)
    (path / "config").mkdir()
    topics_json(path / "config/topics.json")
    complete(real, path, conf.sizes, conf.more)
    return _base(
        real, path, "batch", conf, batch_cq_file_size=BATCH_SIZES["batch_cq_file_size"],
        batch_topics=BATCH_TOPICS,
    )  # fmt: skip
