"""The answer to a question: which search finds its messages, their fields, and how they are shown."""

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from rocketmq_reindex.jobs.querying import options, search as querying_search, shown
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import ServedMessage
from rocketmq_reindex.storage_format.record import layout as r, meaning
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, FLAG_MULTI_TAGS, FLAG_NEED_UNWRAP, Host, Message
from rocketmq_reindex.storage_format.showing import counted, form
from rocketmq_reindex.udfs.times import show_time

# ----------------------------------------------------------------------------------------------------------------------- fields
# The fields of a message as ``query --json`` gives them, by the names that RocketMQ's tools use.

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
_OFFSETS_MAX: Final = 10


def host_text(host: Host) -> str:
    """Return ``10.0.0.1:10911`` or ``[2001:db8::1]:10911``."""
    import ipaddress

    address = ipaddress.ip_address(host.address)
    return f"[{address}]:{host.port}" if address.version == 6 else f"{address}:{host.port}"


def fields(message: Message, delays: tuple[int, ...], body: bytes = b"", offset: int | None = None) -> dict[str, Any]:
    """Return every field but the body, by the names that RocketMQ's tools use, and what the record means.

    ``delays`` are the milliseconds of each delay level. ``body`` is unpacked; it is needed where ``record.meaning.needs_body``
    says so. ``offset`` is the queue offset at which the message was found.
    """
    flags = [name for bit, name in _FLAGS.items() if message.sys_flag & bit]
    transaction = _TRANSACTIONS.get(message.sys_flag & r.FLAG_TRANSACTION_MASK)
    head: dict[str, Any] = {
        "physicalOffset": message.phy_offset,
        "size": message.size,
        "version": message.version,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
    }
    if offset is not None:
        head["servedAt"] = offset
    return head | {
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
        "meaning": meaning_row(meaning.meaning(message, body, delays)),
    }


def row_of(served: ServedMessage, log: StoreLog, query: options.Query, notes: Notes) -> dict[str, Any]:
    """Return every field of a message, and its body as ``--body`` asks for it."""
    own = shown.told_body(served.message, lambda size: log.body(served.message, size))
    row = fields(served.message, query.delays, own, served.queue_offset)
    if query.body != "none":
        body = shown.read_body(served.message, log, query.body_max, notes)
        row["bodyCrcMatches"] = body.crc
        row["bodyTruncated"] = not body.whole
        row["bodyFormat"], row["body"] = shown.body_value(body.data, query.body)
    return row


# ---------------------------------------------------------------------------------------------------------------------- meaning
# What a record means, in words.


def meaning_row(meant: meaning.Meaning) -> dict[str, Any]:
    """Return what a record means by the names of the columns of ``rocketmq-commitlog``, and ``text``, the same in words."""
    return meant.to_dict() | {"text": _in_words(meant)}


def _in_words(meant: meaning.Meaning) -> str:
    place = meant.place
    queue = f"{place.topic}, queue {place.queue_id}" if place.queue_id is not None else f"{place.topic}"
    of_topic = f" of {place.topic}" if place.topic is not None else ""
    if "pop" in meant.details:
        waits = f"waits in the timer for {queue}: " if meant.kind != meaning.POP else ""
        return waits + _pop_in_words(meant.details["pop"])
    if "recalls" in meant.details:
        return f"recalls the waiting message {meant.details['recalls']} of {place.topic}"
    if meant.kind in (meaning.SCHEDULED, meaning.TIMER):
        until = f" until {show_time(place.deliver_time)}" if place.deliver_time is not None else ""
        return f"waits for {queue}{until}"
    texts = {
        meaning.HALF: f"half message for {queue}: clients get it once it is committed",
        meaning.GIVEN_UP: f"half message for {queue}, which the broker gave up after its checks",
        meaning.OP: f"commit or rollback of half messages of {queue}{_listed(meant.details.get('halfOffsets', []))}",
        meaning.RETRY: f"comes again to group {place.group}{of_topic}, attempt {meant.details.get('attempt')}",
        meaning.DEAD_LETTER: f"dead letter of group {place.group}{of_topic}",
        meaning.POP: "record of POP that cannot be read",
        meaning.TRACE: f"{counted(len(meant.details.get('traces', [])), 'trace record')} of clients",
        meaning.SYSTEM: "record of a topic of the broker's own",
    }
    if meant.kind != meaning.MESSAGE:
        return texts[meant.kind]
    if meant.origin_offset is not None:
        return f"message of a committed transaction: its half message is at offset {meant.origin_offset} of the log"
    light = [queue["queue"] for queue in meant.details.get("lightQueues", [])]
    return f"message, also in the light queues {' '.join(light)}" if light else "message"


def _pop_in_words(pop: dict[str, Any]) -> str:
    place = f"{pop['topic']}, queue {pop['queueId']}{_listed(pop['offsets'])}"
    if pop["record"] == "acknowledgement":
        return f"group {pop['group']} acknowledged by POP {place}"
    return f"group {pop['group']} took by POP {place}, and has until {show_time(pop['reviveTime'])}"


def _listed(offsets: list[int]) -> str:
    """Return queue offsets as words: a run as its ends, of many the first ones."""
    if len(offsets) > 1 and offsets == list(range(offsets[0], offsets[0] + len(offsets))):
        return f", offsets {offsets[0]} to {offsets[-1]}"
    more = f" and {len(offsets) - _OFFSETS_MAX} more" if len(offsets) > _OFFSETS_MAX else ""
    return f", {form(len(offsets), 'offset', 'offsets')} {' '.join(map(str, offsets[:_OFFSETS_MAX]))}{more}"


# ----------------------------------------------------------------------------------------------------------------------- answer


def answer(query: options.Query, search: querying_search.Search) -> Iterator[ServedMessage]:
    """Yield the messages that are asked for, as they are found."""
    if query.queue is not None:
        assert query.topic is not None
        yield from search.by_queue(query.topic, query.queue, query.offset, query.time, query.max or 1)
        return
    if query.id is not None:
        messages = search.by_id(query.id, query.topic)
    elif query.physical is not None:
        messages = search.by_phy_offset(query.physical)
    elif query.tag is not None:
        assert query.topic is not None
        messages = search.by_tag(query.topic, query.tag, query.in_time, query.max)
    else:
        assert query.topic is not None
        assert query.key is not None
        messages = search.by_key(query.topic, query.key, query.in_time, query.max)
    is_found = False
    for message in messages:
        is_found = True
        yield ServedMessage(message, None)
    if not is_found:
        search.say_what_is_unknown(query.topic, query.id, query.tag)


TakeMessages = Callable[[Iterator[ServedMessage], StoreLog, options.Query, Notes], int]
"""Shows or keeps the messages of an answer; returns how many there were"""

# ------------------------------------------------------------------------------------------------------------------------- show
# Messages on stdout: each as a line of JSON, or all of them as a table for people.


def show(served_messages: Iterator[ServedMessage], log: StoreLog, query: options.Query, notes: Notes) -> int:
    """Print what is found as it comes, or a table when all is there. Return the number of messages."""
    rows: list[dict[str, Any]] = []
    count = 0
    for served in served_messages:
        count += 1
        row = row_of(served, log, query, notes)
        if query.json:
            print(shown.to_json(row))
        else:
            rows.append(row if count < 2 else _short(row))
    if rows:
        from rocketmq_reindex.jobs.querying.shown import terminal_width

        if len(rows) > 1:
            rows[0] = _short(rows[0])
        print("\n".join(_table(rows, terminal_width())))
    elif not count and not query.json:
        print("nothing found", file=sys.stderr)
    sys.stdout.flush()
    return count


def rows_text(rows: list[dict[str, Any]]) -> str:
    """Return the table as a text, of any width."""
    return "\n".join(_table(rows if len(rows) == 1 else [_short(row) for row in rows], None)) if rows else "nothing found"


def _table(rows: list[dict[str, Any]], width: int | None) -> list[str]:
    from rocketmq_reindex.jobs.querying.shown import one_lines, row_lines

    return one_lines(rows[0]) if len(rows) == 1 else row_lines(rows, "body", width)


_KEYS_MAX: Final = 60
_PREVIEW: Final = 40


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Return what of a message stands in a table of many."""
    queue = f"{row['topic']}/{row['queueId']}/{row['queueOffset']}"
    served = row.get("servedAt", row["queueOffset"])
    kept = {
        "physicalOffset": row["physicalOffset"],
        "topic/queue/offset": queue if served == row["queueOffset"] else f"{queue} at {served}",
        "storeTime": row["storeTime"],
        "uniqueKey": row["uniqueKey"],
        "keys": _first_keys(row["keys"]),
        "tags": row["tags"],
    }
    if "body" in row:
        kept["body"] = (
            f"{row['bodyLength']} {form(row['bodyLength'], 'byte', 'bytes')}"
            if row["bodyFormat"] == "hex"
            else shown.preview(row, _PREVIEW)
        )
    return kept


def _first_keys(keys: list[str]) -> str | None:
    """Return whole keys, the first alone if it is long, and how many more there are: half a key finds nothing."""
    if not keys:
        return None
    kept = 1
    while kept < len(keys) and sum(map(len, keys[: kept + 1])) + kept <= _KEYS_MAX:
        kept += 1
    return " ".join(keys[:kept]) + (f" ... ({len(keys) - kept} more)" if kept < len(keys) else "")
