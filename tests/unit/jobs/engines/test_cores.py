"""How many processes work at once: what --master says, else what this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.engines.local import _quota, cores_of, own_cores
from rocketmq_reindex.storage_format.errors import UsageError


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[1]", 1), ("local[7]", 7), ("local[3,4]", 3), ("local[ 2 ]", 2)]
)
def test_as_the_master_says(master: str, cores: int) -> None:
    assert cores_of(master) == cores


def test_all_that_there_are() -> None:
    assert 1 <= own_cores() <= len(os.sched_getaffinity(0))
    assert cores_of("") == cores_of("local[*]") == own_cores()


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "yarn", "k8s://x", "local[0]", "local[x]", "local-cluster[1,1,1]", "local\n"]
)
def test_a_master_elsewhere(master: str) -> None:
    with pytest.raises(UsageError, match="runs on this machine alone"):
        cores_of(master)


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({}, 8),
        ({"a/b": "max 100000"}, 8),
        ({"a/b": "150000 100000"}, 2),
        ({"a": "50000 100000", "a/b": "max 100000"}, 1),
        ({"a/b": "10000000 100000"}, 8),
        ({"a/b": "nonsense", "": "300000 100000"}, 3),
    ],
)
def test_the_limit_of_a_container(limits: dict[str, str], cores: int, tmp_path: Path) -> None:
    groups, own = tmp_path / "groups", tmp_path / "cgroup"
    (groups / "a" / "b").mkdir(parents=True)
    own.write_text("1:name=systemd:/x\n0::/a/b\n")
    for name, text in limits.items():
        (groups / name / "cpu.max").write_text(f"{text}\n")
    assert _quota(groups, own, 8) == cores


def test_no_control_groups(tmp_path: Path) -> None:
    assert _quota(tmp_path, tmp_path / "none", 5) == 5
    (tmp_path / "cgroup").write_text("4:cpu:/a\n")
    assert _quota(tmp_path, tmp_path / "cgroup", 5) == 5
