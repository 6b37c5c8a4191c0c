"""verify by either engine: the same summary as in one process, the report, exit statuses; nothing of the store is touched."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.cli import main
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore
from tests.tools import spoil_derived
from tests.tools.engines import ENGINES
from tests.tools.local_verify import local_verify
from tests.tools.spoiling import Sizes

Stores = Callable[[str], GoldenStore]


def told(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name not in ("started", "seconds", "beside", "settings")}


@pytest.mark.parametrize("engine", ENGINES)
def test_clean_and_spoilt(
    engine: str, spark: SparkSession, golden_store: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert spark is not None
    source, store, report = golden_store("trimmed-head"), tmp_path / "store", tmp_path / "report.json"
    shutil.copytree(source.path, store, ignore=shutil.ignore_patterns("rebuilt"))
    for name, status in (("", 0), ("units-moved-up", 4)):
        if name:
            for how in (name, "item-hash"):
                spoil_derived.KINDS[how][0](store, Sizes(**source.sizes()), random.Random(3))
        with guarded(store, report):
            assert (
                main(["verify", str(store), "--json", "--report", str(report), "--work", str(tmp_path), "--engine", engine])
                == status
            )
        summary = json.loads(capsys.readouterr().out)
        assert summary == json.loads(report.read_text())
        assert set(summary["seconds"]) == {"session", "scan", "order", "compare", "verify", "total"}
        assert set(summary["beside"]) == {"list", "check", "consumequeue", "index"}
        alone = json.loads(local_verify(store, work=str(tmp_path)).to_json())
        # Commands to be pasted name the engine that the user gave.
        assert told(json.loads(json.dumps(summary).replace(f" --engine {engine}", ""))) == told(alone)
    assert main(["verify", str(store), "--against", str(source.path), "--work", str(tmp_path), "--engine", engine]) == 4
    out, err = capsys.readouterr()
    assert "against-queue-unit" in out
    assert "against-index-item" in out
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "store"]
