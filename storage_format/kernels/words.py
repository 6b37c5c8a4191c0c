"""Bytes of an array as machine words, for use inside compiled loops.

Read a byte at a time, each byte costs numba a test whether its index counts from the array's end, and the words are not read as
such. The loads here are LLVM code: one instruction each. As plain Python the functions put the bytes together one by one.
"""

import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from rocketmq_reindex.storage_format.kernels.compiler import cgutils, intrinsic, numba, types
from rocketmq_reindex.storage_format.kernels.jit import inlined

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
