"""Local paths, file:// and s3:// keep to one contract."""

from __future__ import annotations

import pytest

from rocketmq_reindex.files import systems
from tests.stores.contract import FilesContract


class TestLocal(FilesContract):
    @pytest.fixture
    def place(self, local_place: str) -> str:
        return local_place


class TestFileUri(FilesContract):
    @pytest.fixture
    def place(self, file_place: str) -> str:
        return file_place


class TestMount(FilesContract):
    """A mount of an object store, as far as a disk can stand for one: files are written as streams."""

    @pytest.fixture
    def place(self, local_place: str, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setattr(systems, "_MOUNTED", (f"{local_place}/",))
        return local_place


class TestS3(FilesContract):
    odd_names = (*FilesContract.odd_names, "#x", "a:b", "x?y")
    copies = True

    @pytest.fixture
    def place(self, s3_place: str) -> str:
        return s3_place
