"""Raw bytes inside compiled loops: read as machine words, and their CRC-32 (IEEE, reflected, as ``java.util.zip.CRC32``)."""

import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from rocketmq_reindex.storage_format.kernels.compiler import CAN_FOLD, FOLD_MIN, STEP, cgutils, fold, intrinsic, numba, types
from rocketmq_reindex.storage_format.kernels.jit import allocating, inlined, jit

CAN_LOAD: Final = not numba.config.DISABLE_JIT and sys.byteorder == "little"
"""Whether compiled loops can use the functions here that are LLVM code."""
WORD: Final = 8
BLOCK: Final = 64
"""the bytes that ``bits_between`` looks at"""
HASHED: Final = 32
"""the most characters that ``hash_bytes`` takes"""
_BYTE, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(_BYTE, BLOCK)


def _place(context: Any, builder: Any, array_type: Any, array: Any, at: Any, kind: Any) -> Any:
    """Return what stands at byte ``at``, read as ``kind``."""
    data = context.make_array(array_type)(context, builder, array).data
    value = builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()))
    value.align = 1
    return value


def _loads(size: int, big_endian: bool) -> Any:
    """Return an intrinsic (data, at): the signed integer of ``size`` bytes at ``at``, as int64."""

    def load(_typing: Any, data: Any, at: Any) -> Any:  # noqa: ARG001  # the names of its arguments
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = _place(context, builder, signature.args[0], args[0], args[1], ir.IntType(8 * size))
            value = builder.bswap(value) if big_endian else value
            return value if size == WORD else builder.sext(value, _INT64)

        return types.int64(data, types.int64), generate

    return intrinsic(load)


_int16, _int32, _int64 = (_loads(size, True) for size in (2, 4, 8))
load_word: Final = _loads(WORD, False)
"""load_word(data, at): the little-endian signed integer of eight bytes at ``at``. ``data`` uint8, contiguous."""


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def load_byte(_typing: Any, data: Any, at: Any) -> Any:  # noqa: ARG001
    """Return load_byte(data, at): the byte at ``at``, which is not negative, as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_place(context, builder, signature.args[0], args[0], args[1], _BYTE), _INT64)

    return types.int64(data, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def bits_between(_typing: Any, data: Any, at: Any, low: Any, high: Any) -> Any:  # noqa: ARG001
    """Return bits_between(data, at, low, high): which of BLOCK bytes from ``at`` on are low to high, the first the lowest bit.

    ``low`` and ``high`` are constants.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, at, low, high = args
        block = _place(context, builder, signature.args[0], array, at, _BYTES)

        def spread(value: Any) -> Any:
            lane = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), builder.trunc(value, _BYTE), _INT32(0))
            return builder.shuffle_vector(lane, lane, ir.Constant(ir.VectorType(_INT32, BLOCK), [0] * BLOCK))

        # Below ``low`` the difference wraps to a large number.
        inside = builder.icmp_unsigned("<=", builder.sub(block, spread(low)), spread(builder.sub(high, low)))
        return builder.bitcast(inside, _INT64)

    return types.int64(data, types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(_typing: Any, bits: Any) -> Any:  # noqa: ARG001
    """Return lowest_bit(bits): the number of the lowest bit of an int64 that is set, BLOCK for none."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def hash_bytes(_typing: Any, data: Any, at: Any, count: Any) -> Any:  # noqa: ARG001
    """Return hash_bytes(data, at, count): Java's hash of ``count`` (1 to HASHED) ASCII characters, 32 bits unsigned, as int64.

    HASHED bytes are read at once, those behind the characters with the weight 0.
    """
    numbers = ir.VectorType(_INT32, HASHED)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, at, count = args
        characters = _place(context, builder, signature.args[0], array, at, ir.VectorType(_BYTE, HASHED))
        powers = [31**k & 0xFFFFFFFF for k in reversed(range(HASHED))] + [0] * HASHED
        table = cgutils.global_constant(builder, "powers", ir.Constant(ir.ArrayType(_INT32, len(powers)), powers))
        first = builder.gep(table, [_INT32(0), builder.sub(_INT64(HASHED), count)])
        weights = builder.load(builder.bitcast(first, numbers.as_pointer()))
        weights.align = 4
        products = builder.mul(builder.zext(characters, numbers), weights)
        kind = ir.FunctionType(_INT32, [numbers])
        add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.add.v{HASHED}i32")
        return builder.zext(builder.call(add, [products]), _INT64)

    return types.int64(data, types.int64, types.int64), generate


@inlined
def int16_at(data: npt.NDArray[np.uint8], at: int) -> int:
    """Return the big-endian signed 16-bit integer at ``at``, which is not negative."""
    if CAN_LOAD:
        return int(_int16(data, at))
    value = (np.int64(data[at]) << 8) | np.int64(data[at + 1])
    return int(value - 0x10000 if value >= 0x8000 else value)


@inlined
def int32_at(data: npt.NDArray[np.uint8], at: int) -> int:
    """Return the big-endian signed 32-bit integer at ``at``, which is not negative."""
    if CAN_LOAD:
        return int(_int32(data, at))
    return int((np.int64(int16_at(data, at)) << 16) | np.int64(data[at + 2]) << 8 | np.int64(data[at + 3]))


@inlined
def int64_at(data: npt.NDArray[np.uint8], at: int) -> int:
    """Return the big-endian signed 64-bit integer at ``at``, which is not negative."""
    if CAN_LOAD:
        return int(_int64(data, at))
    return int((np.int64(int32_at(data, at)) << 32) | (int32_at(data, at + 4) & 0xFFFFFFFF))


@inlined
def byte_at(data: npt.NDArray[np.uint8], at: int) -> int:
    """Return the byte at ``at``, which is not negative, as int64."""
    if CAN_LOAD:
        return int(load_byte(data, at))
    return int(data[at])


@inlined
def swapped32(value: int) -> int:
    """Return the low 32 bits of an integer in big-endian order."""
    return ((value & 0xFF) << 24) | ((value & 0xFF00) << 8) | ((value >> 8) & 0xFF00) | ((value >> 24) & 0xFF)


@inlined
def find_byte(data: npt.NDArray[np.uint8], start: int, end: int, low: int, high: int) -> int:
    """Return the first index from ``start`` on whose byte is ``low`` to ``high``; ``end``, which is not below ``start``, for
    none."""
    at = start
    if CAN_LOAD:
        while at < end and at + BLOCK <= len(data):
            step = lowest_bit(bits_between(data, at, low, high))
            if step < BLOCK:
                return int(min(at + step, end))
            at += BLOCK
    while at < end and not low <= byte_at(data, at) <= high:
        at += 1
    return int(min(at, end))


# ------------------------------------------------------------------------------------------------------------------------ crc32
# Long runs of bytes are folded by carry-less multiplication where the processor has it (``compiler``); tables do the rest.

POLYNOMIAL: Final = 0xEDB88320
LOW31: Final = 0x7FFFFFFF
"""``UtilAll.crc32`` keeps the low 31 bits."""


def _tables() -> npt.NDArray[np.uint32]:
    """Return sixteen tables of 256: table k moves a byte's remainder k bytes further on."""
    tables = np.zeros((16, 256), dtype=np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(POLYNOMIAL), values >> 1).astype(np.uint32)
    tables[0] = values
    for k in range(1, 16):
        tables[k] = (tables[k - 1] >> 8) ^ values[tables[k - 1] & 0xFF]
    return tables


TABLES: Final = _tables()


@inlined
def _step(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the register after sixteen bytes, given as four little-endian words; the register before is XORed into the
    first."""
    t, low = TABLES, np.uint32(0xFF)
    return np.uint32(
        t[15, a & low] ^ t[14, (a >> np.uint32(8)) & low] ^ t[13, (a >> np.uint32(16)) & low] ^ t[12, a >> np.uint32(24)]
        ^ t[11, b & low] ^ t[10, (b >> np.uint32(8)) & low] ^ t[9, (b >> np.uint32(16)) & low] ^ t[8, b >> np.uint32(24)]
        ^ t[7, c & low] ^ t[6, (c >> np.uint32(8)) & low] ^ t[5, (c >> np.uint32(16)) & low] ^ t[4, c >> np.uint32(24)]
        ^ t[3, d & low] ^ t[2, (d >> np.uint32(8)) & low] ^ t[1, (d >> np.uint32(16)) & low] ^ t[0, d >> np.uint32(24)]
    )  # fmt: skip


@inlined
def _word(data: npt.NDArray[np.uint8], at: int) -> Any:
    return np.uint32(
        np.uint32(data[at])
        | (np.uint32(data[at + 1]) << np.uint32(8))
        | (np.uint32(data[at + 2]) << np.uint32(16))
        | (np.uint32(data[at + 3]) << np.uint32(24))
    )


@inlined
def crc32_by(data: npt.NDArray[np.uint8], start: int, end: int, folding: bool) -> int:
    """Return ``crc32``; without ``folding`` by tables alone, as on a processor that has no carry-less multiplication."""
    crc = np.uint32(0xFFFFFFFF)
    at = start
    # A condition of its own, so that numba leaves the branch out where it is false.
    if CAN_FOLD:  # noqa: SIM102
        if folding and end - at >= FOLD_MIN:
            blocks = (end - at) // STEP
            skip = -(end - at) % STEP
            if skip and start >= STEP:
                # Bytes before the first one are read, and passed over.
                return int(fold(data, start - skip, skip, blocks + 1) ^ np.uint32(0xFFFFFFFF))
            crc = fold(data, at, 0, blocks)
            at += STEP * blocks
    while at + STEP <= end:
        crc = _step(crc ^ _word(data, at), _word(data, at + 4), _word(data, at + 8), _word(data, at + 12))
        at += STEP
    while at < end:
        crc = (crc >> np.uint32(8)) ^ TABLES[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return int(crc ^ np.uint32(0xFFFFFFFF))


@inlined
def crc32(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return CRC-32 of ``data[start:end]``: 32 bits, unsigned, as int64."""
    return crc32_by(data, start, end, True)


# ------------------------------------------------------------------------------------------------------------------- crc ranges
# CRC-32 of many ranges of one buffer, each at the same small cost however long it is.
#
# In bytes that someone made up, a search may meet as many heads of records as there are bytes, each of a record that reaches to
# the end: to sum up all of them would take days for a gigabyte. Sums of the buffer up to every STEP bytes give the sum of any
# range: the CRC of two parts together is that of the first, moved on over as many zeros as the second has bytes, plus that of
# the second.

Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int64]

SUM_STEP: Final = 4096
_TOP: Final = 0x80000000


@jit
def _times(a: int, b: int) -> int:
    """Return the product of two remainders modulo the polynomial, bits reflected."""
    product, bit = np.int64(0), np.int64(_TOP)
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
    return int(product)


def _powers() -> Sums:
    """Return x to the power of 8, 16, 32, ...: over 1, 2, 4, ... bytes."""
    # Plain Python: the first compiled loop that a process calls costs it 0.4 s, and many commands call none.
    times = getattr(_times, "py_func", _times)
    powers = [0x00800000]  # x^8, the highest bit being x^0
    for _ in range(40):
        powers.append(int(times(powers[-1], powers[-1])))
    return np.array(powers, np.int64)


_POWERS: Final = _powers()


@jit
def moved_on(crc: int, length: int) -> int:
    """Return what ``crc`` contributes to the CRC of the whole once ``length`` bytes follow."""
    k = 0
    while length:
        if length & 1:
            crc = _times(_POWERS[k], crc)
        length >>= 1
        k += 1
    return crc


def warm_up() -> None:
    """Load what numba loads at the first call of a compiled loop, which takes 0.4 s: once, ahead of the workers' forks."""
    moved_on(0, 0)


@allocating
def prefix_sums(data: Bytes, filled: int) -> Sums:
    """Return CRC-32 of the first 0, STEP, 2 STEP, ... bytes of ``data[:filled]``."""
    sums = np.zeros(filled // SUM_STEP + 1, np.int64)
    step = _POWERS[12]
    for k in range(1, len(sums)):
        sums[k] = _times(step, sums[k - 1]) ^ crc32(data, (k - 1) * SUM_STEP, k * SUM_STEP)
    return sums


@jit
def _sum_to(data: Bytes, sums: Sums, end: int) -> int:
    k = end // SUM_STEP
    return moved_on(sums[k], end - k * SUM_STEP) ^ crc32(data, k * SUM_STEP, end)


@jit
def crc32_of_range(data: Bytes, sums: Sums, start: int, end: int) -> int:
    """Return ``crc32(data, start, end)`` by the ``prefix_sums`` of the data."""
    return int(_sum_to(data, sums, end) ^ moved_on(_sum_to(data, sums, start), end - start))
