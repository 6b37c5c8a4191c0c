"""The options of ``rmq-reindex query``, the question that they make, and its answer.

Which search finds its messages, their fields, and how they are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.command.broker_conf import given_as, numbers_told, read_conf, settings_of, without_given
from rocketmq_reindex.jobs.querying import search as querying_search, shown
from rocketmq_reindex.jobs.store.contents import IndexSizes, StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import ServedMessage
from rocketmq_reindex.jobs.store.settings import checked_paths, roots_of
from rocketmq_reindex.storage_format import errors, layouts, showing, topics
from rocketmq_reindex.storage_format.index.layout import POSSIBLE, are_possible
from rocketmq_reindex.storage_format.record import layout as r, meaning
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, FLAG_MULTI_TAGS, FLAG_NEED_UNWRAP, Host, Message
from rocketmq_reindex.storage_format.showing import counted, form
from rocketmq_reindex.udfs.times import delay_levels, show_time

# ---------------------------------------------------------------------------------------------------------------------- options


_PLACES: Final = {
    **dict.fromkeys(("offset", "queue_offset", "begin_offset", "end_offset"), layouts.INT64_MAX // 64),
    "queue": layouts.INT32_MAX, "physical": layouts.INT64_MAX,
}  # fmt: skip
"""the largest value of each option that is a place in a store"""


@dataclass(frozen=True)
class Query:
    """One question to a store. Times are in milliseconds since 1970, both ends included; ``roots``: folders of segments."""

    store: str
    roots: tuple[str, ...]
    topic: str | None = None
    key: str | None = None
    tag: str | None = None
    queue: int | None = None
    offset: int | None = None
    time: int | None = None
    id: str | None = None
    physical: int | None = None
    begin: int | None = None
    end: int | None = None
    max: int | None = None
    json: bool = False
    body: str = "text"
    body_max: int = option_table.default_of("body_max")
    scan: bool = False
    sizes: IndexSizes | None = None
    """slots and items of the IndexFiles, where they are given"""
    delays: tuple[int, ...] = delay_levels(option_table.default_of("delay_levels"))
    """milliseconds of each delay level, from 1 on"""
    conf_notes: tuple[str, ...] = ()
    """what is passed over in the file of --broker-conf"""

    def in_time(self, time: int) -> bool:
        return (self.begin is None or time >= self.begin) and (self.end is None or time <= self.end)


def question(given: dict[str, Any]) -> Query:
    """Return the question that options ask, by the parser's names. Raises UsageError, and InputError as ``without_given``."""
    conf, told, notes = dict[str, Any](), dict[str, str](), tuple[str, ...]()
    if "broker_conf" in given:
        path = given.pop("broker_conf")
        (text, notes), shown = read_conf(path), showing.escape(path)
        conf, told = without_given(settings_of(text, shown), given, shown), numbers_told(text, given, shown)
    store = given.pop("store", conf.get("store", ""))
    if not store:
        raise errors.UsageError("rmq-reindex query: name a STORE: see --help")
    store, *commitlogs = checked_paths(store, *given.pop("commitlogs", conf.get("commitlogs", ())))
    named = given.keys() & {"hash_slots", "index_items"}
    slots = given.pop("hash_slots", conf.get("hash_slots"))
    items = given.pop("index_items", conf.get("index_items"))
    if named and None in (slots, items):
        raise errors.UsageError("rmq-reindex query: --hash-slots and --index-items go together")
    # Where a broker.conf has one of them, the files show both.
    sizes = None if slots is None or items is None else IndexSizes(slots, items)
    if sizes is not None and not are_possible(*sizes):
        shown = given_as(told, hash_slots=sizes.slots, index_items=sizes.items)
        raise errors.UsageError(f"{shown}: {POSSIBLE}")
    levels = given.pop("delay_levels", conf.get("delay_levels", option_table.default_of("delay_levels")))
    delays = option.parse_delay_levels(levels)
    return _checked(Query(store, roots_of(store, commitlogs), sizes=sizes, delays=delays, conf_notes=notes, **given))


parse_query: Final = options.reader("query", question)
"""Return the question in the words behind ``query``. Raises as ``question``."""


def place_out_of_range(**places: int | None) -> str:
    """Return which of some places no store can have, by their options' names; "" where all are possible."""
    for name, value in places.items():
        if value is not None and not 0 <= value <= _PLACES[name]:
            return f"--{name.replace('_', '-')} {value} is out of range"
    return ""


def _checked(query: Query) -> Query:
    def refuse(what: str) -> errors.UsageError:
        return errors.UsageError(f"rmq-reindex query: {what}: see --help")

    asked = [name for name in ("key", "tag", "queue", "id", "physical") if getattr(query, name) is not None]
    if len(asked) != 1:
        raise refuse("ask by one of --key, --tag, --queue, --id and --physical")
    if query.topic is None and asked[0] in ("key", "tag", "queue"):
        raise refuse(f"--{asked[0]} needs --topic")
    if query.queue is None and (query.offset is not None or query.time is not None):
        raise refuse("--offset and --time need --queue")
    if query.queue is not None and query.offset is None and query.time is None:
        raise refuse("--queue needs --offset or --time")
    if query.offset is not None and query.time is not None:
        raise refuse("take one of --offset and --time")
    if query.topic is not None and query.queue is not None and topics.path_component(query.topic) is None:
        raise refuse(f"--topic {showing.escape(query.topic)} is not a name that a folder can have")
    if asked[0] not in ("key", "tag") and (query.begin is not None or query.end is not None):
        raise refuse("--begin and --end go with --key or --tag")
    if query.begin is not None and query.end is not None and query.begin > query.end:
        raise refuse(f"--begin {show_time(query.begin)} is later than --end {show_time(query.end)}, so nothing can be found")
    if query.max is not None and query.max < 1:
        raise refuse("--max takes a number above 0")
    if query.body_max < 0:
        raise refuse("--body-max takes a number from 0 on")
    if out_of_range := place_out_of_range(queue=query.queue, offset=query.offset, physical=query.physical):
        raise refuse(out_of_range)
    if "" in (query.topic, query.key, query.tag, query.id):
        raise refuse("a topic, a key, a tag and an id have at least one character")
    return query


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


def row_of(served: ServedMessage, log: StoreLog, query: Query, notes: Notes) -> dict[str, Any]:
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


def answer(query: Query, search: querying_search.Search) -> Iterator[ServedMessage]:
    """Yield the messages that are asked for, as they are found."""
    if query.queue is not None:
        assert query.topic is not None
        yield from search.by_queue(query.topic, query.queue, query.offset, query.time, query.max or 1)
        return
    if query.id is not None:
        messages = search.by_id(query.id, query.topic)
    elif query.physical is not None:
        messages = search.by_phy_offset(query.physical, query.topic)
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


TakeMessages = Callable[[Iterator[ServedMessage], StoreLog, Query, Notes], int]
"""Shows or keeps the messages of an answer; returns how many there were"""

# ------------------------------------------------------------------------------------------------------------------------- show
# Messages on stdout: each as a line of JSON, or all of them as a table for people.


def show(served_messages: Iterator[ServedMessage], log: StoreLog, query: Query, notes: Notes) -> int:
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
