"""Topics, groups and consumer offsets of a store: from ``config/``'s files, or the databases in which a broker keeps them.

Which a broker reads, its settings say, and a store does not have these. So what counts is worked out from the data versions, as
a broker does that starts with both, and said wherever the two differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.jobs.store.folders import Notes, entries_in
from rocketmq_reindex.jobs.store.settings import broker_config, rocksdb_queues
from rocketmq_reindex.storage_format import layouts, topics as config_tables
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import counted, escape, listed, reason
from rocketmq_reindex.storage_format.topics import DEFAULT, NUMBERED, PARTS, SHARED, TOPICS, Decoded, Part, is_lite, stamp_of


class Kept(NamedTuple):
    """A table as a broker has it: the file or database that it is from, its JSON object, and whether that is a database."""

    path: str
    said: dict[str, Any]
    in_rocksdb: bool


# ------------------------------------------------------------------------------------------------------------------- a database


def is_database(folder: str) -> bool:
    """Return whether a folder holds RocksDB's files. Raises OSError where it cannot be listed."""
    return bool(layouts.rocksdb_files(entry.name for entry in entries_in(folder) if entry.kind == files.FILE))


def read_folder(folder: str) -> dict[Part, Decoded] | None:
    """Return the tables of a database, read-only; None where it is not one of topics, groups or offsets.

    Raises InputError where it cannot be read.
    """
    with Database(folder) as database:
        families = database.families
        first = database.first(DEFAULT, b"", b"\xff" * 8)
        if config_tables.is_numbered(families, None if first is None else first[0]):
            return {
                part: config_tables.by_numbers(part, database.pairs(DEFAULT, *config_tables.numbered_range(part.table_id)))
                for part in PARTS
            }
        shared = [part for part in PARTS if part.family in families]
        if shared or files.base(folder) == SHARED:
            return {part: _named(database, part, part.family) for part in shared}
        alone = config_tables.part_of(files.base(folder), None if first is None else first[1])
        if alone is None or "offset" in families:
            return None
        return {alone: _named(database, alone, DEFAULT)}


def _named(database: Database, part: Part, family: str) -> Decoded:
    version, families = config_tables.version_family(family), database.families
    stamp = database.get(version, config_tables.VERSION_KEY) if version in families else None
    has_forbidden = part is config_tables.GROUPS and config_tables.FORBIDDEN in families
    forbidden = database.pairs(config_tables.FORBIDDEN) if has_forbidden else ()
    return config_tables.by_names(part, database.pairs(family), stamp, forbidden)


# ---------------------------------------------------------------------------------------------------------------------- a store


def places(store: str, part: Part) -> list[str]:
    """Return the databases of a store that may hold a part: that of all parts, that of this one, that of v2.

    None where nobody may look into ``config``: who reads its files of JSON says so.
    """
    named = [files.join(store, layouts.CONFIG, name) for name in (SHARED, part.folder, NUMBERED)]
    try:
        return [folder for folder in named if is_database(folder)]
    except OSError:
        return []


def databases_of(store: str, part: Part) -> list[Kept]:
    """Return a part from each database of a store that a broker may read. Raises InputError for one that cannot be read.

    With ConsumeQueue files alone, and a file of JSON, that is none but the one of v2, as in ``kept``.
    """
    folders = places(store, part)
    # Where nobody may look into config there are none, and its files cannot be asked for.
    has_file = bool(folders) and files.entry_of(broker_config(store, part.file)).kind == files.FILE
    if has_file and _has_files_alone(store):
        folders = [folder for folder in folders if files.base(folder) == NUMBERED]
    tables = ((folder, _decoded(folder, part)) for folder in folders)
    return [Kept(folder, decoded.said, True) for folder, decoded in tables if decoded is not None]


def unread_topics(store: str) -> str:
    """Return why a database that may count for the topics of a store cannot be read; "" where there is none such."""
    try:
        databases_of(store, TOPICS)
    except InputError as error:
        return str(error)
    return ""


def _decoded(folder: str, part: Part) -> Decoded | None:
    """Return a part of a database; None where it does not have it. Raises InputError where it cannot be read."""
    try:
        return (read_folder(folder) or {}).get(part)
    except OSError as error:
        raise InputError(f"{escape(folder)}: {error}") from None


def kept(store: str, part: Part, own: Kept | None, notes: Notes) -> Kept | None:
    """Return what counts of a part: ``own``, its file of JSON, or a database; None where there is neither.

    What cannot be read is a note, and so is where both are there and differ.
    """
    found = [table for folder in places(store, part) if (table := _read(folder, part, notes)) is not None]
    numbered = [table for table in found if files.base(table.path) == NUMBERED]
    best = own
    for table in reversed([table for table in found if table not in numbered]):
        best = table if best is None else _named_or_before(store, part, table, best, notes)
    for table in numbered:
        best = table if best is None else _numbered_or_before(part, table, best, notes)
    return best


def _read(folder: str, part: Part, notes: Notes) -> Kept | None:
    try:
        decoded = _decoded(folder, part)
    except InputError as error:
        notes.add("in RocksDB", f"{error}: the {part.named} in it are not known", lost=False)
        return None
    if decoded is None:
        return None
    if decoded.broken:
        names = listed([escape(name, 60) for name in decoded.broken[:3]])
        wrong = f"{counted(len(decoded.broken), 'entry', 'entries')} cannot be read, such as {names}: passed over"
        notes.add("in RocksDB", f"{escape(folder)}: {wrong}", lost=False)
    return Kept(folder, decoded.said, True)


def _named_or_before(store: str, part: Part, table: Kept, before: Kept, notes: Notes) -> Kept:
    """Return which counts: a database, or what a broker takes into it (``merge``, ``migrateFromSeparateRocksDBs``, 5.3 to 5.5).

    It takes in what has a higher counter. Of a file it keeps the other entries, but for offsets.
    """
    counters = stamp_of(table.said, "counter"), stamp_of(before.said, "counter")
    if not before.in_rocksdb and _has_files_alone(store):
        _tell(part, before, table, "its ConsumeQueues are files: a broker with storeType=default reads no such database", notes)
        return before
    if counters[1] <= counters[0]:
        _tell(part, table, before, f"its data version is {counters[0]}, and the other's {counters[1]} is not higher", notes)
        return table
    _tell(part, before, table, f"its data version {counters[1]} is above the other's {counters[0]}", notes)
    if part is config_tables.OFFSETS and not before.in_rocksdb:
        return before
    both = {**_table(table, part), **_table(before, part)}
    return before._replace(said={**before.said, part.table: both})


def _numbered_or_before(part: Part, table: Kept, before: Kept, notes: Notes) -> Kept:
    """Return which counts: a database of v2, or what a broker without ``configManagerVersion=v2`` reads. None takes in both."""
    times = stamp_of(table.said, "timestamp"), stamp_of(before.said, "timestamp")
    one, other = (before, table) if times[1] > times[0] else (table, before)
    _tell(part, one, other, "it was written later; which one a broker reads, its configManagerVersion says", notes)
    return one


def _tell(part: Part, one: Kept, other: Kept, why: str, notes: Notes) -> None:
    if _table(one, part) != _table(other, part):
        text = f"{escape(other.path)}: has other {part.named} than {escape(one.path)}, which counts: {why}"
        notes.add("in RocksDB", text, lost=False)


def _table(table: Kept, part: Part) -> Mapping[str, Any]:
    entries = table.said.get(part.table)
    return entries if isinstance(entries, dict) else {}


def _has_files_alone(store: str) -> bool:
    """Return whether a store has ConsumeQueue files, and none in RocksDB. Raises InputError where nobody may look."""
    try:
        queues = rocksdb_queues(store)
        folders = (entry.kind == files.FOLDER for entry in entries_in(files.join(store, layouts.QUEUES)))
        return queues is None and any(folders)
    except OSError as error:
        raise InputError(
            f"{escape(store)}: its ConsumeQueues cannot be listed ({reason(error)}), so which of its topics, groups and "
            "offsets count is not known"
        ) from None


def topics(store: str, notes: Notes) -> Kept | None:
    """Return the topics of a store (``{"topicConfigTable": ...}``) where some are in a database; None where all is in files.

    Of a file that cannot be read nothing counts, and its reader says so.
    """
    if not places(store, TOPICS):
        return None
    own = _topics_file(store)
    found = kept(store, TOPICS, own, notes)
    return None if found is own else found


def topics_named(store: str) -> str:
    """Return which file or folder of ``config/`` has the topics that count, or would have them."""
    found = topics(store, Notes.silent())
    return TOPICS.file if found is None else files.base(found.path)


def _topics_file(store: str) -> Kept | None:
    path = broker_config(store, TOPICS.file)
    try:
        if files.entry_of(path).kind == files.FILE:
            said = layouts.loads(files.read_bytes(path, files.CONFIG_MAX).decode("utf-8", "replace"))
            return Kept(path, said, False) if isinstance(said, dict) else None
    except (OSError, InputError, ValueError, RecursionError):
        pass
    return None


def topic_names(store: str) -> frozenset[str] | None:
    """Return the topics of STORE/config/topics.json, or of its database; None where neither can be read."""
    if (found := topics(store, Notes.silent())) is not None:
        return frozenset(found.said[TOPICS.table])
    try:
        return config_tables.topic_names(
            files.read_bytes(broker_config(store, TOPICS.file), files.CONFIG_MAX).decode("utf-8", "surrogateescape")
        )
    except (OSError, InputError, ValueError, RecursionError):
        return None


def lite_topics(store: str) -> list[str]:
    """Return the topics of a store whose messages are for light queues, sorted (``message.type`` LITE, 5.5); none where a
    store has no topics that can be read: ``unread_topics`` says why."""
    table = topics(store, Notes.silent()) or _topics_file(store)
    entries = _table(table, TOPICS).items() if table is not None else ()
    # No record is of a name that is no Unicode: String.getBytes makes "?" of half a surrogate pair.
    return sorted(name for name, config in entries if is_lite(config) and name == name.encode("utf-8", "ignore").decode())
