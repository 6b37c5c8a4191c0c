"""An engine's own processes: their folder and environment, their messages, and what is raised when one is gone.

By itself: each command imports it, and both ends do so before anything slow.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketmq_reindex import version
from rocketmq_reindex.storage_format.kernels import cache_folder

# ----------------------------------------------------------------------------------------------------------------------- folder
# Where the processes of an engine work.

FOLDER: Final = "/"
"""only root can put files there that Python or Java would load"""


# ------------------------------------------------------------------------------------------------------------------------- link
# What passes between the driver of the local engine and one of its processes: pickled objects, each behind its length.
#
# Only the two processes have the two ends, by inheritance: nobody else can write to them.

_LENGTH: Final = struct.Struct("<Q")


class Waits(NamedTuple):
    """What may come before a task's answer: one line about a store that the task waits for."""

    text: str


def send(link: socket.socket, message: object) -> None:
    """Send one object. Raises OSError where the other end is gone, and what pickle raises before anything is sent."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    link.sendall(_LENGTH.pack(len(data)) + data)


def receive(link: socket.socket) -> Any:
    """Wait for one object, and return it. Raises EOFError where the other end is gone."""
    return pickle.loads(_take(link, _LENGTH.unpack(_take(link, _LENGTH.size))[0]))


def _take(link: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    room = memoryview(data)
    while room:
        try:
            received = link.recv_into(room)
        except ConnectionError:
            received = 0
        if not received:
            raise EOFError
        room = room[received:]
    return data


# ------------------------------------------------------------------------------------------------------------------------- lost
# What an engine raises when a process of its own is gone.


class WorkerLostError(Exception):
    """A process of the engine has ended before its work: its task is lost, and the run with it."""


# -------------------------------------------------------------------------------------------------------------------- elsewhere
# The environment of a run's own processes, which work in another folder than the driver.
#
# ``python -m`` puts its working folder first on ``sys.path``, and the names of files in the folder where a command is started
# may be an attacker's. So these processes work in ``/``, and paths that count from the driver's folder are made absolute.

PATHS: Final = (
    "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "JAVA_HOME", "TMPDIR",
    cache_folder.VARIABLE,
)  # fmt: skip
LISTS: Final = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")
CREDENTIALS: Final = (
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CA_BUNDLE",
    "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_FEDERATED_TOKEN_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR", "KRB5_CONFIG",
)  # fmt: skip
"""files that a worker reads for a bucket or an HDFS; some libraries know ``~`` there"""
_PACKAGES: Final = ("site-packages", "dist-packages")
"""Folders in which Python looks by itself, behind its own modules."""


def elsewhere(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold paths, as a process in another folder must have them.

    An empty entry of PYTHONPATH would be the working folder: it is left out.
    """
    places = {name: os.path.abspath(environment[name]) for name in PATHS if environment.get(name)}
    for name in CREDENTIALS:
        if environment.get(name, "~")[:1] not in ("", "~"):
            places[name] = os.path.abspath(environment[name])
    for name in LISTS:
        if environment.get(name):
            places[name] = ",".join(os.path.abspath(path) for path in environment[name].split(",") if path)
    if "PYTHONPATH" in environment:
        paths = [os.path.abspath(path) for path in environment["PYTHONPATH"].split(os.pathsep) if path]
        places["PYTHONPATH"] = os.pathsep.join(paths)
    return places


def own_environment() -> dict[str, str]:
    """Return the environment of a process of our own: it works in another folder, and runs the package of this process."""
    environment = os.environ | elsewhere(os.environ) | {"PYTHONSAFEPATH": "1"}
    root = os.path.dirname(os.path.dirname(os.path.abspath(version.__file__)))
    if os.path.basename(root) not in _PACKAGES:
        # A script may have found it by a path of its own.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), root]))
    return environment
