"""The options of ``rmq-reindex browse``, and what it returns while its pages are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.command.results import WarnedResult
from rocketmq_reindex.jobs.tracing.timeline import TracedStore, store_named
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, listed

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
