"""Bodies of the broker's own records: the forms that RocketMQ's classes write, older ones, and what is none of them."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.record.layout import PopRecord, op_offsets, pop_record, trace_records

CHECK_POINT = (
    b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,5],"it":60000,"n":3,"pt":1700000000000,"q":2,"ro":-1,"so":40,"t":"Orders"}'
)
"""As fastjson writes a PopCheckPoint of 5.x: names in order of the alphabet"""


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"21", (21,)),
        (b"4,5,6,", (4, 5, 6)),
        (b"", ()),
        (b"4,x,6,", (4, 6)),
        (b"\xff", ()),
        (b"9223372036854775807,9223372036854775808", (2**63 - 1,)),
    ],
)
def test_op_messages(body: bytes, offsets: tuple[int, ...]) -> None:
    assert op_offsets(body) == offsets


def test_pop_records() -> None:
    found = pop_record(CHECK_POINT, "ck")
    assert found == PopRecord("G", "Orders", 2, 40, (40, 41, 45), 1_700_000_000_000, 60_000, "broker-a")
    assert found.revive_time == 1_700_000_060_000
    older = CHECK_POINT.replace(b'"d":[0,1,5],', b"")
    assert pop_record(older, "ck").offsets == (40, 41, 42)  # type: ignore[union-attr]
    ack = b'{"ao":41,"bn":"broker-a","c":"G","pt":1700000000000,"q":2,"so":40,"t":"Orders"}'
    assert pop_record(ack, "ack") == PopRecord("G", "Orders", 2, 40, (41,), 1_700_000_000_000, 0, "broker-a")
    batch = b'{"aol":[40,45],"bn":"broker-a","c":"G","pt":1700000000000,"q":2,"so":40,"t":"Orders"}'
    assert pop_record(batch, "bAck").offsets == (40, 45)  # type: ignore[union-attr]
    long_names = b'{"ackOffset":41,"consumerGroup":"G","popTime":17,"queueId":2,"startOffset":40,"topic":"Orders"}'
    assert pop_record(long_names, "ack") == PopRecord("G", "Orders", 2, 40, (41,), 17, 0, "")


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"nonsense", b"[" * 10_000, b'{"so":1}', CHECK_POINT[:-1], b"\xff\xfe"])
@pytest.mark.parametrize("tag", ["ck", "ack", "bAck", None])
def test_what_says_nothing_of_pop(body: bytes, tag: str | None) -> None:
    assert pop_record(body, tag) is None


SEEN_FIRST = {"traceType": "Pub", "timeStamp": 1_700_000_000_000, "regionId": "DefaultRegion", "groupName": "P", "topic": "T",
              "msgId": "7F00", "tags": "", "keys": "k1 k2", "storeHost": "127.0.0.1:10911", "bodyLength": 5,
              "costTime": 3, "msgType": "Trans_Msg_Half"}  # fmt: skip
PUB = "Pub\x011700000000000\x01DefaultRegion\x01P\x01T\x017F00\x01\x01k1 k2\x01127.0.0.1:10911\x015\x013\x011"


@pytest.mark.parametrize(
    ("text", "traces"),
    [
        ("", []),
        (f"{PUB}\x01ID\x01true\x02", [SEEN_FIRST | {"offsetMsgId": "ID", "success": True}]),
        (f"{PUB}\x01true\x02", [SEEN_FIRST | {"success": True}]),
        (
            f"{PUB}\x01null\x01false\x0110.0.0.1\x02",
            [SEEN_FIRST | {"offsetMsgId": None, "success": False, "clientHost": "10.0.0.1"}],
        ),
        (
            "SubBefore\x0117\x01\x01G\x01R\x01ID\x012\x01\x02SubAfter\x01R\x01ID\x014\x01true\x01k\x010\x0118\x01G\x02",
            [
                {"traceType": "SubBefore", "timeStamp": 17, "regionId": "", "groupName": "G", "requestId": "R", "msgId": "ID",
                 "retryTimes": 2, "keys": ""},
                {"traceType": "SubAfter", "requestId": "R", "msgId": "ID", "costTime": 4, "success": True, "keys": "k",
                 "contextCode": 0, "timeStamp": 18, "groupName": "G"},
            ],
        ),
        (
            "SubAfter\x01R\x01ID\x014\x01false\x01k\x013\x01\x02",
            [{"traceType": "SubAfter", "requestId": "R", "msgId": "ID", "costTime": 4, "success": False, "keys": "k",
              "contextCode": 3}],
        ),
        (
            "EndTransaction\x0117\x01R\x01P\x01T\x01ID\x01tag\x01k\x01h:1\x012\x01X\x01ROLLBACK_MESSAGE\x01true\x02",
            [{"traceType": "EndTransaction", "timeStamp": 17, "regionId": "R", "groupName": "P", "topic": "T", "msgId": "ID",
              "tags": "tag", "keys": "k", "storeHost": "h:1", "msgType": "Trans_msg_Commit", "transactionId": "X",
              "transactionState": "ROLLBACK_MESSAGE", "fromTransactionCheck": True}],
        ),
        (
            "Recall\x0117\x01R\x01P\x01T\x01ID\x01true\x02",
            [{"traceType": "Recall", "timeStamp": 17, "regionId": "R", "groupName": "P", "topic": "T", "msgId": "ID",
              "success": True}],
        ),
        ("Pub\x01x\x02Other\x011\x02", [{"traceType": None, "text": "Pub\x01x"}, {"traceType": None, "text": "Other\x011"}]),
        ("Recall\x01soon\x01R\x01P\x01T\x01ID\x01true\x02", [
            {"traceType": None, "text": "Recall\x01soon\x01R\x01P\x01T\x01ID\x01true"},
        ]),
    ],
)  # fmt: skip
def test_traces(text: str, traces: list[dict[str, object]]) -> None:
    assert trace_records(text) == traces
