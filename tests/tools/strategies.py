"""What the property tests draw: bytes as they come in real and hostile logs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tests.tools.make_log import MALFORMED

Bytes = npt.NDArray[np.uint8]

JAVA_BYTES = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.text(max_size=4).map(str.encode),
        st.text(alphabet="AaBb01 \t#", max_size=9).map(str.encode),
        st.sampled_from(MALFORMED),
        st.integers(0x80, 0xFF).map(lambda lead: bytes([lead])),
    ),
    max_size=10,
).map(b"".join)
"""Text as a record may hold it: valid UTF-8, every kind of malformed sequence, and mixtures of the two."""


def embedded(raw: bytes, before: bytes = b"\xe2\x82", after: bytes = b"\x80\x80\x80", room: int = 0) -> tuple[Bytes, int, int]:
    """``raw`` between other bytes that would change what it says if they were read: (array, start, end).

    ``room`` more bytes lie behind: loops that read a block at once do so only where the array has it.
    """
    return np.frombuffer(before + raw + after + b"\x80" * room, np.uint8), len(before), len(before) + len(raw)
