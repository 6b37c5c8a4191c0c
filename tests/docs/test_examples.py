"""Every command and example on the pages runs as it stands there, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

import rocketmq_reindex
from rocketmq_reindex.jobs.cli import COMMANDS
from rocketmq_reindex.jobs.command.options import parser_of
from tests.docs.pages import ROOT, blocks, names
from tests.docs.shell import Shell, same, steps
from tests.docs.transcripts import run_page
from tests.docs.worlds import WORLDS
from tests.fault.disk import tiny_store
from tests.tools.local_verify import local_verify

BY_HAND = ("how-to/rebuild", "how-to/index-only", "how-to/restore-from-backup")
"""Their blocks are ways to do the same: each is run by a test of its own."""
README = (ROOT / "README.md").read_text(encoding="utf-8")
OWNER = 12345
API = "how-to/notebooks"
SIZES = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}
BROKER_CONF = "mappedFileSizeConsumeQueue=400\nmaxHashSlotNum=7\nmaxIndexNum=40\n"


def commands() -> list[list[str]]:
    """Each ``rmq-reindex`` command of the pages and README, as words."""
    scripts = [re.sub(r"^    ", "", README, flags=re.MULTILINE)]
    shown = [block for page in names() for block in blocks(page)]
    scripts += [block.text for block in shown if block.language == "bash"]
    scripts += [command for block in shown if block.language == "console" for command, _ in steps(block.text)]
    found = []
    for script in scripts:
        for line in re.findall(
            r"^.*?\b(?:rmq-reindex|rmq_reindex\.py) (?=[a-z])(.*)$", script.replace("\\\n", " "), re.MULTILINE
        ):
            words = shlex.split(re.split(r" (?:\|\||&&|>|\|) ", line)[0], comments=True)
            if words[0] in COMMANDS:
                found.append(words)
    return found


def test_every_command_has_words_that_its_parser_takes() -> None:
    stated = commands()
    assert {words[0] for words in stated} == {*COMMANDS}
    for words in stated:
        parser_of(words[0]).parse_args(words[1:])


def test_what_is_not_run_has_a_reason() -> None:
    for page in names():
        todo = [block for block in blocks(page) if not block.reason]
        assert not todo or page in WORLDS or page in BY_HAND or page == "how-to/sql", [str(block) for block in todo]


@pytest.mark.parametrize("page", WORLDS)
def test_a_page(page: str, tmp_path: Path) -> None:
    if page == API and not hasattr(rocketmq_reindex, "build"):
        pytest.skip("the package has no functions yet")
    ran = list(run_page(page, tmp_path))
    assert ran
    for block, printed in ran:
        if block.language == "console":
            for (command, shown), (_, found) in zip(steps(block.text), steps(printed), strict=True):
                assert same(found) == same(shown), f"{block}: {command}: python -m tests.docs.transcripts {page}"


# -- the recipes: they leave a store that verify finds clean


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of a broker's user, with derived files that are not what its log says."""
    (tmp_path / "broker.conf").write_text(BROKER_CONF)
    store = tiny_store(tmp_path / "store")
    for path in (
        store / "index" / "20200101000000000",
        store / "checkpoint",
        store / "consumequeue" / "Old" / "0" / f"{0:020d}",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"old")
    own(store)
    return store


def own(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, OWNER, OWNER)


def run(script: str, folder: Path) -> None:
    shell = Shell(folder, {"/data": str(folder)})
    try:
        shell.run(f"set -e\n{script}")
    finally:
        shell.close()


def check(store: Path, before: dict[str, str]) -> None:
    """Clean, the broker's own, and what was there is kept (``before``: where)."""
    verified = local_verify(store, None, **SIZES)
    assert (verified.exit, verified.error, verified.findings) == (0, None, [])
    parts = [store / name for name in ("consumequeue", "index", "checkpoint")]
    owners = {path.stat().st_uid for part in parts for path in (part, *part.rglob("*"))}
    assert owners == {(store / "commitlog").stat().st_uid}
    for name, data in before.items():
        assert (store.parent / name).read_text() == data


@pytest.mark.parametrize("by_hand", [False, True], ids=["fetch", "by hand"])
def test_rebuild(by_hand: bool, store: Path, tmp_path: Path) -> None:
    first, hand = (block.text for block in blocks("how-to/rebuild"))
    script = re.sub(r"^rmq-reindex fetch .*$", "", first, flags=re.MULTILINE) + hand if by_hand else first
    run(script, tmp_path)
    below = "before/{}" if by_hand else "store/{}.previous"
    kept = {"consumequeue": f"/Old/0/{0:020d}", "index": "/20200101000000000", "checkpoint": ""}
    check(store, {f"{below.format(name)}{rest}": "old" for name, rest in kept.items()})


@pytest.mark.parametrize("by_hand", [False, True], ids=["fetch", "by hand"])
def test_index_only(by_hand: bool, store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    run("rmq-reindex build store --broker-conf broker.conf --out whole --only consumequeue", tmp_path)
    (tmp_path / "whole" / "consumequeue").rename(store / "consumequeue")
    own(store / "consumequeue")
    first, hand = (block.text for block in blocks("how-to/index-only"))
    run(re.sub(r"^rmq-reindex fetch .*$", "", first, flags=re.MULTILINE) + hand if by_hand else first, tmp_path)
    below = "before/{}" if by_hand else "store/{}.previous"
    check(
        store,
        {f"{below.format(name)}{rest}": "old" for name, rest in {"index": "/20200101000000000", "checkpoint": ""}.items()},
    )


def test_restore_from_backup(store: Path, tmp_path: Path) -> None:
    for part in ("consumequeue", "index"):
        shutil.rmtree(store / part)
    (store / "checkpoint").unlink()
    store.rename(tmp_path / "backup")
    (block,) = blocks("how-to/restore-from-backup")
    run(block.text, tmp_path)
    check(tmp_path / "backup", {})
    assert (tmp_path / "backup" / "config" / "topics.json").stat().st_size > 0


def test_readme_runs_what_the_guide_runs() -> None:
    """The first real run of README is the guide's, so what holds there holds here."""
    first = re.findall(r"^    (rmq-reindex .*)$", README, re.MULTILINE)
    assert first == re.findall(r"^(rmq-reindex .*)$", blocks("how-to/rebuild")[0].text, re.MULTILINE)
