"""Did both sides write the same bytes? Only then is there a race."""

from __future__ import annotations

from pathlib import Path

PART = 8 << 20


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb", buffering=0) as left, other.open("rb", buffering=0) as right:
        while part := left.read(PART):
            if part != right.read(PART):
                return False
    return True


def check_same(ours: Path, peer: Path) -> int:
    """Compares ConsumeQueue files by path, IndexFiles in order (the broker names them by its clock) and the checkpoint.

    Returns how many files were compared; ends the program at the first difference.
    """
    pairs = []
    for part in ("consumequeue", "index"):
        left, right = _files(ours / part), _files(peer / part)
        names = [[str(path.relative_to(root / part)) for path in found] for root, found in ((ours, left), (peer, right))]
        if len(left) != len(right) or (part == "consumequeue" and names[0] != names[1]):
            raise SystemExit(f"{part}: {len(left)} files, RocketMQ wrote {len(right)}, or others")
        pairs += list(zip(left, right, strict=True))
    pairs.append((ours / "checkpoint", peer / "checkpoint"))
    for one, other in pairs:
        if not _same(one, other):
            raise SystemExit(f"{one.relative_to(ours)} differs from RocketMQ's")
    return len(pairs)
