"""The README's recipes, run as they stand there but below a folder of the test: they leave a store that verify finds clean."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.fetch import fetch
from tests.fault.disk import tiny_store
from tests.tools.local_engine import LocalEngine, run_build, single
from tests.tools.local_verify import local_verify

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
COMMAND = ".venv/bin/rmq-reindex "
BROKER_CONF = "mappedFileSizeConsumeQueue=400\nmaxHashSlotNum=7\nmaxIndexNum=40\n"
SIZES = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}
OWNER = 12345


def blocks(title: str) -> list[str]:
    """The commands of a part of the README, one text each for those that stand together."""
    part = re.split(r"\n#+ ", README.split(f" {title}\n", 1)[1], maxsplit=1)[0]
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", part, re.MULTILINE)
    return ["\n".join(line.strip() for line in block.splitlines()) for block in found]


def run(commands: str, folder: Path) -> None:
    """Our own commands in this process, all others by a shell, one for those that follow each other."""
    script: list[str] = []
    for line in commands.replace("/data/", f"{folder}/").splitlines():
        if not line.startswith(COMMAND):
            script.append(line)
            continue
        name, *words = shlex.split(line.removeprefix(COMMAND), comments=True)
        if name == "build":
            summary = run_build(parse_settings(words), single(LocalEngine()))
            assert (summary.exit, summary.error) == (0, None)
        else:
            assert (name, fetch(words)) == ("fetch", 0)
    subprocess.run(["bash", "-eu", "-c", "\n".join(script)], cwd=folder, check=True)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of a broker's user, with derived files that are not what its log says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broker.conf").write_text(BROKER_CONF)
    store = tiny_store(tmp_path / "store")
    old = store / "index" / "20200101000000000"
    old.parent.mkdir()
    old.write_bytes(b"old")
    (store / "checkpoint").write_bytes(b"old")
    if os.geteuid() == 0:
        for path in (store, *store.rglob("*")):
            os.chown(path, OWNER, OWNER)
    return store


def check(store: Path, before: dict[str, str]) -> None:
    """Clean, the broker's own, and what was there is kept (``before``: where)."""
    verified = local_verify(store, None, **SIZES)
    assert (verified.exit, verified.error, verified.findings) == (0, None, [])
    owners = {path.stat().st_uid for name in ("consumequeue", "index", "checkpoint") for path in (store / name).rglob("*")}
    owners |= {(store / name).stat().st_uid for name in ("consumequeue", "index", "checkpoint")}
    assert owners == {(store / "commitlog").stat().st_uid}
    for name, data in before.items():
        assert Path(name).read_text() == data


@pytest.mark.parametrize("by_hand", [False, True], ids=["fetch", "by hand"])
def test_a_first_run(by_hand: bool, store: Path, tmp_path: Path) -> None:
    commands, hand = blocks("A first real run")
    queue = store / "consumequeue" / "Old" / "0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(b"old")
    if by_hand:
        commands = "\n".join([*(line for line in commands.splitlines() if " fetch " not in line), hand])
    run(commands, tmp_path)
    below = "before/{}" if by_hand else "store/{}.previous"
    check(store, {f"{tmp_path}/{below.format(name)}{rest}": "old" for name, rest in (
        ("consumequeue", f"/Old/0/{0:020d}"), ("index", "/20200101000000000"), ("checkpoint", ""),
    )})  # fmt: skip


@pytest.mark.parametrize("by_hand", [False, True], ids=["fetch", "by hand"])
def test_only_the_index(by_hand: bool, store: Path, tmp_path: Path) -> None:
    settings = parse_settings([str(store), "--broker-conf", "broker.conf", "--out", "whole", "--only", "consumequeue"])
    assert run_build(settings, single(LocalEngine())).exit == 0
    (tmp_path / "whole" / "consumequeue").rename(store / "consumequeue")
    if os.geteuid() == 0:
        for path in (store / "consumequeue", *(store / "consumequeue").rglob("*")):
            os.chown(path, OWNER, OWNER)
    commands, hand = blocks("Only the index")
    if by_hand:
        commands = "\n".join([*(line for line in commands.splitlines() if " fetch " not in line), hand])
    run(commands, tmp_path)
    below = "before/{}" if by_hand else "store/{}.previous"
    names = {"index": "/20200101000000000", "checkpoint": ""}
    check(store, {f"{tmp_path}/{below.format(name)}{rest}": "old" for name, rest in names.items()})


def test_a_bare_commitlog(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "index")
    (store / "checkpoint").unlink()
    store.rename(tmp_path / "backup")
    (block,) = [block for block in blocks("A broker on the result") if "/data/backup" in block]
    run(f"{block.replace(' --write-topics', ' --write-topics --broker-conf broker.conf')}\n", tmp_path)
    check(tmp_path / "backup", {})
    assert (tmp_path / "backup" / "config" / "topics.json").stat().st_size > 0
