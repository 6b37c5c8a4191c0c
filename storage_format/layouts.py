"""Tables of fields that lie one after another in a file: their order, sizes and names are written down nowhere else."""

from __future__ import annotations

import struct
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np

INT16: Final = "h"
INT32: Final = "i"
INT64: Final = "q"


class Field(NamedTuple):
    """One field: ``name`` as RocketMQ and the messages here call it, ``column`` as this code does, ``kind`` INT16 to INT64."""

    name: str
    column: str
    kind: str


class Layout:
    """Signed big-endian fields without gaps.

    ``size`` is the bytes of all of them, ``at[column]`` the byte at which a field begins. ``pack``, ``unpack``, ``unpack_from``
    and ``iter_unpack`` are those of ``struct.Struct``; ``dtype`` is the numpy type of one row, its fields named by column.
    """

    def __init__(self, *fields: Field) -> None:
        layout = struct.Struct(">" + "".join(field.kind for field in fields))
        sizes = [struct.calcsize(f">{field.kind}") for field in fields]
        self.fields = fields
        self.names = tuple(field.name for field in fields)
        self.columns = tuple(field.column for field in fields)
        self.size: int = layout.size
        self.at = dict(zip(self.columns, accumulate(sizes, initial=0), strict=False))
        self.pack, self.unpack = layout.pack, layout.unpack
        self.unpack_from, self.iter_unpack = layout.unpack_from, layout.iter_unpack

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of one row."""
        # Not above: a query by key reads a few items, and should not wait for numpy.
        import numpy as np

        return np.dtype([(field.column, f">i{struct.calcsize(f'>{field.kind}')}") for field in self.fields])
