"""s3proxy, an S3 server of other makers than AWS and moto, on loopback in a process of its own. Nothing is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.tools.java_server import java_server
from tests.tools.s3_server import bucket_at, environment


@contextlib.contextmanager
def s3proxy_server() -> Iterator[str]:
    """``s3://BUCKET`` on a server of its own; the environment of this process leads to it meanwhile."""
    known = environment(0)
    with (
        java_server("s3proxy", known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"]) as (port,),
        bucket_at(port) as found,
    ):
        yield found
