"""What a task hands to the driver: one JSON object for each result, written and read by the same dataclass."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

import pyarrow as pa

from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.udfs import schemas

R = TypeVar("R", bound="Result")


class Result:
    """Base of the dataclasses of results. A field ``tally`` is a ``Tally``; all others hold plain JSON values."""

    def to_json(self) -> str:
        """The fields as one JSON object, in the order of the class."""
        return json.dumps(vars(self), default=_plain)

    @classmethod
    def from_json(cls: type[R], text: str | bytes) -> R:
        """The inverse of ``to_json``."""
        fields = json.loads(text)
        if "tally" in fields:
            fields["tally"] = Tally.from_json(fields["tally"])
        return cls.of_fields(fields)

    @classmethod
    def of_fields(cls: type[R], fields: dict[str, Any]) -> R:
        """The result with these fields, as JSON holds them. A class with dataclasses in its fields overrides this."""
        return cls(**fields)

    @classmethod
    def read(cls: type[R], texts: Iterable[str | bytes]) -> list[R]:
        """The results of all tasks, from what the engine returned."""
        return [cls.from_json(text) for text in texts]


def _plain(value: Any) -> Any:
    return value.to_json() if isinstance(value, Tally) else vars(value)


def batch(results: Iterable[Result]) -> pa.RecordBatch:
    """Results as one record batch of ``schemas.RESULT``."""
    return texts_batch(result.to_json() for result in results)


def texts_batch(texts: Iterable[str]) -> pa.RecordBatch:
    """Plain texts, such as paths, as one record batch of ``schemas.RESULT``."""
    return pa.RecordBatch.from_arrays([schemas.array_of(pa.string(), [text.encode() for text in texts])], schema=schemas.RESULT)
