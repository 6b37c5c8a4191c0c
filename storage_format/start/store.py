"""A store as a start finds it: names, sizes and bytes of its files. Whoever calls opens them; nothing here reads a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class StoreFile:
    """A file of the commitlog or of a queue.

    ``name`` is the file's name, twenty digits: its offset, ``start``. ``data``, uint8 (size,), are its bytes, usually mapped.
    """

    name: str
    data: npt.NDArray[np.uint8]

    @property
    def start(self) -> int:
        """The offset that the name says."""
        return int(self.name)

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return len(self.data)

    def parts(self, low: int) -> Iterator[tuple[int, int]]:
        """First byte and end of each part from byte ``low`` on that is not known to be all zeros."""
        yield low, self.size

    def load(self, low: int, high: int) -> None:
        """Bytes ``low`` to ``high`` are about to be read. Raises OSError or InputError where they cannot be."""

    def let_go(self, low: int, high: int) -> None:
        """Bytes ``low`` to ``high`` have been read."""


@dataclass(frozen=True)
class QueueFolder:
    """A queue's folder: its files in the order of their names.

    ``batch`` is set for a folder that the broker reads as ``BatchConsumeQueue`` (units of 46 bytes): the topic's attribute says
    so, or the folder lies in ``batchconsumequeue``.
    """

    topic: str
    queue: int
    files: Sequence[StoreFile]
    batch: bool = False


class FilesOf(Sequence[StoreFile]):
    """The files of one of some folders, which may be made when they are asked for, and are not kept."""

    __slots__ = ("_folders", "_length", "_number")

    def __init__(self, folders: Sequence[QueueFolder], number: int, length: int) -> None:
        self._folders, self._number, self._length = folders, number, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> StoreFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoreFile]: ...
    def __getitem__(self, index: int | slice) -> StoreFile | Sequence[StoreFile]:
        return self._folders[self._number].files[index]


@dataclass(frozen=True)
class IndexFileData:
    """An IndexFile: ``name`` is the time at which it was made, ``data``, uint8, its bytes; zeros follow where it is short."""

    name: str
    data: npt.NDArray[np.uint8]

    def let_go(self, low: int, high: int) -> None:
        """Bytes ``low`` to ``high`` have been read."""


@dataclass(frozen=True)
class Store:
    """What a start reads of a store. Files are in the order of their names, and none is empty.

    ``checkpoint`` is the whole file, or None where there is none. ``batch_topics`` are the topics whose attributes
    (``config/topics.json``, ``queue.type=BatchCQ``) make a new queue a batch ConsumeQueue; from 5.0 on.
    """

    segments: Sequence[StoreFile]
    queues: Sequence[QueueFolder] = ()
    indexes: Sequence[IndexFileData] = ()
    checkpoint: bytes | None = None
    batch_topics: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True)
class StartSettings:
    """The release, what kind of start it is, and the broker settings that matter to it (``MessageStoreConfig``).

    A field that the release does not know is not looked at.
    """

    release: str
    """one of RELEASES"""
    abnormal: bool
    """there is an ``abort`` file"""
    segment_size: int = 1 << 30
    """``mappedFileSizeCommitLog``"""
    cq_file_size: int = 300_000 * 20
    """``getMappedFileSizeConsumeQueue()``: the bytes of a file, a multiple of 20"""
    batch_cq_file_size: int = 300_000 * 46
    """``mappedFileSizeBatchConsumeQueue``, a multiple of 46"""
    hash_slots: int = 5_000_000
    """``maxHashSlotNum``"""
    index_items: int = 20_000_000
    """``maxIndexNum``"""
    recover_max_segments: int = 10
    """``commitLogRecoverMaxNum`` (5.4.0 on)"""
    check_crc: bool = True
    """``checkCRCOnRecover``"""
    force_verify_prop_crc: bool = False
    """``forceVerifyPropCRC`` (5.x)"""
    check_offset: bool = False
    """``checkCommitLogOffsetOnRecover`` (5.5.0 on)"""
    accelerated: bool = False
    """``enableAcceleratedRecovery`` (5.5.0 on)"""
    message_index: bool = True
    """``messageIndexEnable``"""
    message_index_safe: bool = False
    """``messageIndexSafe``"""
    lmq: bool = False
    """``enableLmq`` and ``enableMultiDispatch``: with both, records get units in the light queues that they name"""
    recheck_reput: bool = False
    """``recheckReputOffsetFromCq`` (5.x)"""
