"""Which versions of RocketMQ may have written a store, by what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.versions import VERSIONS

_OLDEST_FIRST: Final = VERSIONS[::-1]


class Sign(NamedTuple):
    """Something that a store holds, or lacks. ``oldest`` is the first version that leaves it so, ``newest`` the last."""

    text: str
    oldest: str = _OLDEST_FIRST[0]
    newest: str = _OLDEST_FIRST[-1]


class Fit(NamedTuple):
    """``versions`` that fit all signs, newest first, and the ``best`` of them.

    Where none does, newer versions have worked on what an older one wrote: ``mixed``, and the newest one counts.
    """

    versions: tuple[str, ...]
    best: str
    mixed: bool = False


def fit(signs: Sequence[Sign]) -> Fit:
    """The versions that fit ``signs``: of several the newest is best."""
    oldest = max((_OLDEST_FIRST.index(sign.oldest) for sign in signs), default=0)
    newest = min((_OLDEST_FIRST.index(sign.newest) for sign in signs), default=len(_OLDEST_FIRST) - 1)
    if newest < oldest:
        return Fit((_OLDEST_FIRST[oldest],), _OLDEST_FIRST[oldest], mixed=True)
    return Fit(_OLDEST_FIRST[oldest : newest + 1][::-1], _OLDEST_FIRST[newest])
