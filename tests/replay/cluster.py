"""A real broker with a proxy before it, to which messages are replayed, and what it has stored of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from tests.delayed.life import UNREAD
from tests.serving.programs import PATIENCE, Program

VERSION = "5.5.0"
ORIGIN = "reindex_origin_"
IN_ORDER = "in-order"
"""a group that consumes in order"""


class Cluster:
    """A broker of 5.5.0 on a new store, with ``topics`` of some type of messages, and a proxy; the ``with`` block ends them."""

    def __init__(self, scratch: Path, topics: Mapping[str, str]) -> None:
        self.store, self._scratch = scratch / "target", scratch
        config(self.store, topics)
        groups = {IN_ORDER: {"groupName": IN_ORDER, "consumeMessageOrderly": True}}
        (self.store / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
        self._topics = topics
        self._program = Program(VERSION, "Proxied", scratch, heap="1g")
        try:
            settings = "mappedFileSizeCommitLog=16777216,mappedFileSizeConsumeQueue=600000,maxMessageSize=1000000"
            settings += ",flushConsumerOffsetInterval=1000,enableLmq=true,enableMultiDispatch=true"
            settings += "".join(f",{name}={value}" for name, value in UNREAD.items())
            self.name_server = self._program.step("boot", "target", self.store, "--timer-wheel", "--set", settings)
            self.certificate, key = _certificate(scratch)
            self.address = f"127.0.0.1:{self._program.step('proxy', self.certificate, key)}"
        except BaseException:
            self._program.kill()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()

    def stored(self, *topics: str) -> list[dict[str, Any]]:
        """The messages of topics, in the order of their queues; a consumer is given just these."""
        batches = rr.messages(self.store, topics=topics, damage="skip")
        rows = [row | {"properties": dict(row["properties"])} for batch in batches for row in batch.to_pylist()]
        assert {row["commitLogOffset"] for row in rows} == self._pulled(topics)
        return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["consumeQueueOffset"]))

    def _pulled(self, topics: tuple[str, ...]) -> set[int]:
        out = self._scratch / "pulled"
        self._program.step("pull", out, *topics)
        places = [int(place) for line in out.read_text().splitlines() for place in line.split("\t")[6::2]]
        assert len(places) == len(set(places))
        return set(places)


def config(store: Path, topics: Mapping[str, str]) -> None:
    """Make the topics of a new store, each with the type of its messages."""
    (store / "config").mkdir(parents=True)
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
               "topicSysFlag": 0, "order": False, "attributes": {"message.type": kind} if kind else {}}
        for name, kind in topics.items()
    }  # fmt: skip
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1, which vouches for itself, and of its key."""
    key, now = rsa.generate_private_key(public_exponent=65537, key_size=2048), dt.datetime.now(dt.timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "proxy")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "proxy.pem", folder / "proxy.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pkcs8 = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption()))
    return certificate, secret


def origin(row: Mapping[str, Any]) -> dict[str, str]:
    """Where a replayed message says it comes from."""
    return {name.removeprefix(ORIGIN): value for name, value in row["properties"].items() if name.startswith(ORIGIN)}


def start(*words: str | Path, **more: str) -> subprocess.Popen[str]:
    """Begin a replay in a process of its own."""
    command = [sys.executable, "-m", "rocketmq_reindex", "replay", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | more, start_new_session=True
    )


def replay(*words: str | Path, **more: str) -> tuple[int, dict[str, Any], str]:
    """Replay; the exit status, the result, and what was said on stderr.

    In this process, which has imported all that it takes, unless the environment is to have more.
    """
    if more:
        process = start(*words, "--json", **more)
        told, said = process.communicate(timeout=PATIENCE)
        return process.returncode, json.loads(told) if told else {}, said
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["replay", *map(str, words), "--json"])
    return status, json.loads(out.getvalue() or "{}"), err.getvalue()
