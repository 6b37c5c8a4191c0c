"""Which DIRs share a scan store, and where one may not lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.scanning import store_of
from rocketmq_reindex.storage_format.errors import InputError


def root(out: str, tables: str, store: str = "s3://logs/store") -> str:
    return store_of(BuildSettings(store=store, out=out, tables=tables, incremental=True).check(), out).root


def test_a_place_behind_a_uri_is_known_whatever_opens_it(tmp_path: Path) -> None:
    tables = str(tmp_path)
    same = {
        root(out, tables)
        for out in ("webhdfs://a@host:9870/x/out?token=1", "webhdfs://b:pw@host:9871/x/out?token=2", "hdfs://host/x/out/")
    }
    assert len(same) == 1
    assert same.pop().startswith(f"{tmp_path}/_scans/out-")
    others = {root(f"s3://logs/x/out{query}", tables) for query in ("", "?endpoint_override=a%3A1", "?endpoint_override=b%3A1")}
    assert len(others) == 3
    assert root("s3://logs/x/out?region=a", tables) in others


def test_behind_a_uri(tmp_path: Path) -> None:
    found = root(str(tmp_path / "out"), "s3://logs/tables?region=a")
    assert found.startswith("s3://logs/tables/_scans/out-")
    assert found.endswith("?region=a")


@pytest.mark.parametrize("tables", ["s3://logs/out/tables", "s3://me:pw@logs/out?region=a", "s3://logs/store/commitlog/x"])
def test_apart_from_store_and_dir(tables: str) -> None:
    with pytest.raises(InputError, match="lies inside") as refused:
        root("s3://logs/out", tables)
    assert "pw" not in str(refused.value)
