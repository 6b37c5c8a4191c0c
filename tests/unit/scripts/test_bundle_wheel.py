"""The bundle's wheel: the ordinary one in all but its version and what it asks pip for."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from scripts.bundle_wheel import LABEL, asks_for_spark, bundle_wheel

METADATA = """\
Metadata-Version: 2.4
Name: rocketmq-reindex
Version: 1.2
Requires-Dist: numpy>=1.26
Requires-Dist: py-spark-like>=1
Requires-Dist: pyspark<4.2,>=4.0.1
Provides-Extra: spark
Requires-Dist: pandas>=2.2; extra == 'spark'
Provides-Extra: hdfs
Requires-Dist: fsspec; extra == 'hdfs'

Requires-Dist: pyspark stands in the description.

Version: 7
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Requires-Dist: pyspark<4.2,>=4.0.1", True),
        ("Requires-Dist: PySpark[connect]", True),
        ("Requires-Dist: delta_spark (>=4.0)", True),
        ("Requires-Dist: py4j", True),
        ("Requires-Dist: pyspark-client>=4", False),
        ("Requires-Dist: pandas>=2.2", False),
        ("Summary: pyspark", False),
        ("Requires-Dist: ", False),
    ],
)
def test_what_asks_for_spark(line: str, expected: bool) -> None:
    assert asks_for_spark(line) == expected


def test_the_rest_stays(tmp_path: Path) -> None:
    info = "rocketmq_reindex-1.2.dist-info"
    ordinary = {
        "rocketmq_reindex/__init__.py": b"", "rocketmq_reindex/py.typed": b"", f"{info}/METADATA": METADATA.encode(),
        f"{info}/licenses/LICENSE": b"license", f"{info}/RECORD": b"of the ordinary one",
    }  # fmt: skip
    wheel = tmp_path / "rocketmq_reindex-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in ordinary.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 2, 2, 0, 0, 0)), content)
    digests = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made = bundle_wheel(wheel, tmp_path / name)
        assert made.name == f"rocketmq_reindex-1.2{LABEL}-py3-none-any.whl"
        digests.add(made.read_bytes())
    assert len(digests) == 1
    with zipfile.ZipFile(made) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    new = f"rocketmq_reindex-1.2{LABEL}.dist-info"
    record = found.pop(f"{new}/RECORD").decode()
    head, _, description = METADATA.partition("\n\n")
    head = head.replace("Version: 1.2\n", f"Version: 1.2{LABEL}\n").replace("Requires-Dist: pyspark<4.2,>=4.0.1\n", "")
    head = head.replace("pandas>=2.2; extra == 'spark'", "pandas>=2.2")
    ordinary[f"{info}/METADATA"] = f"{head}\n\n{description}".encode()
    del ordinary[f"{info}/RECORD"]
    assert found == {name.replace(info, new): content for name, content in ordinary.items()}
    lines = [line.rsplit(",", 2) for line in record.splitlines()]
    assert [name for name, _, _ in lines] == [*found, f"{new}/RECORD"]
    for name, digest, size in lines[:-1]:
        expected = base64.urlsafe_b64encode(hashlib.sha256(found[name]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(found[name])))
