"""A Python as a cluster of Databricks has it: the bundle's wheel is installed, and Spark is there without being a package."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.databricks.volumes import inside
from tests.tools.bundle import JOB
from tests.tools.faulty_processes import PATIENCE, ROOT, java
from tests.tools.installed import Installed, put

BROUGHT = ("pyspark", "py4j")
PROJECT = ("rocketmq", "_rocketmq", "__editable__")
Told = dict[str, tuple[Any, str, str]]


@dataclass(frozen=True)
class Runtime:
    """``spark`` is the folder with Spark's Python half, as /databricks/spark/python is."""

    installed: Installed
    spark: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of the driver; workers inherit it. Nothing of the shell that runs the tests."""
        return {
            **java(), **self.installed.compiled, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(self.spark), "PYSPARK_PYTHON": str(self.installed.python),
        }  # fmt: skip

    def run(self, folder: Path, runs: list[dict[str, list[str]]], conf: Mapping[str, str]) -> list[Told]:
        """Run the tasks of each run of the job where ``folder``/volumes is mounted as /Volumes."""
        (wheel_task,) = {
            (wanted["package_name"], wanted["entry_point"])
            for task in JOB["tasks"]
            if (wanted := task.get("python_wheel_task"))
        }
        cluster = JOB["job_clusters"][0]["new_cluster"]["spark_conf"]
        plan = {"conf": cluster | dict(conf), "package": wheel_task[0], "entry_point": wheel_task[1], "runs": runs}
        (folder / "plan.json").write_text(json.dumps(plan))
        (folder / "home").mkdir(exist_ok=True)
        program = Path(__file__).with_name("wheel_tasks.py")
        words = inside(folder / "volumes", "env", f"--chdir={folder / 'home'}", self.installed.python, program)
        done = subprocess.run(
            [*map(str, words), str(folder / "plan.json")], cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [dict(told) for told in json.loads(done.stdout)]


def runtime(wheel: Path, folder: Path) -> Runtime:
    """Make one in ``folder``: packages are links to those of this environment, and so are their metadata."""
    venv.create(folder / "environment", symlinks=True)
    made = Runtime(Installed(folder / "environment"), folder / "spark")
    made.spark.mkdir()
    for kind in ("purelib", "platlib"):
        for path in Path(sysconfig.get_path(kind)).iterdir():
            if path.name in BROUGHT:
                _link(path, made.spark)
            elif not path.name.startswith((*BROUGHT, *PROJECT)):
                _link(path, made.installed.packages)
    put(wheel, made.installed)
    return made


def _link(path: Path, folder: Path) -> None:
    if not os.path.lexists(folder / path.name):
        (folder / path.name).symlink_to(path)
