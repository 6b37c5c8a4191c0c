"""An S3 server on loopback (moto's), and the environment that leads to it. Programs of their own reach it, too."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from urllib.parse import urlencode

BUCKET = "logs"


def environment(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """``s3://BUCKET`` on a server of its own; the environment of this process leads to it meanwhile."""
    # Each process of the tests imports this module; few of them start a server.
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        with bucket_at(server.get_host_and_port()[1]) as found:
            yield found
    finally:
        server.stop()


@contextlib.contextmanager
def bucket_at(port: int) -> Iterator[str]:
    """``s3://BUCKET``, made on the server at ``port``; the environment of this process leads to it meanwhile."""
    from pyarrow import fs

    wanted = environment(port)
    before = {name: os.environ.get(name) for name in (*wanted, "AWS_ENDPOINT_URL_S3")}
    os.environ.update(wanted)
    os.environ.pop("AWS_ENDPOINT_URL_S3", None)
    try:
        options = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "region": "us-east-1"}
        fs.S3FileSystem(allow_bucket_creation=True, **options).create_dir(BUCKET)
        # Systems are kept by URI: a server after this one has another port.
        yield f"s3://{BUCKET}?{urlencode(options)}"
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
