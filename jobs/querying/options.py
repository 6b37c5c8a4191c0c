"""The options of ``rmq-reindex query``, and the question that they make."""

from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.command.broker_conf import given_as, numbers_told, read_conf, settings_of, without_given
from rocketmq_reindex.jobs.store.contents import IndexSizes
from rocketmq_reindex.jobs.store.settings import checked_paths, roots_of
from rocketmq_reindex.storage_format import errors, layouts, showing, topics
from rocketmq_reindex.storage_format.index.header import POSSIBLE, are_possible
from rocketmq_reindex.udfs.times import delay_levels, show_time

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
