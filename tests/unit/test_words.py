"""Every kind that a user may be told of has words of its own; no table of them has a gap."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_reindex.jobs.cli import COMMANDS, main
from rocketmq_reindex.jobs.preflighting import advice, losses
from rocketmq_reindex.storage_format import errors
from rocketmq_reindex.storage_format.checks import differences
from rocketmq_reindex.storage_format.record import layout

TABLES: dict[str, dict[Any, str]] = {
    "damage": layout.REASONS,
    "findings": errors.CODES,
    "differences": {kind: found.text for kind, found in differences.KINDS.items()},
    "losses": losses.KINDS,
    "warnings": losses.WARNINGS,
    "refusals": advice.OF_REFUSAL,
}


@pytest.mark.parametrize("name", TABLES)
def test_each_kind_has_words_of_its_own(name: str) -> None:
    words = [str(text) for text in TABLES[name].values()]
    assert len(words) > 2
    assert all(len(text.split()) > 1 for text in words)
    assert name == "refusals" or len(set(words)) == len(words)


def test_a_word_with_two_senses_is_said_with_one() -> None:
    """A slot is one of an IndexFile: a ConsumeQueue has units. A filler is one of a repair: what ends a segment is a BLANK."""
    of_queues = [found.text for kind, found in differences.KINDS.items() if kind.startswith("queue-")]
    of_queues += [text for code, text in errors.CODES.items() if code.startswith("queue-")]
    assert not [text for text in of_queues if "slot" in text]
    assert not [text for text in layout.REASONS.values() if "filler" in text]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_called_by_its_name_and_explained(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert said.startswith(f"usage: rmq-reindex {command} ")
