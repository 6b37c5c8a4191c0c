"""Unpack the bodies of a batch, none into more bytes than allowed: a few packed bytes can stand for gigabytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, compression_of
from rocketmq_reindex.udfs.messages.unpack_body import unpack


def _whole(raw: bytes, sys_flag: int, most: int) -> bytes | None:
    kind = compression_of(sys_flag)
    if kind is None:
        return raw
    found = unpack(raw, kind, most)
    return None if found.more or found.fault else found.data


def unpack_bodies(bodies: pa.Array, sys_flag: npt.NDArray[np.int64], most: int, room: int) -> pa.Array:
    """The first ``bodies`` (binary), with packed ones unpacked.

    ``sys_flag`` (int64) says how each is packed. A body is null where it is broken or would have more than ``most`` bytes. Once
    they have more than ``room`` bytes together, the others are left out; one is always there.
    """
    if not (sys_flag & FLAG_COMPRESSED).any():
        return bodies
    found: list[bytes | None] = []
    size = 0
    for body, flag in zip(bodies, sys_flag.tolist(), strict=True):
        data = _whole(body.as_py(), flag, most)
        found.append(data)
        size += len(data) if data is not None else 0
        if size > room:
            break
    return pa.array(found, pa.binary())
