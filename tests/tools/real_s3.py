"""Real S3 servers on loopback, in processes of their own: those of NAMES that ``scripts/s3-servers`` could install."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.tools.faulty_processes import ROOT
from tests.tools.ports import free_ports
from tests.tools.s3_server import bucket_at, environment

_FOLDER: Final = ROOT / ".venv-servers" / "bin"
_PROGRAMS: Final = {"seaweedfs": _FOLDER / "weed", "minio": _FOLDER / "minio"}
NAMES: Final = tuple(name for name, program in _PROGRAMS.items() if name == "seaweedfs" or program.exists())
"""SeaweedFS is always there. MinIO is built by Go, which a machine may lack."""
SERVERS: Final = tuple(pytest.param(name, marks=() if name == "seaweedfs" else pytest.mark.slow) for name in NAMES)
"""The servers as parameters of tests. To build MinIO takes four minutes, so `make slow` alone does it."""
_PATIENCE: Final = 300.0
_KEYS: Final = environment(0)
KEY, SECRET = _KEYS["AWS_ACCESS_KEY_ID"], _KEYS["AWS_SECRET_ACCESS_KEY"]


def _minio(folder: Path) -> tuple[int, list[str], dict[str, str]]:
    (port,) = free_ports(1)
    words = ["server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "data")]
    # Without this it asks the project's site for a newer version.
    more = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    return port, words, more


def _seaweedfs(folder: Path) -> tuple[int, list[str], dict[str, str]]:
    """All of its servers in one process. Each has a port for HTTP and one for gRPC, which may not be 10,000 further here."""
    servers = ("s3", "master", "volume", "filer")
    ports = free_ports(2 * len(servers))
    identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    words = [
        "server", "-s3", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.config={folder / 's3.json'}",
        *(f"-{name}.port={port}" for name, port in zip(servers, ports, strict=False)),
        *(f"-{name}.port.grpc={port}" for name, port in zip(servers, ports[len(servers) :], strict=True)),
        *(f"-{name}.localSocket={folder / name}.sock" for name in ("s3", "filer")),
        "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false", "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64", "-volume.max=20",
    ]  # fmt: skip
    return ports[0], words, {}


_WORDS: Final = {"minio": _minio, "seaweedfs": _seaweedfs}


@contextlib.contextmanager
def real_s3(name: str) -> Iterator[str]:
    """``s3://BUCKET`` on a server of its own; the environment of this process leads to it meanwhile. Nothing is kept."""
    program = _PROGRAMS[name]
    assert program.exists(), f"{program} is missing: scripts/s3-servers"
    # Short, since it holds sockets.
    with tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        port, words, more = _WORDS[name](folder)
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(
                [program, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | more
            ) as server,
        ):
            try:
                with _bucket_soon(port, server, folder / "log") as found:
                    yield found
            finally:
                server.kill()


@contextlib.contextmanager
def _bucket_soon(port: int, server: subprocess.Popen[bytes], log: Path) -> Iterator[str]:
    end = time.monotonic() + _PATIENCE
    with contextlib.ExitStack() as stack:
        while True:
            try:
                found = stack.enter_context(bucket_at(port))
                break
            except OSError:
                if time.monotonic() > end or server.poll() is not None:
                    raise AssertionError(f"the server does not start: {log.read_text()[-2000:]}") from None
                time.sleep(0.2)
        yield found
