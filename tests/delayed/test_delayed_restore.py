"""A broker that is killed while it delivers, restored from its log alone, delivers each message exactly once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from tests.delayed.cases import GROUP, SOLD, levels, timers
from tests.delayed.life import SIZES, UNREAD, Life, queues
from tests.delayed.run import run
from tests.delayed.sweep import LIVES, sweep_lives

COUNT = 20
ASKING: dict[str, str | int] = {
    "transactionTimeOut": 1500,
    "transactionCheckInterval": 3000,
    "flushConsumerOffsetInterval": 500,
    **UNREAD,
}


@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.3.3", marks=pytest.mark.slow)])
def test_delay_levels(version: str, seed: int, tmp_path: Path) -> None:
    outcome = run(version, levels(seed), tmp_path)
    assert outcome.faults == ()


@pytest.mark.slow
def test_timer_messages(seed: int, tmp_path: Path) -> None:
    outcome = run("5.5.1", timers(seed, "5.5.1"), tmp_path)
    assert outcome.faults == ()


@pytest.mark.parametrize("version", [pytest.param(LIVES[0], marks=pytest.mark.slow), LIVES[-1]])
def test_a_life(version: str) -> None:
    """With all kinds of waiting messages: ``make restore-lives`` runs many, of each version.

    Of what the oldest version has, levels and half messages, there are tests of their own.
    """
    assert sweep_lives([version], 79, 1, 1) == 0


@pytest.mark.parametrize("version", [*(pytest.param(version, marks=pytest.mark.slow) for version in LIVES[:-1]), LIVES[-1]])
def test_a_kill_that_left_the_older_offsets_alone(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker writes FILE anew when it has renamed FILE to FILE.bak. What a group consumed before does not come again."""
    store, saved, built, told = (tmp_path / name for name in ("store", "backup", "built", "told"))
    queues({"T0": 2, SOLD: 1}, store)

    def noted(where: Path) -> bool:
        """The broker has written that the group is through. What it has pulled is noted in another table.

        fastjson leaves queue ids without quotes.
        """
        found = "".join(path.read_text() for path in (where / "config").glob("consumerOffset.json"))
        table = "".join(found.split()).partition('"offsetTable":')[2].partition('"pullOffsetTable"')[0]
        return f'"T0@{GROUP}":{{0:{COUNT // 2},1:{COUNT // 2}}}' in table

    def consumed(where: Path) -> set[str]:
        """What the group is given in one more life of a broker, which is stopped."""
        told.write_text("")
        with Life(version, where, tmp_path, ASKING) as life:
            if where == store:
                life.send(f"0\tT0\t{number % 2}\ttag\tUNIQ_KEY={number:032X}" for number in range(COUNT))
                life.send([f"{SOLD}\t{COUNT:032X}\tunknow\tcommit"], "transact")
                life.step("sent")
            life.step("again", GROUP, "T0", 1, 0, told)
            wanted = COUNT if where == store else 0
            life.wait(lambda _: len(told.read_text().splitlines()) >= wanted, "all of them")
            life.wait(lambda _: noted(where), "a note of what was consumed")
            life.wait(lambda log: any(record.topic == SOLD for record in log), "the transaction, which was asked for")
            life.settle(5)
            life.stop()
        return {line.partition("\t")[0] for line in told.read_text().splitlines()}

    assert len(consumed(store)) == COUNT
    for part in ("commitlog", "config"):
        shutil.copytree(store / part, saved / part)
    offsets = saved / "config" / "consumerOffset.json"
    older = offsets.rename(f"{offsets}.bak")
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
    known = ["--broker-conf", str(conf), "--broker-version", version[:3], "--engine", "local"]
    assert main(["build", str(saved), "--out", str(built), "--write-delay", *known]) == 0
    assert (built / "config" / offsets.name).exists()
    assert main(["fetch", str(built), "--to", str(saved)]) == 0
    assert f"config/{older.name}: the store's own stays" in capsys.readouterr().err
    assert not offsets.exists()
    assert consumed(saved) == set()
