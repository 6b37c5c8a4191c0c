"""Settings of a broker.conf that a build or a verify cannot follow: it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.verifying.options import parse_verify
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.local_verify import run_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message


@pytest.mark.parametrize(
    ("version", "only", "warns"), [("5.3", "checkpoint", True), ("5.3", "index", False), ("5.5", "checkpoint", False)]
)
def test_accelerated_recovery(version: str, only: str, warns: bool, tmp_path: Path) -> None:
    """5.5 does not load a store after a crash whose checkpoint lacks the sixth field: tests/serving/test_upgrade.py."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        for number in range(3):
            writer.append(Message(topic="T", queue_offset=number))
    conf = tmp_path / "broker.conf"
    conf.write_text("enableAcceleratedRecovery = true")
    settings = parse_settings([str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--broker-conf", str(conf)])
    summary = local_build(
        tmp_path / "store", tmp_path / "out", accelerated=settings.accelerated, broker_version=version, only=(only,), **SMALL
    )
    assert summary.exit == 0
    told = [warning for warning in summary.warnings if "has enableAcceleratedRecovery=true" in warning]
    assert len(told) == warns


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("maxIndexNums=7", "maxIndexNums: is maxIndexNum meant? A broker passes over it"),
        (
            "storePathDLedgerCommitLog=/other",
            "storePathDLedgerCommitLog=/other: where STORE or a --commitlog is named, name this folder by --commitlog, too",
        ),
    ],
)
def test_what_is_passed_over_is_a_warning(line: str, told: str, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        writer.append(Message(topic="T"))
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=a\n{line}\n")
    settings = parse_settings([str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--broker-conf", str(conf)])
    summary = local_build(tmp_path / "store", tmp_path / "out", None, conf_notes=settings.conf_notes, **SMALL)
    assert f"{conf}: has {told}" in summary.warnings
    verified = run_verify(parse_verify([str(tmp_path / "store"), "--broker-conf", str(conf), "--only", "log"]))
    assert (verified.exit, f"{conf}: has {told}" in verified.notes) == (0, True)
