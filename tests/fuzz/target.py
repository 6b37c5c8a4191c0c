"""One target in a process of its own: python -m tests.fuzz.target TARGET SECONDS SEED FOLDER

FOLDER/corpus holds the inputs (those that reach something new are added), an input that fails is written to FOLDER/crash-*.
Where atheris has no wheel, the same inputs are mutated without guidance.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType

from tests.fuzz.replay import files, load

INPUT_SECONDS = 200
"""on the clock, of a machine that others use; what loops without end is found by the guard's budget"""
MEMORY_MIB = 2048


def checked(module: ModuleType, data: bytes, folder: Path) -> None:
    """Check an input; one that fails is kept at once: libFuzzer, when its clock strikes meanwhile, keeps none."""
    try:
        module.check(data)
    except BaseException:
        (folder / f"crash-{hashlib.sha1(data).hexdigest()}").write_bytes(data)
        raise


def guided(target: str, seconds: int, seed: int, folder: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["storage_format"]):
        module = load(target)
    words = folder / "dictionary"
    words.write_text("".join('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word)) for word in module.DICTIONARY))
    options = {
        "max_total_time": seconds, "seed": seed, "dict": words, "max_len": module.MAX_LEN, "timeout": INPUT_SECONDS,
        "rss_limit_mb": MEMORY_MIB, "artifact_prefix": f"{folder}/", "print_final_stats": 1,
    }  # fmt: skip
    arguments = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([target, *arguments, str(folder / "corpus")], lambda data: checked(module, data, folder))
    atheris.Fuzz()


def unguided(target: str, seconds: int, seed: int, folder: Path) -> None:
    module, rng = load(target), random.Random(seed)
    corpus = [path.read_bytes() for path in files([folder / "corpus"])]
    until, count = time.monotonic() + seconds, 0
    while count < len(corpus) or time.monotonic() < until:
        data = corpus[count % len(corpus)]
        if count >= len(corpus):
            data = mutate(rng, data, rng.choice(corpus), module.DICTIONARY)[: module.MAX_LEN]
        count += 1
        checked(module, data, folder)
    print(f"stat::number_of_executed_units: {count}", file=sys.stderr)


def mutate(rng: random.Random, data: bytes, other: bytes, words: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(changed) + 1)
        new = rng.choice((rng.choice(words), rng.randbytes(rng.randrange(1, 5)), other[at : at + rng.randrange(40)]))
        changed[at : at + rng.choice((0, len(new), len(new), 20))] = new
    return bytes(changed)


def main(target: str, seconds: int, seed: int, folder: Path) -> None:
    warnings.simplefilter("error", RuntimeWarning)
    # Asked for, so that an import of its own that fails is not taken for an absence.
    (guided if importlib.util.find_spec("atheris") else unguided)(target, seconds, seed, folder)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
