"""What an address asks for, and what a page gives: shared by all modules that make pages.

A module of pages has a function ``pages(stores)`` that returns a ``Address`` for each of its addresses, and ``TEMPLATES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from rocketmq_reindex.jobs.browsing.options import BrowseSettings
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.showing import escape, name_bytes

FIELDS_MAX: Final = 16
_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)
Facts = dict[str, Any]


def url(page: str, **given: object) -> str:
    """Return the address of a page. Names of a store need not be text: their bytes are kept.

    A name in a JSON file may have half of a surrogate pair, which no bytes of a name are: its page finds nothing.
    """
    words = {name: name_bytes(str(value)) for name, value in given.items() if value is not None and value != ""}
    query = urlencode(words) if words else ""
    return f"/{page}{'?' if query else ''}{query}"


def option_words(chosen: Iterable[tuple[str, str]]) -> list[str]:
    """Return options with their values as words of a command line. A value may begin as an option does."""
    return [word for name, value in chosen for word in ([f"--{name}={value}"] if value[:1] == "-" else [f"--{name}", value])]


class NotFound(InputError):
    """What an address names is not there."""


class Asked:
    """What an address asks for beside the page. Each name stands there once, and is one that the page takes."""

    def __init__(self, query: bytes, known: Sequence[str]) -> None:
        try:
            pairs = parse_qsl(
                query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape", max_num_fields=FIELDS_MAX
            )
        except ValueError:
            raise UsageError(f"an address has at most {FIELDS_MAX} fields") from None
        self.given = {name: value for name, value in pairs if value}
        if len(pairs) > len({name for name, _ in pairs}):
            raise UsageError("an address names a field once")
        if wrong := sorted({name for name, _ in pairs} - {*known, "format"}):
            raise UsageError(f"{escape(wrong[0])}: is no field of this page: it takes {', '.join([*known, 'format'])}")
        if self.given.get("format", "json") != "json":
            raise UsageError("format: takes json, or is left out")

    @property
    def as_json(self) -> bool:
        """Whether the answer is JSON."""
        return "format" in self.given

    def text(self, name: str) -> str:
        """Return a field. Raises UsageError where it is missing."""
        if name not in self.given:
            raise UsageError(f"{name}: is missing")
        return self.given[name]

    def number(self, name: str) -> int | None:
        """Return a field that is a whole number from 0 on; None where it is left out. Raises UsageError."""
        value = self.given.get(name)
        if value is None:
            return None
        if not _NUMBER.fullmatch(value) or int(value) > INT64_MAX // 64:
            raise UsageError(f"{name}: {escape(value, 40)} is no number that it can have")
        return int(value)

    def words(self, names: Sequence[str]) -> list[str]:
        """Return these fields, as far as they are given, as options of ``query``."""
        return option_words((name, self.given[name]) for name in names if name in self.given)


class PageFacts(NamedTuple):
    """What is shown: facts for JSON, and beside them what the template alone needs."""

    title: str
    facts: Facts
    more: Mapping[str, Any] = {}
    status: int = 200
    headers: Mapping[str, str] = {}


Make = Callable[[Asked], PageFacts]


class Address(NamedTuple):
    """An address, and what makes its page."""

    path: str
    template: str
    fields: tuple[str, ...]
    """names that the address takes, beside ``format``"""
    make: Make


class OpenedStores:
    """The stores that were named at the start: no address reaches another one."""

    def __init__(self, settings: BrowseSettings) -> None:
        self.settings = settings
        self.by_name = {store.name: store for store in settings.stores}
        self.known: list[Callable[[TracedStore], Iterable[tuple[int, int, str]]]] = []
        """each knows damaged stretches of a store's log (``opened.known_damage``)"""

    def named(self, asked: Asked) -> TracedStore:
        """Return the store that an address names. Raises UsageError where it names none, and NotFound."""
        name = asked.text("store")
        if name not in self.by_name:
            raise NotFound(f"store {escape(name, 80)}: was not named when this was started")
        return self.by_name[name]

    def wanted(self, asked: Asked) -> list[TracedStore]:
        """Return the store that an address names, or all of them. Raises NotFound."""
        return [self.named(asked)] if "store" in asked.given else list(self.settings.stores)
