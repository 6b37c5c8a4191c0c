"""numba without the settings of the working folder, whole files of compiled code, and an instruction that numba lacks."""

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator
from typing import Any, Final

from llvmlite import ir

from rocketmq_reindex.storage_format.kernels.cache_folder import SUFFIX

# --------------------------------------------------------------------------------------------------------------------- compiler
# numba, imported without the settings that the working folder may hold. All other modules take it from here.


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Have imports of a package fail."""
    missing = object()
    imported: Any = sys.modules.get(name, missing)
    sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    try:
        yield
    finally:
        del sys.modules[name]
        if imported is not missing:
            sys.modules[name] = imported


@contextlib.contextmanager
def _without_settings_of_working_folder() -> Iterator[None]:
    """numba reads ``.numba_config.yaml`` of the working folder, where yaml is, when it is imported and at each compilation.

    Among others they name a folder with code to be run, and anybody may have written into the working folder. Nor does numba
    import coverage.py, where that is installed and does not run: it takes a sixth of the time.
    """
    if "numba" in sys.modules:
        yield
        return
    coverage = contextlib.nullcontext() if "coverage" in sys.modules else _without("coverage")
    with _without("yaml"), coverage, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A Numba config file is found")
        yield
        from numba import config

        config._config_fname = ""


with _without_settings_of_working_folder():
    import llvmlite
    import numba
    from numba import types
    from numba.core import cgutils
    from numba.core.caching import FunctionCache
    from numba.core.codegen import get_host_cpu_features
    from numba.core.compiler import CompileResult
    from numba.core.serialize import dumps
    from numba.extending import intrinsic

__all__ = [
    "CompileResult",
    "FunctionCache",
    "cgutils",
    "dumps",
    "get_host_cpu_features",
    "intrinsic",
    "llvmlite",
    "numba",
    "types",
]


# ------------------------------------------------------------------------------------------------------------------ cache files
# Files of compiled code in their folder: each is whole or not there, and one process makes it while the others wait.

_DIGEST_SIZE: Final = 32
_LOCK: Final = "rmq-reindex.lock"
_POLLS, _POLL = 1200, 0.05
"""A process waits a minute for what another one compiles; then it compiles by itself."""
_held: set[str] = set()


def load(folder: str, name: str) -> bytes | None:
    """Return what ``save`` kept by this name; None where there is no file, or one that is not whole."""
    try:
        with open(os.path.join(folder, name + SUFFIX), "rb") as file:
            return whole(file.read())
    except OSError:
        return None


def whole(content: bytes) -> bytes | None:
    """Return the data that ``save`` put into a file with this content; None where it is cut or altered."""
    digest, data = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return data if digest == _digest(data) else None


def save(folder: str, name: str, data: bytes) -> None:
    """Keep ``data`` by this name, if that works: the disk may be full, or the folder gone. Raises nothing."""
    path = os.path.join(folder, name + SUFFIX)
    aside = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(aside, "xb") as file:
            file.write(_digest(data) + data)
        os.replace(aside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).digest()


@functools.cache
def _lock_file(folder: str) -> int:
    """Return the open file of locks. It is never closed: to close it would give up all locks of the process."""
    return os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def lock(folder: str, name: str) -> None:
    """Wait until no other process compiles ``name``, and make the others wait; where nothing can be locked, nobody waits.

    A lock is a byte of one file: it ends with its process, and a process that is forked does not have it.
    """
    with contextlib.suppress(OSError):
        for _ in range(_POLLS):
            if _taken(_lock_file(folder), name):
                _held.add(name)
                return
            threading.Event().wait(_POLL)


def _taken(file: int, name: str) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(name.encode()))
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(folder: str, name: str) -> None:
    """Let the others go on, if this process has the lock on ``name``."""
    if name in _held:
        _held.remove(name)
        with contextlib.suppress(OSError):
            fcntl.lockf(_lock_file(folder), fcntl.LOCK_UN, 1, zlib.crc32(name.encode()))


# ------------------------------------------------------------------------------------------------------------------------ clmul
# CRC-32 in steps of sixteen bytes or more by carry-less multiplication (PCLMULQDQ), where the processor has it.
#
# The method is Intel's "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction": a remainder of 128 bits is
# carried on over 16 or 64 bytes by two multiplications with constants, x to the power of the distance modulo the polynomial.
# At the end it is carried on to 64 bits, and reduced to 32 by Barrett's method. numba has no such instruction: ``fold`` is
# written as LLVM code, for use inside compiled loops.


STEP: Final = 16
FOLD_MIN: Final = 2 * STEP
"""the fewest bytes that ``fold`` takes"""
_LANES: Final = 4
_MANY: Final = 2 * _LANES
"""steps from which on several remainders are carried on at once"""


def folding(known: str) -> tuple[bool, bool]:
    """Return CAN_FOLD and FOLDS_WIDE of loops that are compiled for a processor; ``known`` is LLVM's list of its features."""
    if numba.config.DISABLE_JIT or platform.machine() not in ("x86_64", "AMD64"):
        return False, False
    has = {feature for feature in ("pclmul", "vpclmulqdq", "avx512f") if f"+{feature}" in known.split(",")}
    return "pclmul" in has, len(has) == 3


def _known() -> str:
    # Not those of this processor, where NUMBA_CPU_FEATURES, NUMBA_CPU_NAME or NUMBA_ENABLE_AVX say less.
    chosen = numba.config.CPU_FEATURES
    return str(get_host_cpu_features() if chosen is None else chosen)


CAN_FOLD, FOLDS_WIDE = folding(_known())
"""whether compiled loops can use the instruction, and whether one carries on four remainders at once"""

# x^(distance + 64) and x^distance modulo the polynomial, bits reflected, for distances of 64 and 16 bytes.
_OVER_LANES: Final = (0x154442BD4, 0x1C6E41596)
_OVER_ONE: Final = (0x1751997D0, 0x0CCAA009E)
# The same from 96 bits to 64; the polynomial, and what Barrett's method takes for the inverse of it.
_OVER_HALF: Final = 0x163CD6124
_POLYNOMIAL: Final = 0x1DB710641
_INVERSE: Final = 0x1F7011641
_LOW32: Final = 0xFFFFFFFF
_BYTE, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_PAIR = ir.VectorType(_INT64, 2)
_BOTH_LOW, _BOTH_HIGH = _BYTE(0x00), _BYTE(0x11)


class _Folding:
    """Writes the LLVM code of one ``fold``; ``data`` is the address of its first byte."""

    def __init__(self, builder: Any, data: Any) -> None:
        self.builder, self._data = builder, data

    def load(self, block: Any, blocks: int = 1) -> Any:
        """Return so many blocks of 16 bytes from the one with number ``block`` on."""
        place = self.builder.gep(self._data, [self.builder.mul(block, _INT64(STEP))])
        return self.load_from(place, blocks)

    def load_from(self, place: Any, blocks: int = 1) -> Any:
        value = self.builder.load(self.builder.bitcast(place, ir.VectorType(_INT64, 2 * blocks).as_pointer()))
        value.align = 1
        return value

    def product(self, pairs: Any, constants: Any, halves: Any) -> Any:
        """Return the product of one half each of ``pairs`` and ``constants``, which the bits of ``halves`` choose."""
        kind = pairs.type
        name = "llvm.x86.pclmulqdq" if kind.count == 2 else f"llvm.x86.pclmulqdq.{64 * kind.count}"
        multiply = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(kind, [kind, kind, _BYTE]), name)
        return self.builder.call(multiply, [pairs, constants, halves])

    def carry(self, remainder: Any, constants: tuple[int, int], onto: Any) -> Any:
        """Return ``remainder`` carried on to where ``onto`` lies, and added to it."""
        pairs = ir.Constant(remainder.type, list(constants) * (remainder.type.count // 2))
        low, high = (self.product(remainder, pairs, halves) for halves in (_BOTH_LOW, _BOTH_HIGH))
        return self.builder.xor(self.builder.xor(low, high), onto)

    def loop(self, lanes: list[Any], block: Any, blocks: Any, constants: tuple[int, int]) -> None:
        """Carry each of ``lanes`` on by as many blocks as there are in all of them, while so many are left."""
        builder = self.builder
        width = lanes[0].type.pointee.count // 2
        stride = _INT64(width * len(lanes))
        head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        at = builder.load(block)
        builder.cbranch(builder.icmp_signed("<=", builder.add(at, stride), blocks), body, after)
        builder.position_at_end(body)
        for k, lane in enumerate(lanes):
            data = self.load(builder.add(at, _INT64(k * width)), width)
            builder.store(self.carry(builder.load(lane), constants, data), lane)
        builder.store(builder.add(at, stride), block)
        builder.branch(head)
        builder.position_at_end(after)

    def joined(self, remainders: list[Any]) -> Any:
        """Return one remainder of several that lie one behind the other."""
        whole = remainders[0]
        for remainder in remainders[1:]:
            whole = self.carry(whole, _OVER_ONE, remainder)
        return whole

    def part(self, wide: Any, number: int) -> Any:
        """Return the 16 bytes with that number."""
        words = ir.Constant(ir.VectorType(_INT32, 2), [2 * number, 2 * number + 1])
        return self.builder.shuffle_vector(wide, wide, words)

    def pair(self, low: Any, high: Any = 0) -> Any:
        return ir.Constant(_PAIR, [low, high])

    def reduced(self, remainder: Any) -> Any:
        """Return the register, int32, that a remainder of 16 bytes stands for."""
        builder = self.builder
        low = self.product(remainder, self.pair(_OVER_ONE[1]), _BOTH_LOW)
        value = builder.xor(low, self._high(remainder))
        low = self.product(builder.and_(value, self.pair(_LOW32)), self.pair(_OVER_HALF), _BOTH_LOW)
        shifted = builder.bitcast(builder.lshr(builder.bitcast(value, ir.IntType(128)), ir.IntType(128)(32)), _PAIR)
        value = builder.xor(low, shifted)
        quotient = self.product(builder.and_(value, self.pair(_LOW32)), self.pair(_INVERSE), _BOTH_LOW)
        multiple = self.product(builder.and_(quotient, self.pair(_LOW32)), self.pair(_POLYNOMIAL), _BOTH_LOW)
        words = builder.bitcast(builder.xor(value, multiple), ir.VectorType(_INT32, 4))
        return builder.extract_element(words, _INT32(1))

    def _high(self, pair: Any) -> Any:
        """Return the upper half of a pair, as the lower one."""
        return self.builder.shuffle_vector(pair, self.pair(0), ir.Constant(ir.VectorType(_INT32, 2), [1, 2]))


def _constant_bytes(builder: Any, name: str, values: bytes) -> Any:
    """Return the address of bytes that are part of the code."""
    constant = cgutils.global_constant(builder, name, ir.Constant(ir.ArrayType(_BYTE, len(values)), bytearray(values)))
    return builder.bitcast(constant, _BYTE.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def fold(_typing: Any, data: Any, start: Any, skip: Any, blocks: Any) -> Any:  # noqa: ARG001  # the names of its arguments
    """Return fold(data, start, skip, blocks): the CRC-32 register, uint32, after ``blocks`` (2 or more) of 16 bytes.

    ``data`` uint8, contiguous. The first block is at ``start``; ``skip`` (0 to 15) bytes of it are not summed up: zeros in
    front change no remainder, so the odd bytes of a length may stand in the first block instead of the last.
    """
    signature = types.uint32(data, types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        skip, blocks = args[2], args[3]
        folding = _Folding(builder, builder.gep(array.data, [args[1]]))
        back = builder.sub(_INT64(STEP), skip)
        mask = builder.gep(_constant_bytes(builder, "kept", b"\x00" * STEP + b"\xff" * STEP), [back])
        # The register before the first byte is all ones: they are added to the first four bytes.
        ones = builder.gep(_constant_bytes(builder, "ones", b"\x00" * STEP + b"\xff" * 4 + b"\x00" * 28), [back])
        first = builder.and_(folding.load(_INT64(0)), folding.load_from(mask))
        first = builder.xor(first, folding.load_from(ones))
        second = builder.xor(folding.load(_INT64(1)), folding.load_from(builder.gep(ones, [_INT64(STEP)])))
        register = cgutils.alloca_once(builder, _PAIR)
        block = cgutils.alloca_once(builder, _INT64)
        with builder.if_else(builder.icmp_signed("<", blocks, _INT64(_MANY))) as (few, many):
            with few:
                builder.store(folding.carry(first, _OVER_ONE, second), register)
                builder.store(_INT64(2), block)
            with many:
                builder.store(_INT64(_LANES), block)
                parts = [first, second, folding.load(_INT64(2)), folding.load(_INT64(3))]
                if FOLDS_WIDE:
                    halves = [builder.shuffle_vector(*parts[k : k + 2], _numbers(4)) for k in (0, 2)]
                    lanes = [cgutils.alloca_once_value(builder, builder.shuffle_vector(*halves, _numbers(8)))]
                else:
                    lanes = [cgutils.alloca_once_value(builder, value) for value in parts]
                folding.loop(lanes, block, blocks, _OVER_LANES)
                parts = [builder.load(lane) for lane in lanes]
                if FOLDS_WIDE:
                    parts = [folding.part(parts[0], k) for k in range(_LANES)]
                builder.store(folding.joined(parts), register)
        folding.loop([register], block, blocks, _OVER_ONE)
        return folding.reduced(builder.load(register))

    return signature, generate


def _numbers(count: int) -> Any:
    return ir.Constant(ir.VectorType(_INT32, count), list(range(count)))
