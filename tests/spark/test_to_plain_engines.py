"""``repair --to-plain`` by either engine: the same files, also of a log with damage and with entries that are not committed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.cli import main
from tests.golden.stores import GoldenStore
from tests.golden.test_dledger import entries_of, spoil
from tests.golden.test_to_plain import all_files
from tests.tools.engines import ENGINES

SIZES = ["--cq-file-size", "400", "--hash-slots", "50", "--index-items", "100"]


def test_the_same_files(
    spark: SparkSession, golden_store: Callable[[str], GoldenStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    store = Path(shutil.copytree(golden_store("dledger-mixed-5.3").path, tmp_path / "store"))
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=40\n")
    place = entries_of(store)[20]
    spoil(place, 0, b"\x11" * place[2])
    told = []
    for engine in ENGINES:
        words = ["repair", str(store), "--to-plain", "--out", str(tmp_path / engine), "--engine", engine, "--json", *SIZES]
        assert main([*words, "--broker-version", "5.3"]) == 3
        summary = json.loads(capsys.readouterr().out)
        told.append({name: summary[name] for name in ("records", "damage", "warnings", "repair", "files")})
    assert told[0] == told[1]
    assert all_files(tmp_path / "spark") == all_files(tmp_path / "local")
