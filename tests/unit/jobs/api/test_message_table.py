"""Query results in notebooks: the messages as HTML, as Arrow and as pandas tables."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import rocketmq_reindex as rr

UTC = dt.timezone.utc
FIELDS: dict[str, Any] = {
    "physicalOffset": 819_177_644, "size": 200, "version": 1, "topic": "TopicA", "queueId": 1, "queueOffset": 7,
    "storeTimestamp": 1_700_000_000_123, "storeTime": "2023-11-14T22:13:20.123Z", "storeHost": "10.0.0.1:10911",
    "bornTimestamp": 1_700_000_000_001, "bornTime": "2023-11-14T22:13:20.001Z", "bornHost": "10.0.0.2:1",
    "msgId": "0A00000100002A9F0000000030D3A2EC", "uniqueKey": "U1", "keys": ["k1", "k2"], "tags": None,
    "reconsumeTimes": 0, "properties": {"KEYS": "k1 k2"}, "bodyLength": 5,
    "bodyFormat": "text", "bodyTruncated": False, "body": "hello",
}  # fmt: skip


def result(*rows: dict[str, Any], warnings: tuple[str, ...] = ()) -> rr.QueryResult:
    return rr.QueryResult(tuple(rr.FoundMessage(FIELDS | row) for row in rows), warnings)


def test_fields_of_a_message() -> None:
    message = result({})[0]
    assert (message.unique_key, message.msg_id) == ("U1", FIELDS["msgId"])
    assert message.store_time == dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert message.born_time == dt.datetime(2023, 11, 14, 22, 13, 20, 1_000, UTC)
    odd = result({"uniqueKey": None, "storeTimestamp": 2**63 - 1, "bornTimestamp": -(2**63)})[0]
    assert (odd.unique_key, odd.store_time, odd.born_time) == (None, None, None)


def test_a_table_has_real_times() -> None:
    table = result({}, {"storeTimestamp": 2**63 - 1, "servedAt": 9}).to_arrow()
    assert table.schema.field("store_time").type == pa.timestamp("us", "UTC")
    assert table["store_time"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, None]
    assert table["served_at"].to_pylist() == [None, 9]
    assert table["keys"].to_pylist() == [["k1", "k2"]] * 2
    frame = result({}).to_pandas()
    assert str(frame["store_time"].dtype).endswith("UTC]")
    assert frame["store_time"][0].to_pydatetime() == result({})[0].store_time
    assert frame["properties"][0] == {"KEYS": "k1 k2"}


def test_nothing_found_has_the_same_columns() -> None:
    assert result().to_arrow().schema == result({}).to_arrow().schema
    assert list(result().to_pandas().columns) == list(result({}).to_pandas().columns)


@pytest.mark.parametrize(
    ("body", "shown"), [("\ud800x", "?x"), ({"a": [1]}, '{"a": [1]}'), (None, None)], ids=["surrogate", "json", "null"]
)
def test_any_body_fits_into_the_table(body: object, shown: str | None) -> None:
    assert result({"body": body}).to_arrow()["body"].to_pylist() == [shown]


def test_without_bodies() -> None:
    fields = {name: value for name, value in FIELDS.items() if not name.startswith("body")} | {"bodyLength": 5}
    found = rr.QueryResult((rr.FoundMessage(fields),), ())
    assert found.to_arrow()["body"].to_pylist() == [None]
    assert "TopicA" in found._repr_html_()


def test_html_shows_the_messages() -> None:
    text = result({}, {"body": "<script>", "queueOffset": 8}, warnings=("<b>",))._repr_html_()
    for part in ("2 messages", "819177644", "2023-11-14T22:13:20.123Z", "U1", "k1 k2", "hello", "&lt;script&gt;", "&lt;b&gt;"):
        assert part in text
    assert "<script>" not in text
    assert "<b>" not in text
    assert "5 more messages" in result(*[{}] * 25)._repr_html_()


def test_rr_sql_is_a_module_with_register() -> None:
    assert callable(rr.sql.register)
