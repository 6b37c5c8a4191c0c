"""Topics, groups and consumer offsets that a broker keeps in RocksDB, as the JSON of its files in ``config/``.

There are three forms. With ``storeType=defaultRocksDB`` each of the three has a database (``RocksDBConfigManager``, 5.3),
or all share one (``useSingleRocksDBForAllConfigs``, 5.5): a key is a name, and a value JSON. With ``configManagerVersion=v2``
all are in one family of one database, under binary keys (``org.apache.rocketmq.broker.config.v2``, 5.3.3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format.text import java_string

Pairs = Iterable[tuple[bytes, bytes]]


class Part(NamedTuple):
    """One of the three: its file of JSON and the table there, its own folder, its family in a shared one, its id of v2."""

    file: str
    table: str
    folder: str
    family: str
    table_id: int
    named: str
    """what an entry of the table is, in words"""


TOPICS: Final = Part("topics.json", "topicConfigTable", "topics", "topic", 3, "topics")
GROUPS: Final = Part("subscriptionGroup.json", "subscriptionGroupTable", "subscriptionGroups", "subscriptionGroup", 4, "groups")
OFFSETS: Final = Part("consumerOffset.json", "offsetTable", "consumerOffsets", "consumerOffset", 1, "consumer offsets")
PARTS: Final = (TOPICS, GROUPS, OFFSETS)
SHARED, NUMBERED = "metadata", "rdb"
"""The folders in ``config/`` of a database that all share, and of that of v2."""
DEFAULT: Final = "default"
FORBIDDEN, FORBIDDEN_TABLE = "forbidden", "forbiddenTable"
"""The family, and the table in the groups' file, of what a group may not read; v2 has none."""
VERSION_KEY: Final = b"kvDataVersionKey"
_HEAD: Final = struct.Struct(">BHB")
"""the begin of a key of v2: a mark of tables, the table, the kind of record"""
_TABLE, _VERSION, _DATA = 1, 1, 2
_LENGTH: Final = struct.Struct(">H")
_MARK: Final = b"\x01"
_QUEUE: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_STAMP: Final = struct.Struct(">qqq")
_JSON: Final = 1
"""``SerializationType.JSON``, the only one that is written"""


class Decoded(NamedTuple):
    """The JSON object of a file in ``config/``, and the names of entries that could not be read."""

    said: dict[str, Any]
    broken: list[str]


def version_family(family: str) -> str:
    """Return the family with the data version of a family (``RocksDBConfigManager``, 5.3.3 and 5.5.1)."""
    return "kvDataVersion" if family == DEFAULT else f"{family}Version"


def is_numbered(families: Iterable[str], first_key: bytes | None) -> bool:
    """Return whether a database is one of v2, by its families and its first key. No name of a topic or group begins so."""
    return set(families) == {DEFAULT} and first_key is not None and first_key.startswith(bytes((_TABLE, 0)))


def part_of(name: str, value: bytes | None) -> Part | None:
    """Return what a database of one part is of, by the name of its folder, or else by a value; None for what is none."""
    for part in PARTS:
        if name == part.folder:
            return part
    entry = _json(value or b"")
    signs = {"topicName": TOPICS, "groupName": GROUPS, OFFSETS.table: OFFSETS}
    return next((part for sign, part in signs.items() if sign in entry), None) if isinstance(entry, dict) else None


def by_names(part: Part, pairs: Pairs, version: bytes | None, forbidden: Pairs = ()) -> Decoded:
    """Return a table whose keys are names (``RocksDBTopicConfigManager`` and its like, 5.3.3 to 5.5.1).

    ``version`` is the value of ``VERSION_KEY``; ``forbidden`` are pairs of that family.
    """
    stamp = _json(version or b"{}")
    said: dict[str, Any] = {part.table: {}, "dataVersion": stamp if isinstance(stamp, dict) else {}}
    decoded = Decoded(said, [] if isinstance(stamp, dict) else [VERSION_KEY.decode()])
    for key, value in pairs:
        name, entry = java_string.java_text(key), _json(value)
        if part is OFFSETS:
            # RocksDBOffsetSerializeWrapper
            entry = entry.get(part.table) if isinstance(entry, dict) else None
        _add(decoded, part.table, name, entry)
    for key, value in forbidden:
        said.setdefault(FORBIDDEN_TABLE, {})
        _add(decoded, FORBIDDEN_TABLE, java_string.java_text(key), _json(value))
    return decoded


def _add(decoded: Decoded, table: str, name: str, entry: object) -> None:
    # Keys that are no UTF-8 may become one name: the later one counts.
    if not isinstance(entry, dict) or name in decoded.said[table]:
        decoded.broken.append(name)
    if isinstance(entry, dict):
        decoded.said[table][name] = entry


def numbered_range(table_id: int) -> tuple[bytes, bytes]:
    """Return from which key on, and below which, the records of one table of v2 stand, its data version among them."""
    return _HEAD.pack(_TABLE, table_id, 0), _HEAD.pack(_TABLE, table_id + 1, 0)


def by_numbers(part: Part, pairs: Pairs) -> Decoded:
    """Return a table of v2 (``TopicConfigManagerV2`` and its like, 5.3.3 to 5.5.1) from the pairs of its range."""
    decoded = Decoded({part.table: {}, "dataVersion": {}}, [])
    for key, value in pairs:
        kind, rest = key[_HEAD.size - 1 : _HEAD.size], key[_HEAD.size :]
        if kind == bytes((_VERSION,)):
            if len(value) == _STAMP.size:
                state, time, counter = _STAMP.unpack(value)
                decoded.said["dataVersion"] = {"counter": counter, "stateVersion": state, "timestamp": time}
        elif kind != bytes((_DATA,)):
            continue
        elif part is OFFSETS:
            _add_offset(decoded, rest, value)
        else:
            name, behind = _text(rest)
            entry = _json(value[1:]) if value[:1] == bytes((_JSON,)) and not behind and name is not None else None
            _add(decoded, part.table, java_string.java_text(rest[_LENGTH.size :] if name is None else name), entry)
    return decoded


def _add_offset(decoded: Decoded, key: bytes, value: bytes) -> None:
    """Put one offset into its group's entry (``ConsumerOffsetManagerV2.keyOfConsumerOffset``)."""
    group, behind = _text(key)
    topic, queue = _text(behind[1:]) if behind[:1] == _MARK else (None, b"")
    if group is None or topic is None or queue[:1] != _MARK or len(queue) != 1 + _QUEUE.size or len(value) != _OFFSET.size:
        decoded.broken.append(java_string.java_text(key[_LENGTH.size :]))
        return
    name = f"{java_string.java_text(topic)}@{java_string.java_text(group)}"
    offsets = decoded.said[OFFSETS.table].setdefault(name, {})
    offsets[str(_QUEUE.unpack(queue[1:])[0])] = _OFFSET.unpack(value)[0]


def _text(data: bytes) -> tuple[bytes | None, bytes]:
    """Return a text behind its length, and what is behind it; None for one that is cut short."""
    if len(data) < _LENGTH.size:
        return None, b""
    stop = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    return (data[_LENGTH.size : stop], data[stop:]) if stop <= len(data) else (None, b"")


def _json(data: bytes) -> Any:
    """Return JSON of fastjson; None for what is none."""
    try:
        return java_string.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def stamp_of(said: Mapping[str, Any], field: str) -> int:
    """Return a number of a table's data version (``counter``, or ``timestamp`` in ms); 0 where it has none, as a broker."""
    version = said.get("dataVersion")
    number = version.get(field) if isinstance(version, dict) else None
    return number if type(number) is int else 0
