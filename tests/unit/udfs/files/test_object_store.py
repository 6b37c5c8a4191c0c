"""A request to a bucket that ends with an error: which answer is told, where the first one hides its reason."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_reindex.udfs.files.object_store import ObjectStore

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
