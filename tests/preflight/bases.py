"""Sound stores to be spoilt: random logs, whose queues, index and checkpoint the real store made itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes, random_sizes
from tests.tools.make_log import FEATURES, random_log

# A light queue without its prefix stops the dispatch of 5.x for ever; 4.9 makes folders of one with a slash.
LEFT_OUT = {"lmq"}


@dataclass(frozen=True)
class Base:
    """A closed store and its sizes."""

    path: Path
    sizes: Sizes


def make_base(real: RealStores, path: Path, seed: int) -> Base:
    """A store of 2 to 14 segments. One seed, one log; the names of its IndexFiles are of the clock."""
    sizes = random_base(real.release, path, seed)
    complete(real, path, sizes)
    return Base(path, sizes)


def random_base(release: str, path: Path, seed: int) -> Sizes:
    """Write the log of such a store, and return its sizes."""
    rng = random.Random(seed)
    sizes = random_sizes(rng)
    segments = rng.randrange(2, 15) if sizes.segment < 1 << 16 else rng.randrange(2, 7)
    body = rng.choice((60, 300, 700))
    features = {feature for feature in sorted(FEATURES - LEFT_OUT) if rng.random() < 0.35}
    if release.startswith("4."):
        features -= {"v2"}
    first = sizes.segment * rng.choice((0, 0, 0, 1, 7, 1000))
    records = int((segments - 0.5) * sizes.segment / (200 + body * 0.6))
    random_log(
        path / "commitlog", seed, records=records, segment_size=sizes.segment, first_offset=first,
        features=features, topics=rng.randrange(1, 5), queues=rng.randrange(1, 4), biggest_body=body,
    )  # fmt: skip
    return sizes


def complete(real: RealStores, path: Path, sizes: Sizes, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Let the real store dispatch the whole log of ``path``, under ``more`` settings, and close it."""
    told = real.start(path, Conf(sizes, {"commitLogRecoverMaxNum": "1000000", **more}))
    if not told.loads or told.behind:
        raise RuntimeError(f"{real.release} does not make a store of {path}: {told}")
    real.close(path)
