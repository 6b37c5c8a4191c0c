"""``make demo``: rebuild a small store that RocketMQ wrote, from its commitlog alone, and compare every file."""

import json
import shlex
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rocketmq_reindex.jobs.cli import main as rmq_reindex
from rocketmq_reindex.jobs.command.results import Interrupts
from rocketmq_reindex.storage_format.showing import counted

NAME = "basic-5.3"
ARCHIVE = Path(__file__).resolve().parent.parent / "tests" / "golden" / f"{NAME}.tar.xz"
TITLES = {"consumequeue": "ConsumeQueue", "index": "IndexFile", "checkpoint": "checkpoint"}


@dataclass(frozen=True)
class Pair:
    """One file as RocketMQ wrote it and as it was built: paths below their folders, "" where there is none."""

    kind: str
    expected: str
    built: str
    size: int
    difference: str
    """what is wrong, "" when both hold the same bytes"""


def unpack(into: Path) -> Path:
    """Unpack what the demo uses: the commitlog, the truth (``rebuilt``) and the sizes. Return the store's folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        used = tuple(f"{NAME}/{part}" for part in ("commitlog/", "rebuilt/", "scenario.json"))
        archive.extractall(into, [member for member in archive if member.name.startswith(used)])
    return into / NAME


def tree(root: Path, kind: str) -> list[str]:
    """Return the files of one kind, by name, as paths below ``root``."""
    top = root / kind
    paths = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    return sorted(path.relative_to(root).as_posix() for path in paths)


def difference(expected: Path, built: Path) -> str:
    """Return where two files part, "" when they hold the same bytes."""
    theirs, ours = expected.read_bytes(), built.read_bytes()
    if theirs == ours:
        return ""
    if len(theirs) != len(ours):
        return f"has {len(ours)} bytes, RocketMQ's has {len(theirs)}"
    return f"differs first at byte {next(k for k in range(len(theirs)) if theirs[k] != ours[k])}"


def compare(expected: Path, built: Path) -> list[Pair]:
    """Return every file of both trees. IndexFiles are paired in order, all others by their path."""
    pairs = []
    for kind in TITLES:
        ours, theirs = tree(built, kind), tree(expected, kind)
        if kind == "index":
            count = max(len(ours), len(theirs))
            names = list(zip(theirs + [""] * (count - len(theirs)), ours + [""] * (count - len(ours)), strict=True))
        else:
            names = [(p if p in theirs else "", p if p in ours else "") for p in sorted({*ours, *theirs})]
        for their, our in names:
            if not (their and our):
                what = "was not built" if their else "was built, RocketMQ has none"
            else:
                what = difference(expected / their, built / our)
            pairs.append(Pair(kind, their, our, (built / our).stat().st_size if our else 0, what))
    return pairs


def show(pairs: list[Pair]) -> int:
    """Print the table. Return the exit status."""
    print(f"\n{'built':<14}{'files':>5}{'bytes':>11}   same bytes as RocketMQ's")
    for kind, title in TITLES.items():
        mine = [pair for pair in pairs if pair.kind == kind]
        equal = sum(not pair.difference for pair in mine)
        print(f"{title:<14}{len(mine):>5}{sum(pair.size for pair in mine):>11,}   {equal} of {len(mine)}")
    wrong = [pair for pair in pairs if pair.difference]
    for pair in wrong:
        print(f"  {pair.built or pair.expected}: {pair.difference}")
    print("\nIndexFiles are compared in order: RocketMQ names them by its clock, rmq-reindex by an offset in the commitlog.")
    print(f"{len(pairs) - len(wrong)} of {counted(len(pairs), 'file')} equal, byte for byte")
    return 1 if wrong or not pairs else 0


def main() -> int:
    """Run the whole demo, and return the exit status."""
    if not ARCHIVE.is_file():
        print(f"error: {ARCHIVE}: is not there: the demo runs in a clone of the project", file=sys.stderr)
        return 1
    with Interrupts(), tempfile.TemporaryDirectory(prefix="rmq-reindex-demo-") as folder:
        store, out = unpack(Path(folder)), Path(folder) / "built"
        scenario = json.loads((store / "scenario.json").read_text())
        segments = len(tree(store, "commitlog"))
        options = ["--cq-file-size", scenario["store"]["cqSize"], "--hash-slots", scenario["store"]["slots"]]
        options += ["--index-items", scenario["store"]["indexNum"]]
        options += ["--broker-version", ".".join(scenario["rocketmq"].split(".")[:2])]
        options += ["--queue-order", "broker", "--checkpoint", "broker", "--master", "local[2]"]
        words = [str(word) for word in options]
        print(f"A store written by RocketMQ {scenario['rocketmq']}: {scenario['records']:,} messages in {segments} segments.")
        print("Its queues, index and checkpoint are built from the commitlog alone and compared with RocketMQ's own rebuild.")
        print("Spark takes its seconds to start, however small the store.")
        print(f"\n$ rmq-reindex build STORE --out DIR {shlex.join(words)}\n", flush=True)
        status = rmq_reindex(["build", str(store), "--out", str(out), *words])
        return status or show(compare(store / "rebuilt", out))


if __name__ == "__main__":
    sys.exit(main())
