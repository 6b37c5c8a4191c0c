"""The fields of a message as ``query --json`` gives them, by the names that RocketMQ's tools use."""

from __future__ import annotations

from typing import Any, Final

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.querying.bodies import body_value, read_body
from rocketmq_reindex.jobs.querying.found import Found
from rocketmq_reindex.jobs.querying.options import Query
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, FLAG_MULTI_TAGS, FLAG_NEED_UNWRAP, Host, Message

_FLAGS: Final = {
    FLAG_COMPRESSED: "compressed",
    FLAG_MULTI_TAGS: "multi-tags",
    FLAG_NEED_UNWRAP: "need-unwrap",
    r.FLAG_INNER_BATCH: "inner-batch",
}
_TRANSACTIONS: Final = {
    r.TRANSACTION_PREPARED: "prepared",
    r.TRANSACTION_COMMIT: "commit",
    r.TRANSACTION_ROLLBACK: "rollback",
}


def host_text(host: Host) -> str:
    """``10.0.0.1:10911`` or ``[2001:db8::1]:10911``."""
    import ipaddress

    address = ipaddress.ip_address(host.address)
    return f"[{address}]:{host.port}" if address.version == 6 else f"{address}:{host.port}"


def fields(message: Message, offset: int | None = None) -> dict[str, Any]:
    """Every field but the body, by the names that RocketMQ's tools use."""
    flags = [name for bit, name in _FLAGS.items() if message.sys_flag & bit]
    transaction = _TRANSACTIONS.get(message.sys_flag & r.FLAG_TRANSACTION_MASK)
    found: dict[str, Any] = {
        "physicalOffset": message.phy_offset,
        "size": message.size,
        "version": message.version,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
    }
    if offset is not None:
        found["servedAt"] = offset
    return found | {
        "storeTimestamp": message.store_time,
        "storeTime": show_time(message.store_time),
        "storeHost": host_text(message.store_host),
        "bornTimestamp": message.born_time,
        "bornTime": show_time(message.born_time),
        "bornHost": host_text(message.born_host),
        "msgId": message.message_id,
        "uniqueKey": message.unique_key,
        "keys": message.keys,
        "tags": message.tags,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "kinds": flags + ([transaction] if transaction else []),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_offset,
        "properties": message.properties,
        "bodyLength": message.body_size,
        "bodyCrc": message.body_crc,
        "compression": message.compression,
    }


def row_of(found: Found, log: StoreLog, asked: Query, notes: Notes) -> dict[str, Any]:
    """Every field of a message, and its body as ``--body`` asks for it."""
    row = fields(*found)
    if asked.body != "none":
        body = read_body(found.message, log, asked.body_max, notes)
        row["bodyCrcMatches"] = body.crc
        row["bodyTruncated"] = not body.whole
        row["bodyFormat"], row["body"] = body_value(body.data, asked.body)
    return row
