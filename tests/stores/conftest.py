"""A store behind a URI of its own for each test; the servers are started once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_reindex import files
from tests.stores.tables_session import Started, started_session
from tests.tools.hdfs_server import hdfs_server
from tests.tools.s3_server import BUCKET, s3_server

Place = Callable[[], str]
"""A folder of one's own, as a URI; nothing is there yet."""


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    with s3_server() as found:
        yield found


@pytest.fixture(scope="session")
def hdfs_uris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The same HDFS as webhdfs:// and as hdfs://."""
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture(scope="session")
def hdfs(hdfs_uris: tuple[str, str]) -> str:
    return hdfs_uris[0]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with started_session(tmp_path_factory.mktemp("jvm")) as found:
        yield found


@pytest.fixture
def s3_place(bucket: str) -> str:
    return files.join(bucket, uuid.uuid4().hex)


@pytest.fixture
def hdfs_place(hdfs: str) -> str:
    return files.join(hdfs, uuid.uuid4().hex)


@pytest.fixture
def local_place(tmp_path: Path) -> str:
    return str(tmp_path / "place")


@pytest.fixture
def file_place(tmp_path: Path) -> str:
    return (tmp_path / "place").as_uri()


@pytest.fixture
def bucket_by_environment(bucket: str) -> str:
    """A place whose endpoint the environment alone tells of. Another server has another region, as far as connections know."""
    port = bucket.partition("%3A")[2].partition("&")[0]
    return f"s3://{BUCKET}/{uuid.uuid4().hex}?region=server-{port}"
