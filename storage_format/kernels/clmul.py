"""CRC-32 in steps of sixteen bytes by carry-less multiplication (PCLMULQDQ), where the processor has it.

The method is Intel's "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction": a remainder of 128 bits is
carried on over 16 or 64 bytes by two multiplications with constants, x to the power of the distance modulo the polynomial.
numba has no such instruction: ``fold`` is written as LLVM code, for use inside compiled loops.
"""

from __future__ import annotations

import platform
from typing import Any, Final

import llvmlite.binding
from llvmlite import ir

from rocketmq_reindex.storage_format.kernels.compiler import cgutils, intrinsic, numba, types

STEP: Final = 16
LANES: Final = 4
FOLD_MIN: Final = LANES * STEP
"""the fewest bytes that ``fold`` takes"""


def _has_instruction() -> bool:
    """Whether compiled loops can use the instruction: the processor has it, and numba compiles."""
    if numba.config.DISABLE_JIT or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return bool(llvmlite.binding.get_host_cpu_features().get("pclmul", False))


CAN_FOLD: Final = _has_instruction()

# x^(distance + 64) and x^distance modulo the polynomial, bits reflected, for distances of 64 and 16 bytes.
_OVER_LANES: Final = (0x154442BD4, 0x1C6E41596)
_OVER_ONE: Final = (0x1751997D0, 0x0CCAA009E)
_BYTE, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_PAIR = ir.VectorType(_INT64, 2)


class _Folding:
    """Writes the LLVM code of one ``fold``; ``data`` is the address of its first byte."""

    def __init__(self, builder: Any, data: Any) -> None:
        self.builder, self._data = builder, data
        product = ir.FunctionType(_PAIR, [_PAIR, _PAIR, _BYTE])
        self._multiply = cgutils.get_or_insert_function(builder.module, product, "llvm.x86.pclmulqdq")

    def load(self, block: Any) -> Any:
        builder = self.builder
        place = builder.gep(self._data, [builder.mul(block, _INT64(STEP))])
        value = builder.load(builder.bitcast(place, _PAIR.as_pointer()))
        value.align = 1
        return value

    def carry(self, remainder: Any, constants: tuple[int, int], onto: Any) -> Any:
        """``remainder`` carried on to where ``onto`` lies, and added to it."""
        pair = ir.Constant(_PAIR, list(constants))
        low = self.builder.call(self._multiply, [remainder, pair, _BYTE(0x00)])
        high = self.builder.call(self._multiply, [remainder, pair, _BYTE(0x11)])
        return self.builder.xor(self.builder.xor(low, high), onto)

    def loop(self, lanes: list[Any], block: Any, blocks: Any, constants: tuple[int, int]) -> None:
        """Carry each of ``lanes`` on by as many blocks as there are lanes, while so many are left."""
        builder, stride = self.builder, _INT64(len(lanes))
        head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        at = builder.load(block)
        builder.cbranch(builder.icmp_signed("<=", builder.add(at, stride), blocks), body, after)
        builder.position_at_end(body)
        for k, lane in enumerate(lanes):
            builder.store(self.carry(builder.load(lane), constants, self.load(builder.add(at, _INT64(k)))), lane)
        builder.store(builder.add(at, stride), block)
        builder.branch(head)
        builder.position_at_end(after)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def fold(_typing: Any, data: Any, start: Any, blocks: Any, crc: Any) -> Any:  # noqa: ARG001  # the names of its arguments
    """fold(data, start, blocks, crc): 16 bytes (two uint64) with the same remainder as ``blocks`` (4 or more) of 16 bytes.

    ``data`` uint8, contiguous; ``crc`` uint64, the register before: it is contained in the result.
    """
    signature = types.UniTuple(types.uint64, 2)(data, types.int64, types.int64, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        blocks = args[2]
        folding = _Folding(builder, builder.gep(array.data, [args[1]]))
        register = builder.insert_element(ir.Constant(_PAIR, [0, 0]), args[3], _INT32(0))
        first = [folding.load(_INT64(k)) for k in range(LANES)]
        first[0] = builder.xor(first[0], register)
        lanes = [cgutils.alloca_once_value(builder, value) for value in first]
        block = cgutils.alloca_once_value(builder, _INT64(LANES))
        folding.loop(lanes, block, blocks, _OVER_LANES)
        remainder = builder.load(lanes[0])
        for lane in lanes[1:]:
            remainder = folding.carry(remainder, _OVER_ONE, builder.load(lane))
        builder.store(remainder, lanes[0])
        folding.loop(lanes[:1], block, blocks, _OVER_ONE)
        remainder = builder.load(lanes[0])
        halves = [builder.extract_element(remainder, _INT32(k)) for k in range(2)]
        return context.make_tuple(builder, signature.return_type, halves)

    return signature, generate
