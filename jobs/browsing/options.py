"""What pages are asked: the options of ``rmq-reindex browse``, and what it returns; and what an address asks for, and what a
page gives, for all modules that make pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.command.results import WarnedResult
from rocketmq_reindex.jobs.tracing.timeline import TracedStore, store_named
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.showing import counted, escape, listed, name_bytes

PORT_MAX: Final = 65535


class FindingsFile(NamedTuple):
    """A file of findings, and the name of the store that it is about; "" where the file says that."""

    name: str
    path: str
    unknown: str = ""
    """what stands before an equals sign of the path: it may have been meant as a name, but no store has it"""


class BrowseSettings(NamedTuple):
    """Which stores are shown, and on which port. All places are absolute."""

    stores: tuple[TracedStore, ...]
    port: int = option_table.default_of("port", "browse")
    delay_levels: str = option_table.default_of("delay_levels", "browse")
    delays: tuple[int, ...] = ()
    """milliseconds of each delay level, from 1 on"""
    findings: tuple[FindingsFile, ...] = ()
    export_site: str | None = None
    """the folder into which the pages are written, instead of being served"""
    redact: bool = False


def browse_settings(given: Mapping[str, Any]) -> BrowseSettings:
    """Return what options ask for, by the parser's names. Raises UsageError."""

    def refuse(what: str) -> UsageError:
        return UsageError(f"rmq-reindex browse: {what}: see --help")

    values = dict(given)
    named = list(values.pop("stores", ()))
    commitlogs = tuple(files.absolute(files.plain(path)) for path in values.pop("commitlogs", ()))
    if commitlogs and len(named) > 1:
        raise refuse("--commitlog goes with one store")
    stores = tuple(store_named(text, commitlogs, "") for text in named)
    names = [store.name for store in stores]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refuse(f"two stores have the name {escape(twice)}: give each its own, as a={escape(stores[0].path)}")
    values["findings"] = tuple(_findings(text, names) for text in values.pop("findings", ()))
    if values.get("redact") and "export_site" not in values:
        raise refuse("--redact goes with --export-site")
    if "port" in values and "export_site" in values:
        raise refuse("take one of --port and --export-site")
    settings = BrowseSettings(tuple(replace(store, path=files.absolute(store.path)) for store in stores), **values)
    if not 0 <= settings.port <= PORT_MAX:
        raise refuse(f"--port {settings.port} is none: take 0 to {PORT_MAX}")
    return settings._replace(delays=option.parse_delay_levels(settings.delay_levels))


def _findings(text: str, names: list[str]) -> FindingsFile:
    """Return what NAME=FILE, or FILE alone, stands for. A path may hold an equals sign."""
    before, sign, path = text.partition("=")
    name, path = (before, path) if before in names else ("", text)
    if not path:
        raise UsageError(f"--findings {escape(text)}: give FILE, or NAME=FILE")
    try:
        path = files.checked(files.plain(path))
    except InputError as error:
        raise UsageError(f"--findings {error}") from None
    if files.is_remote(path):
        raise UsageError(f"--findings {escape(path)}: is a URI: name a file or folder on a disk")
    return FindingsFile(name, files.absolute(path), before if sign and not name else "")


_parse: Final = options.reader("browse", browse_settings)


def parse_browse(words: Sequence[str]) -> BrowseSettings:
    """Return what the words behind ``browse`` ask for. Raises UsageError.

    A store may also be named as ``trace`` has it: ``--store NAME=STORE`` stands for ``NAME=STORE``.
    """
    named, others, left = list[str](), list[str](), iter(words)
    for word in left:
        if word == "--":
            others += [word, *left]
        elif word == "--store":
            named.append(next(left, ""))
        elif word.startswith("--store="):
            named.append(word.partition("=")[2])
        else:
            others.append(word)
    # The parser takes stores one behind the other.
    first = next((number for number, word in enumerate(others) if word.startswith("-")), len(others))
    return _parse([*others[:first], *named, *others[first:]])


class Serving(Protocol):
    """What serves the pages."""

    url: str
    """the first address, with the token that lets a browser in"""
    port: int

    def stop(self) -> None:
        """End it."""


@dataclass(repr=False)
class BrowseResult(WarnedResult):
    """Pages of stores, served by threads of this process until ``stop``, or until the process ends; or written as files."""

    exit: int = 0
    error: str | None = None
    url: str = ""
    """the address to open: it has the token"""
    port: int = 0
    stores: list[str] = field(default_factory=list)
    """names of the stores"""
    site: str = ""
    """the folder of the pages, where they were written as files; "" where they are served"""
    pages: int = 0
    """pages that were written, each as HTML and as JSON"""
    redacted: bool = False
    """whether values of the stores' users were replaced in what was written"""
    warnings: list[str] = field(default_factory=list)
    """pages that could not be made, and why: ``exit_status`` is 3 then"""

    def lines(self) -> list[str]:
        """Return what the command prints once the pages are there."""
        if self.site:
            redacted = ", with pseudonyms for bodies, keys, ids, hosts and paths" if self.redacted else ""
            what = f"{counted(self.pages, 'page')} of {listed([*map(escape, self.stores)])}"
            return [
                f"wrote    {what} to {escape(self.site)}{redacted}",
                f"next     open {escape(self.site)}/index.html; it says what is left out",
            ]
        return [
            f"browse   {self.url}",
            f"         on this host alone, until ctrl-C; from another: ssh -L {self.port}:127.0.0.1:{self.port} THIS-HOST",
        ]

    def stop(self) -> None:
        """End the pages; also more than once."""
        serving: Serving | None = getattr(self, "_serving", None)
        if serving is not None:
            serving.stop()

    def __enter__(self) -> BrowseResult:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _facts(self) -> dict[str, str]:
        return {"pages": escape(self.site) or self.url, "stores": ", ".join(map(escape, self.stores))}


def take_over(result: BrowseResult, serving: Serving, stores: list[str]) -> None:
    """Let the result say where the pages are, and end them."""
    object.__setattr__(result, "_serving", serving)
    result.url, result.port, result.stores = serving.url, serving.port, stores


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
