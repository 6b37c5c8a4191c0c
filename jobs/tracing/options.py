"""The options of ``rmq-reindex trace``, and which message they ask for, in which stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.querying.options import place_out_of_range
from rocketmq_reindex.jobs.store.settings import roots_of
from rocketmq_reindex.storage_format import errors, showing, topics


@dataclass(frozen=True)
class TracedStore:
    """A store to look in, and how its lines are marked."""

    name: str
    path: str
    commitlogs: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of segments."""
        return roots_of(self.path, self.commitlogs)


@dataclass(frozen=True)
class Trace:
    """Which message is traced: by ``key``, ``id``, ``unique_key``, ``queue`` with ``queue_offset``, or ``physical``."""

    stores: tuple[TracedStore, ...]
    topic: str | None = None
    key: str | None = None
    id: str | None = None
    unique_key: str | None = None
    queue: int | None = None
    queue_offset: int | None = None
    physical: int | None = None
    max: int = option_table.default_of("max", "trace")
    scan: bool = False
    json: bool = False
    html: str | None = None
    delays: tuple[int, ...] = ()
    """milliseconds of each delay level, from 1 on"""


def trace_settings(given: Mapping[str, Any]) -> Trace:
    """Return what options ask for, by the parser's names. Raises UsageError."""
    values = dict(given)
    named = list(values.pop("stores", ()))
    commitlogs = tuple(map(_place, values.pop("commitlogs", ())))
    if not named:
        raise errors.UsageError("rmq-reindex trace: name a store: --store STORE, or --store NAME=STORE for each of several")
    if commitlogs and len(named) > 1:
        raise errors.UsageError("rmq-reindex trace: --commitlog goes with one --store")
    stores = [_store(text, commitlogs) for text in named]
    if len({store.name for store in stores}) < len(stores):
        raise errors.UsageError("rmq-reindex trace: two stores have one name: give each its own, as --store a=STORE")
    levels = values.pop("delay_levels", option_table.default_of("delay_levels"))
    return _checked(Trace(tuple(stores), delays=option.parse_delay_levels(levels), **values))


parse_trace: Final = options.reader("trace", trace_settings)
"""Return what the words behind ``trace`` ask for. Raises UsageError."""


def _store(text: str, commitlogs: tuple[str, ...]) -> TracedStore:
    name, equals, path = text.partition("=")
    if not equals or "/" in name:
        # A path may hold an equals sign.
        path = text
        name = files.base(text.rstrip("/")) or "store"
    if not path or not name:
        raise errors.UsageError(f"--store {showing.escape(text)}: give NAME=STORE, or STORE alone")
    return TracedStore(name, _place(path), commitlogs)


def _place(path: str) -> str:
    try:
        return files.checked(files.plain(path))
    except errors.InputError as error:
        raise errors.UsageError(f"--store {error}") from None


def _checked(trace: Trace) -> Trace:
    def refuse(what: str) -> errors.UsageError:
        return errors.UsageError(f"rmq-reindex trace: {what}: see --help")

    asked = [name for name in ("key", "id", "unique_key", "queue", "physical") if getattr(trace, name) is not None]
    if len(asked) != 1:
        raise refuse("ask by one of --key, --id, --unique-key, --queue and --physical")
    if trace.topic is None and asked[0] in ("key", "queue"):
        raise refuse(f"--{asked[0]} needs --topic")
    if (trace.queue is None) != (trace.queue_offset is None):
        raise refuse("--queue and --queue-offset go together")
    if trace.topic is not None and trace.queue is not None and topics.path_component(trace.topic) is None:
        raise refuse(f"--topic {showing.escape(trace.topic)} is not a name that a folder can have")
    if trace.physical is not None and len(trace.stores) > 1:
        raise refuse("--physical goes with one --store")
    if wrong := place_out_of_range(queue=trace.queue, queue_offset=trace.queue_offset, physical=trace.physical):
        raise refuse(wrong)
    if trace.max < 1:
        raise refuse("--max takes a number above 0")
    if "" in (trace.topic, trace.key, trace.id, trace.unique_key):
        raise refuse("a topic, a key and an id have at least one character")
    return trace
