"""The page of growth, of figures that were not measured; a sparse log is the log it stands for; a bucket's server serves."""

from __future__ import annotations

import os
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from pyarrow import fs

from tests.bench import bucket, growth
from tests.bench.growth import LONG, MIB, SHORT, page
from tests.bench.template_log import message_of, write_log
from tests.tools.encode import encode


def case(gib: int, queues: int, body: int, **more: float) -> dict[str, Any]:
    told = {"records": 1_000, "whole": 20.0, "build": 8.0, "cpu": 10.0 + gib, "tasks": 9, "wrote": gib * 60 * MIB}
    told |= {"shuffle": gib * 20 * MIB, "results": gib << 10, "jvm": 400 * MIB, "python": 200 * MIB}
    made = growth.Case(gib, queues, body)
    return {"name": made.name, **made._asdict(), **told, **more}


def figures() -> dict[str, Any]:
    names = ("processor", "cores", "memory", "Python", "pyspark", "load before")
    return {
        "command": "python -m tests.bench.growth",
        "machine": dict.fromkeys(names, "2"),
        "minutes": 9.7,
        "cases": [case(1, 1_000, SHORT), case(8, 1_000, SHORT), case(8, 1, SHORT), case(64, 1_000, LONG, whole=90.0)],
        "driver": [{"segments": 1_024, "queues": 9, "seconds": 2.0, "memory": 50 * MIB}],
    }


def test_the_page() -> None:
    told = page(figures())
    assert "| 8 GiB of 1 KiB, one queue | 1,000 | 20.0 | 8.0 | 2.2 | 9 | 20.0 | 400 | 200 |" in told
    assert "| 64 GiB of 64 KiB, sparse, 1,000 queues | 1,000 | 90.0 |" in told
    assert "| 1,024 segments of 1 GiB | 9 | 2.0 | 50 |" in told
    # A second a GiB on 40 cores and on 2,000; the driver's time grows with the segments.
    assert "| 1 TiB on 10 executors | 26 | 2 | 12 | 4,096 | 20 | 60 | 1 |" in told
    assert "| 100 TiB on 500 executors | 51 | 200 | 12 |" in told
    # A KiB of results a GiB.
    assert "results of some 256 TiB fill (calculated)" in told


def test_the_page_has_its_place() -> None:
    committed = growth.PAGE.read_text(encoding="utf-8")
    assert (committed.count(growth.BEGIN), committed.count(growth.END)) == (1, 1)


@pytest.mark.parametrize("count", [3, 40])
def test_a_sparse_log_has_bodies_of_zeros(count: int, tmp_path: Path) -> None:
    """Across the end of a segment, too."""
    queues, body, size = np.arange(count, dtype=np.int32) % 2, 50_000, 1 << 20
    write_log(tmp_path / "sparse", queues, 1, body, size, sparse=True)
    write_log(tmp_path / "plain", queues, 1, body, size)
    record = len(encode(message_of(0, 0, 1, body), 0))
    for segment in sorted((tmp_path / "plain").iterdir()):
        plain, sparse = segment.read_bytes(), (tmp_path / "sparse" / segment.name).read_bytes()
        assert len(plain) == len(sparse)
        for at in range(0, len(plain) - record, record):
            whole, holed = plain[at : at + record], sparse[at : at + record]
            # The CRC of the body differs, too.
            assert holed[:8] + holed[12:] == (whole[:8] + whole[12:]).replace(b"x" * body, bytes(body))
    taken = sum(path.stat().st_blocks for path in (tmp_path / "sparse").iterdir()) * 512
    assert taken < count * (body // 2)


def test_a_bucket_of_files_is_read(tmp_path: Path) -> None:
    before = dict(os.environ)
    (tmp_path / "secret").write_text("secret")
    log = tmp_path / "root" / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / "0").write_bytes(bytes(range(256)) * 40)
    with bucket.served(tmp_path / "root") as options:
        system, root = fs.FileSystem.from_uri(f"s3://{bucket.BUCKET}/store?{options}")
        (entry,) = system.get_file_info(fs.FileSelector(f"{root}/commitlog"))
        assert (entry.base_name, entry.size) == ("0", 10_240)
        with system.open_input_file(entry.path) as file:
            assert file.read_at(6, 254) == b"\xfe\xff\0\1\2\3"
        assert system.get_file_info(f"{root}/absent").type == fs.FileType.NotFound
        server = HTTPConnection(parse_qs(options)["endpoint_override"][0])
        for path in ("/logs/../secret", f"/logs/{tmp_path / 'secret'}", "/logs/store/%2e%2e/%2e%2e/secret"):
            server.request("GET", path)
            answer = server.getresponse()
            assert (answer.status, b"secret" in answer.read()) == (404, False), path
    assert dict(os.environ) == before
