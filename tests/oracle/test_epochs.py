"""Files of epochs, read, written and compared by the brokers' own classes (``EpochFileCache``, ``CheckpointFile``)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format import checkpoints
from rocketmq_reindex.storage_format.checkpoints import Epoch
from tests.oracle.scenarios import FOLDER, java_home

FILES = 300
PAIRS = 200


def answers(version: str, questions: list[str], folder: Path) -> list[str]:
    """What that release's classes say to each question."""
    asked = folder / "questions"
    asked.write_text("".join(f"{line}\n" for line in questions))
    command = [str(FOLDER / "run"), version, "Epochs", str(asked)]
    ran = subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def random_epochs(rng: random.Random) -> list[Epoch]:
    found, epoch, start = list[Epoch](), 0, 0
    for _ in range(rng.randrange(1, 6)):
        epoch, start = epoch + rng.randrange(1, 3), start + rng.randrange(1, 5) * 100
        found.append(Epoch(epoch, start))
    return found


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """A file as a crash, or a hand, leaves it."""
    at = rng.randrange(len(data) + 1)
    return rng.choice([
        data, data[:at], data[:at] + bytes([rng.choice(b"0123456789-\n\r +x")]) + data[at + 1 :],
        data[:at] + rng.choice([b"-", b"\n", b"\r\n", b"--"]) + data[at:], data.replace(b"\n", b"\r\n"), data + b"\n",
    ])  # fmt: skip


def shown(entries: tuple[Epoch, ...]) -> str:
    # A broker has them in the order of their numbers, of two the later line.
    return ",".join(f"{epoch}-{start}" for epoch, start in sorted(dict(entries).items()))


@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_files_are_read_as_by_a_broker(version: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    questions, wanted = list[str](), list[str]()
    for number in range(FILES):
        entries = random_epochs(rng)
        whole = checkpoints.write_epochs(entries)
        if rng.random() < 0.3:
            # Without a CRC.
            whole = b"%d\n0\n%b" % (len(entries), whole.split(b"\n", 2)[2])
        data = spoilt(whole, rng)
        (tmp_path / f"{number}").write_bytes(data)
        read = checkpoints.read_epochs(data)
        questions.append(f"read\t{tmp_path / str(number)}")
        taken = read.entries if read.is_read else ()
        # Where neither file is taken the cache is empty. It says false where it read none of two that are there.
        wanted.append("NumberFormatException" if read.stops else f"true {shown(taken)}")
    found = answers(version, questions, tmp_path)
    different = [(q, f, w) for q, f, w in zip(questions, found, wanted, strict=True) if f != w]
    assert different == []
    assert {"NumberFormatException", "true "} < set(found)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_files_are_written_and_compared_as_by_a_broker(version: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    questions, wanted = list[str](), list[str]()
    for number in range(PAIRS):
        mine, other = random_epochs(rng), random_epochs(rng)
        if rng.random() < 0.7:
            # Replicas share their first epochs.
            other = mine[: rng.randrange(1, len(mine) + 1)] + [
                Epoch(epoch + 20, start + 3000) for epoch, start in other if rng.random() < 0.5
            ]
        ends = [rng.randrange(0, 4000) for _ in range(2)]
        paths = [tmp_path / f"{number}-{side}" for side in "ab"]
        for path, entries in zip(paths, (mine, other), strict=True):
            questions.append(f"write\t{path}\t{','.join(f'{epoch}-{start}' for epoch, start in entries)}")
            wanted.append(shown(tuple(entries)))
        questions.append(f"same\t{paths[0]}\t{ends[0]}\t{paths[1]}\t{ends[1]}")
        wanted.append(str(checkpoints.same_up_to(mine, ends[0], other, ends[1])))
    assert answers(version, questions, tmp_path) == wanted
    for number in range(PAIRS):
        path = tmp_path / f"{number}-a"
        data = path.read_bytes()
        assert checkpoints.write_epochs(checkpoints.read_epochs(data).entries) == data
        if (before := path.with_name(f"{path.name}.bak")).exists():
            assert len(checkpoints.read_epochs(before.read_bytes()).entries) == len(checkpoints.read_epochs(data).entries) - 1
