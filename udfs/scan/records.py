"""Read the bytes of records out of the segments of a log.

By itself: an export as a store does so, and ``repair --to-plain``.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.record import making
from rocketmq_reindex.storage_format.record.making import Texts
from rocketmq_reindex.storage_format.scan.ranges import Segment

Int64s = npt.NDArray[np.int64]
_GAP: Final = 1 << 16
"""bytes between two records that are read, too: a read by itself costs more"""


class RecordBytes:
    """Reads records from the segments of a log: in any thread."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._starts = np.array([segment.start for segment in segments], np.int64)

    def read(self, starts: Int64s, sizes: Int64s) -> Texts:
        """Return the bytes of records that begin at the offsets ``starts`` of the log and have these sizes, both int64 (n,).

        Raises OSError and InputError as ``files.Reader`` does.
        """
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        data = np.empty(int(offsets[-1]), np.uint8)
        of_segment = np.searchsorted(self._starts, starts, side="right") - 1
        for number in np.unique(of_segment).tolist():
            segment, rows = self._segments[number], np.flatnonzero(of_segment == number)
            with files.Reader(segment.path) as reader:
                for run in np.split(rows, np.flatnonzero(starts[rows[1:]] - starts[rows[:-1]] - sizes[rows[:-1]] > _GAP) + 1):
                    low = int(starts[run[0]])
                    read = np.empty(int(starts[run[-1]] + sizes[run[-1]]) - low, np.uint8)
                    reader.read_into(low - segment.start, read)
                    making.copy(read, starts[run] - low, sizes[run], data, offsets[run])
        return Texts(offsets, data)
