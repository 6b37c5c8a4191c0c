"""The options of ``rmq-reindex build``, and the settings that they make."""

import json
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.command.broker_conf import numbers_told, read_conf, settings_of, unread, without_given
from rocketmq_reindex.jobs.command.options import reader, watch_environment
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.store.settings import has_bytes, topics_config
from rocketmq_reindex.storage_format import errors, showing, topics as storage_format_topics
from rocketmq_reindex.udfs.times import delay_levels


def build_settings(given: dict[str, Any]) -> BuildSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError, and InputError as ``merged``."""
    values = merged(given)
    if not values["store"] and not values.get("commitlogs"):
        raise errors.UsageError("rmq-reindex build: name a STORE, or --commitlog folders: see --help")
    return BuildSettings(**values).check()


parse_settings: Final = reader("build", build_settings)
"""Return the settings that the arguments behind ``build`` make. Raises as ``build_settings``."""


def merged(given: dict[str, Any]) -> dict[str, Any]:
    """Return what --broker-conf and --topics-config say and, in its place, what is ``given``, by names of settings.

    ``named`` among them says which of the settings that a store's files show were named. Raises UsageError, and InputError
    where --broker-conf names a store that is not there.
    """
    conf, topics = given.pop("broker_conf", None), given.pop("topics_config", None)
    values: dict[str, Any] = {}
    if conf is not None:
        (text, notes), shown = read_conf(conf), showing.escape(conf)
        values = settings_of(text, shown) | {"broker_conf": conf, "conf_notes": notes}
        _check_delay_levels(values)
        values["conf_numbers"] = numbers_told(text, given, shown)
        values["protected"] = tuple(values[name] for name in ("store",) if name in values)
        values = without_given(values, given, shown)
    if topics is not None:
        values["batch_topics"] = read_batch_topics(topics)
    values |= watch_environment()
    values |= {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    values.setdefault("store", "")
    values["named"] = frozenset((*SIZES, "broker_version", "batch_topics", "engine")) & values.keys()
    return values


def _check_delay_levels(conf: dict[str, Any]) -> None:
    """Raise UsageError for delay levels of a broker.conf with which no broker starts. preflight says that by itself."""
    try:
        if "delay_levels" in conf:
            delay_levels(conf["delay_levels"])
    except ValueError as error:
        raise errors.UsageError(f"{showing.escape(conf['broker_conf'])}: messageDelayLevel: {error}") from None


def batch_topics_of(store: str) -> tuple[str, ...]:
    """Return the batch topics of the store's own topics.json; none where it has no such file. Raises InputError."""
    path = topics_config(store)
    try:
        return _batch_topics(path, needed=False)
    except errors.InputError:
        # Of a file that is cut short a broker takes the copy, too.
        if not has_bytes(f"{path}.bak"):
            raise
        return _batch_topics(f"{path}.bak", needed=True)


def read_batch_topics(path: str) -> tuple[str, ...]:
    """Return the batch topics of the topics.json that --topics-config names. Raises UsageError."""
    try:
        return _batch_topics(path, needed=True)
    except errors.InputError as error:
        raise errors.UsageError(f"--topics-config {error}: name a broker's config/topics.json") from None


def _batch_topics(path: str, *, needed: bool) -> tuple[str, ...]:
    """Return the batch topics of a topics.json (``queue.type=BatchCQ``). Raises InputError.

    Who may read the log need not be one who may look into ``config``.
    """
    try:
        if not needed and files.entry_of(path).kind != files.FILE:
            return ()
        return storage_format_topics.batch_topics(files.read_bytes(path, files.CONFIG_MAX).decode("utf-8", "replace"))
    except (OSError, errors.InputError) as error:
        raise errors.InputError(unread(path, error)) from None
    except (ValueError, RecursionError) as error:
        what = "is no JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else showing.escape(str(error))
    raise errors.InputError(f"{showing.escape(path)}: {what}")
