"""A request to a bucket that ends with an error: which answer is told, where the first one hides its reason."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rocketmq_reindex.files.object_store import ObjectFile, ObjectStore

HIDDEN = "AWS Error UNKNOWN (HTTP status 403) during GetObject operation: Failed to flush response stream"


class Answers:
    """The requests of a store that all end with one error."""

    def __init__(self, said: str) -> None:
        self.said = said

    def get_file_info(self, what: Any) -> None:
        raise OSError(f"{what}: {self.said}")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("AWS Error ACCESS_DENIED during HeadObject operation: Key is revoked.", "Key is revoked (ACCESS_DENIED, HeadObject)"),
        # Of a fault that passes, this one says nothing of the request before it.
        ("AWS Error SLOW_DOWN during HeadObject operation: Wait.", "GetObject ended with HTTP status 403 and no reason"),
    ],
)
def test_a_reason_that_was_hidden_is_asked_for(said: str, told: str) -> None:
    def read() -> None:
        raise OSError(HIDDEN)

    store: Any = Answers(said)
    with pytest.raises(OSError, match="bucket/key") as raised:
        ObjectStore(store, store, "s3").do("bucket/key", read)
    assert str(raised.value.strerror).startswith(told)


class Short:
    """An open object of ten bytes whose first answer breaks off."""

    def __init__(self) -> None:
        self.asked = 0

    def size(self) -> int:
        return 10

    def seek(self, at: int) -> None:
        assert at == 2

    def read_at(self, count: int, at: int) -> bytes:
        self.asked += 1
        return b"0123456789"[at : at + count][: 3 if self.asked == 1 else count]

    def readinto(self, view: memoryview) -> int:
        data = self.read_at(len(view), 2)
        view[: len(data)] = data
        return len(data)


def test_an_answer_that_breaks_off_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a fault of the network, which it is."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    store: Any = Answers("")
    for into in (False, True):
        short, view = Short(), bytearray(6)
        file = ObjectFile(short, "bucket/key", ObjectStore(store, store, "s3"))
        file.seek(2)
        found = bytes(view[: file.readinto(memoryview(view))]) if into else file.read_at(6, 2)
        assert (bytes(view) if into else found, short.asked) == (b"234567", 2)
