"""The journal of a replay: what it says after each way in which a run may end."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.replaying.journal import ANSWER, BELOW, DOUBTFUL, REFUSED, Journal, Told
from rocketmq_reindex.storage_format.errors import InputError

BOUND = {"log": {"end": 7}, "choice": {"topics": ("A",)}, "target": {"to": "h:1"}}


def opened(path: Path, **changed: object) -> Journal:
    return Journal(str(path), BOUND | changed)


def told_by(path: Path) -> Told:
    journal = opened(path)
    journal.close()
    return journal.told


def test_a_journal_says_what_became_of_each_message(tmp_path: Path) -> None:
    first = opened(tmp_path / "j")
    first.intents([10, 20, 30, 40, 50])
    first.say(ANSWER, 10, "id")
    first.say(REFUSED, 20, "TOPIC\nNOT FOUND \x1b")
    first.say(DOUBTFUL, 30, "no answer")
    first.say(ANSWER, 50, "id")
    first.flush()
    first.close()
    told = told_by(tmp_path / "j")
    assert [told.is_new(offset) for offset in (10, 20, 30, 40, 50, 60)] == [False, True, False, False, False, True]
    assert told.doubtful == {30: "no answer", 40: ""}
    assert b"\x1b" not in (tmp_path / "j").read_bytes()


def test_below_a_watermark_nothing_is_held(tmp_path: Path) -> None:
    first = opened(tmp_path / "j")
    for offset in range(5000):
        first.intents([offset]) if offset % 1000 == 0 else None
        first.say(ANSWER, offset, "id")
        if offset % 1000 == 999:
            first.say(BELOW, offset)
    first.flush()
    first.close()
    told = told_by(tmp_path / "j")
    assert (told.below, told.answered, told.doubtful) == (4999, {4999}, {})
    assert not told.is_new(17)
    assert told.is_new(5000)


def test_a_torn_end_is_cut_off_wherever_it_is(tmp_path: Path) -> None:
    first = opened(tmp_path / "j")
    first.intents([10])
    first.say(ANSWER, 10, "id")
    first.intents([20])
    first.close()
    whole = (tmp_path / "j").read_bytes()
    start = whole.index(b"\n") + 1
    for size in range(start, len(whole)):
        (tmp_path / "j").write_bytes(whole[:size])
        again = opened(tmp_path / "j")
        again.intents([99])
        again.close()
        told = told_by(tmp_path / "j")
        assert 99 in told.doubtful
        # An intent that is not whole is of a message that was not sent.
        lines = whole[:size].split(b"\n")[1:-1]
        assert (10 in told.doubtful or 10 in told.answered) == bool(lines)


@pytest.mark.random
def test_a_damaged_line_before_others_is_refused(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    first = opened(tmp_path / "j")
    first.intents(range(20))
    first.close()
    whole = bytearray((tmp_path / "j").read_bytes())
    last = whole.rindex(b"\ni ")
    for _ in range(100):
        at = dice.randrange(last)
        spoilt = bytearray(whole)
        spoilt[at] ^= 1 << dice.randrange(8)
        (tmp_path / "j").write_bytes(spoilt)
        with pytest.raises(InputError, match=r"damaged, and others follow it|is no journal"):
            opened(tmp_path / "j")


def test_another_replay_another_run_and_another_file(tmp_path: Path) -> None:
    first = opened(tmp_path / "j")
    with pytest.raises(InputError, match="another replay uses it"):
        opened(tmp_path / "j")
    first.close()
    with pytest.raises(InputError, match="with another log: name a new file"):
        opened(tmp_path / "j", log={"end": 8})
    with pytest.raises(InputError, match="with another log and another --to: name a new file"):
        opened(tmp_path / "j", log={"end": 8}, target={"to": "h:2"})
    with pytest.raises(InputError, match="with another --topic and another --queue-groups: name a new file"):
        opened(tmp_path / "j", choice={"topics": ["B"]}, target={"to": "h:1", "queue_groups": True})
    (tmp_path / "text").write_text("not a journal\n")
    with pytest.raises(InputError, match="is no journal of a replay"):
        opened(tmp_path / "text")
    assert (tmp_path / "text").read_text() == "not a journal\n"


def test_a_new_journal_is_durable_with_what_failed_since_before_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A handle that is opened behind the writes is not told of a failure of which another process was told."""
    synced, open_file = list[tuple[str, int]](), os.open
    opened = list[tuple[str, int]]()

    def noted(path: str, *words: int, **more: int) -> int:
        handle = open_file(path, *words, **more)
        opened.append((path, handle))
        return handle

    monkeypatch.setattr(os, "open", noted)
    monkeypatch.setattr(files, "sync", lambda folder, since=-1: synced.append((folder, since)))
    Journal(str(tmp_path / "journal"), {}).close()
    assert opened[0][0] == str(tmp_path)
    assert synced == [opened[0]]


def test_a_dry_run_makes_no_journal_and_changes_none(tmp_path: Path) -> None:
    Journal(str(tmp_path / "j"), BOUND, write=False).close()
    assert not (tmp_path / "j").exists()
    first = opened(tmp_path / "j")
    first.intents([1])
    first.close()
    torn = (tmp_path / "j").read_bytes() + b"a 1 i"
    (tmp_path / "j").write_bytes(torn)
    dry = Journal(str(tmp_path / "j"), BOUND, write=False)
    assert dry.told.doubtful == {1: ""}
    dry.close()
    assert (tmp_path / "j").read_bytes() == torn
