"""A working folder that somebody prepared: files of the names that are looked for, each of which leaves a mark when it runs.

What is opened in it, by whichever process, the kernel tells (inotify).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

_OPENED = 0x20
_EVENT = struct.Struct("iIII")
OURS = ("rocketmq_reindex", "storage_format", "files", "udfs", "jobs")
SETTINGS = {
    ".numba_config.yaml": "cache_dir: {here}/cache\ndisable_jit: 1\n",
    "matplotlibrc": "text.usetex: True\n",
    "log4j2.properties": "status = trace\n",
    "core-site.xml": "<configuration/>\n",
    "hive-site.xml": "<configuration/>\n",
    "hadoop-metrics2.properties": "*.period=1\n",
    "spark-defaults.conf": "spark.driver.memory 1k\n",
    "pyvenv.cfg": "home = {here}\n",
    "derby.properties": "derby.system.home={here}\n",
    ".java-home": "{here}\n",
    "broker.conf": "mapedFileSizeConsumeQueue=20\n",
}
PROGRAMS = (
    "bin/spark-submit", "bin/java", "bin/python", "environment/bin/python", "rmq_python", "python3", "java", "bash", "ps",
    "conf/spark-env.sh", "bin/load-spark-env.sh", "rmq-reindex",
)  # fmt: skip
PATH_FILES = ("hostile.pth", "rocketmq_reindex.pth", "_rocketmq_reindex.pth", "__editable__.rocketmq_reindex.pth")
"""Python runs a line of such a file that begins with ``import``, in folders of packages"""
ARCHIVES = ("jars/delta-spark_4.1_2.13-4.4.0.jar", "jars/spark.jar", "rocketmq_reindex.zip", "dist/rocketmq_reindex.zip")


def names() -> set[str]:
    """Of all modules of Python and of all packages that are installed here."""
    found = {name for name, _ in metadata.packages_distributions().items() if name.isidentifier()}
    more = {"sitecustomize", "usercustomize", "pyspark_trap", "cuda", "lib", "conf", "jars", "scripts", "tests", *OURS}
    return {name for name in found | more | set(sys.stdlib_module_names) if name != "__main__"}


@dataclass
class Trap:
    """``here`` is where commands are started; what runs leaves its name in ``marks``."""

    root: Path
    here: Path = field(init=False)
    marks: Path = field(init=False)

    def __post_init__(self) -> None:
        self.here, self.marks = self.root / "place" / "here", self.root / "marks"
        self.marks.mkdir(parents=True)
        self.here.mkdir(parents=True)
        for name in names():
            self._module(self.here / f"{name}.py", name)
        for name in (*OURS, "conf", "jars", "numpy", "encodings", "multiprocessing"):
            self._module(self.here / name / "__init__.py", name)
        for name in (
            "rocketmq_reindex/udfs/worker/daemon",
            "rocketmq_reindex/udfs/worker/pool",
            "rocketmq_reindex/jobs/cli",
            "rocketmq_reindex/__main__",
            "udfs/worker/daemon",
            "udfs/worker/pool",
            "jobs/cli",
            "pyspark/daemon",
        ):
            self._module(self.here / f"{name}.py", name.replace("/", "."))
        for name in PATH_FILES:
            (self.here / name).write_text(self._marking(name))
        for name in ARCHIVES:
            (self.here / name).parent.mkdir(exist_ok=True)
            (self.here / name).write_bytes(b"PK\5\6" + bytes(18))
        # pyspark looks for Spark in the folder above first.
        for folder in (self.here, self.here.parent):
            for program in PROGRAMS:
                path = folder / program
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"#!/bin/sh\n: > '{self.marks}/program-{path.name}'\nexit 1\n")
                path.chmod(0o755)
            for name in ("conf", "jars", "rocketmq_reindex/conf"):
                (folder / name).mkdir(parents=True, exist_ok=True)
                for setting, text in SETTINGS.items():
                    (folder / name / setting).write_text(text.format(here=folder))
            for setting, text in SETTINGS.items():
                (folder / setting).write_text(text.format(here=folder))

    def _module(self, path: Path, name: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._marking(name))

    def _marking(self, name: str) -> str:
        """A line that leaves a mark. It may run before the real modules are there: it takes what an interpreter has at hand."""
        return f"import posix; posix.close(posix.open({str(self.marks / name)!r}, posix.O_CREAT | posix.O_WRONLY))\n"

    def marked(self) -> list[str]:
        return sorted(path.name for path in self.marks.iterdir())


class Opened:
    """What is opened in folders, or listed (""), from now on."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._queue >= 0
        self._folders: dict[int, Path] = {}
        for folder in folders:
            watch = self._libc.inotify_add_watch(self._queue, os.fsencode(folder), _OPENED)
            assert watch >= 0, folder
            self._folders[watch] = folder

    def paths(self) -> set[str]:
        found: set[str] = set()
        while True:
            try:
                data = os.read(self._queue, 1 << 16)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                watch, _, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].rstrip(b"\0").decode()
                at += length
                found.add(str(self._folders[watch] / name))

    def close(self) -> None:
        os.close(self._queue)
