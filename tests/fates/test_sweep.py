"""Random lives with fixed seeds: ``trace`` and ``consumers`` say what the clients saw. ``make fates`` has other seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fates.judge import numbers, wrong
from tests.fates.playing import play
from tests.fates.script import Script, draw


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(draw(3, count=30, brokers=2), id="two"),
        pytest.param(draw(2, count=60, kills=2), id="killed", marks=pytest.mark.slow),
        pytest.param(draw(8, count=60, kills=1, kept=True), id="kept", marks=pytest.mark.slow),
        pytest.param(draw(3, count=60, brokers=2, kills=1), id="two-killed", marks=pytest.mark.slow),
        pytest.param(draw(4, count=60, brokers=2, grpc=True), id="grpc", marks=pytest.mark.slow),
        pytest.param(draw(5, count=60, brokers=2, lone=True), id="lone", marks=pytest.mark.slow),
        pytest.param(draw(6, count=60, grpc=True, kills=1), id="grpc-killed", marks=pytest.mark.slow),
        pytest.param(draw(7, count=60, brokers=2, grpc=True, lone=True), id="grpc-lone", marks=pytest.mark.slow),
    ],
)
def test_each_message_is_told_as_clients_saw_it(script: Script, tmp_path: Path) -> None:
    played = play(script, tmp_path)
    assert len(played.seen.sent) + len(played.seen.failed) > 20
    assert list(wrong(played)) == []
    # Who judges sees what does not fit.
    moved = {key: replace(sent, offset=sent.offset + 1) for key, sent in played.seen.sent.items()}
    for other in (replace(played.seen, given={}), replace(played.seen, sent=moved), replace(played.seen, decided={})):
        assert next(wrong(replace(played, seen=other)), None) is not None
    assert "mqadmin printed 0" not in numbers(played) or script.end == "killed"
