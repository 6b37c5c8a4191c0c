"""Findings: what a verify, a build or a repair said of a store, as pages show it, and the places that it speaks of as links.

They come from a check that a page has started, or from files that are named at the start (``browse --findings``).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing import checks, facts
from rocketmq_reindex.jobs.browsing.options import Address, Asked, Facts, FindingsFile, NotFound, OpenedStores, PageFacts, url
from rocketmq_reindex.jobs.publishing.layout import MANIFEST
from rocketmq_reindex.jobs.reporting import make, model
from rocketmq_reindex.jobs.store import contents
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format import layouts, topics
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.storage_format.showing import counted, escape, redacted, shell
from rocketmq_reindex.udfs.times import show_time

FINDINGS_MAX: Final = 32 << 20
"""bytes of a file of findings: ``report`` takes larger ones"""
DAMAGE_SHOWN: Final = 200
"""damaged stretches of a page"""
DAMAGE_MAX: Final = 10_000
"""those that are kept of one file, as verify does"""
_KINDS_MAX: Final = 200
_EXAMPLES_MAX: Final = 10
_KEPT_MAX: Final = 10_000
"""stretches of a quarantine"""
_OFFSET_MAX: Final = 1 << 57
_LISTING: Final = re.compile(r"\d{20}\.json", re.ASCII)
_ESCAPED: Final = re.compile(r"(?:[^\\]|\\[\\nrt]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})+")
_RECORD: Final = re.compile(r"\bphy_?[Oo]ffset (\d{1,19})\b|^offset (\d{1,19}): record of ", re.ASCII)
"""where the text of a difference names a record"""
_OTHERS: Final = 16
"""IndexFiles that are looked into for the sizes of one that does not say its own"""
_AT_NO_OFFSET: Final = frozenset({"queue-file-size", "queue-file-name", "queue-file-stray", "against-queue-file"})
"""kinds of difference whose number is no queue offset"""
Damage = tuple[int, int, str]
"""a stretch of the log: its first byte, the byte behind its last, and what is wrong"""


# ----------------------------------------------------------------------------------------------------------------------- places
# Where in the pages a place is that a finding names.


def links(stores: Sequence[TracedStore], kind: str, where: str, at: int, text: str = "") -> list[Facts]:
    """Return the pages of a place: ``store``, ``what`` and ``href``, for each of the stores. It may lead to no page.

    ``where`` is a path in the store, as findings have it, ``at`` a number there, which the kind of the finding explains, and
    ``text`` what is wrong: it may name a record.
    """
    named = _RECORD.search(text)
    record = int(named[1] or named[2]) if named else -1
    of_log = where.partition("/")[0] == layouts.COMMITLOG
    places = [_page(kind, where, record if of_log and record >= 0 else at)]
    if record >= 0 and not of_log:
        places.append(_page(kind, layouts.COMMITLOG, record))
    return [
        {"store": store.name, "what": what, "href": url(page, store=store.name, **fields)}
        for store in stores
        for what, (page, fields) in places
        if what
    ]


def _page(kind: str, where: str, at: int) -> tuple[str, tuple[str, dict[str, object]]]:
    """Return what a place is, and the page of it with its fields; "" for a place that no page shows."""
    top, *names = where.split("/")
    offset = 0 <= at < _OFFSET_MAX
    if top == layouts.COMMITLOG or (top == layouts.INDEX and not names):
        return ("record" if offset else ""), ("message", {"physical": at})
    if top == layouts.INDEX:
        file = names[0].partition(" ")[0]
        return ("index file" if layouts.is_index_file(file) else ""), ("items", {"file": file, "from": at if offset else None})
    if top in (layouts.CHECKPOINT, layouts.ABORT):
        return "store", ("store", {})
    if len(names) < 2 or not re.fullmatch(r"\d{1,10}", names[1], re.ASCII):
        return "", ("", {})
    topic = _raw(names[0])
    if topic is None or topics.path_component(topic) is None:
        return "", ("", {})
    first = None if kind in _AT_NO_OFFSET or not offset else at
    return "queue", ("queue", {"topic": topic, "queue": int(names[1]), "from": first})


def _raw(shown: str) -> str | None:
    """Return the name that ``escape`` shows so; None where that is not known, as of a name that it has cut."""
    if not _ESCAPED.fullmatch(shown):
        return None
    try:
        name = shown.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return None
    return name if escape(name) == shown else None


class IndexItems:
    """The page of an IndexFile's items, as ``inspect --records`` has them."""

    def __init__(self, stores: OpenedStores) -> None:
        self._stores = stores

    def pages(self) -> list[Address]:
        """Return the page."""
        return [Address("/items", "items", ("store", "file", "from"), self._page)]

    def _page(self, asked: Asked) -> PageFacts:
        """Show items of one file. Raises UsageError, NotFound, and InputError for a file whose sizes are not known."""
        # Brings numba, which no other page needs.
        from rocketmq_reindex.jobs.inspecting import index as index_log

        store, name, first = self._stores.named(asked), asked.text("file"), max(1, asked.number("from") or 1)
        warnings = list[str]()
        with facts.looking(store, warnings) as (search, notes):
            folder = files.join(store.path, layouts.INDEX)
            if not layouts.is_index_file(name) or files.entry_of(files.join(folder, name)).kind != files.FILE:
                raise NotFound(f"{escape(name)}: the store has no such IndexFile")
            with contextlib.closing(contents.IndexFiles(folder, None, notes, _OTHERS, name)) as index:
                file = next((each for each in index.files if files.base(each.path) == name), None)
                if file is None or file.sizes is None:
                    raise InputError(f"{escape(name)}: its numbers of slots and items are not known")
                header, (slots, places) = file.header, file.sizes
                at = HEADER_SIZE + SLOT_SIZE * slots + ITEM_SIZE * first
                data = file.pages.read(at, ITEM_SIZE * max(0, min(facts.ROWS, places - first)))
            texts, rows = index_log.ItemTexts(search.log), list[Facts]()
            items = ITEM_LAYOUT.iter_unpack(data[: len(data) // ITEM_SIZE * ITEM_SIZE])
            for number, (hashed, place, seconds, before) in enumerate(items, first):
                of, text = texts.of(hashed, place)
                rows.append({
                    "item": number, "keyHash": hashed, "physicalOffset": place, "timeDiff": seconds,
                    "time": show_time(header.begin_time + 1000 * seconds), "prevItem": before, "of": of, "text": text,
                })  # fmt: skip
        last = max(0, header.index_count - 1)
        found: Facts = {
            "store": store.name, "file": name, "items": rows, "count": last, "room": places - 1, "slots": slots,
            "previous": max(1, first - facts.ROWS) if first > 1 else None,
            "next": first + facts.ROWS if first + facts.ROWS <= min(last, places - 1) else None, "warnings": warnings,
        }  # fmt: skip
        words = ["rmq-reindex", "inspect", redacted(files.join(folder, name)), "--records", "--json"]
        return PageFacts(f"IndexFile {name}", found | {"command": shell(words)})


# --------------------------------------------------------------------------------------------------------------------- findings
# What pages show of a verify or a build, from the model that a report is drawn from.


def told(found: model.Model, stores: Sequence[TracedStore]) -> Facts:
    """Return what a page shows of a model. ``stores`` are those that its places are in: two of a comparison.

    Raises KeyError, TypeError, ValueError, AttributeError or OverflowError for findings that no verify has written.
    """
    return {
        "command": found.command, "verdict": found.verdict, "good": found.good, "when": found.when,
        "steps": [step._asdict() for step in found.steps], "facts": [{"name": n, "value": v} for n, v in found.facts],
        "findings": [_finding(each, stores) for each in found.findings[:_KINDS_MAX]],
        "damage": [
            {"offset": offset, "length": length, "reason": why, "links": links(stores, "", layouts.COMMITLOG, offset)}
            for offset, length, why in found.damage[:DAMAGE_MAX]
        ],
        "damagedPlaces": len(found.damage), "notes": found.notes, "warnings": found.warnings,
    }  # fmt: skip


def _finding(raw: dict[str, Any], stores: Sequence[TracedStore]) -> Facts:
    kind = str(raw["kind"])
    examples = [(str(each["where"]), int(each["at"]), str(each["text"])) for each in raw["examples"][:_EXAMPLES_MAX]]
    # The pages open without what verify needs.
    from rocketmq_reindex.jobs.verifying.mend import NO_BUILD

    mend = str(raw["mend"])
    return {
        "kind": kind, "part": str(raw["part"]), "text": str(raw["text"]), "count": int(raw["count"]), "mend": mend,
        # What all kinds have in common is said once.
        "advice": None if mend.startswith(("rmq-reindex", NO_BUILD)) else mend,
        "examples": [
            {"where": where, "at": at, "text": text, "links": links(stores, kind, where, at, text)}
            for where, at, text in examples
        ],
    }  # fmt: skip


class OpenedFile(NamedTuple):
    """A file or folder that was named at the start, and what it says."""

    path: str
    kind: str
    store: TracedStore
    shown: Facts
    command: str

    @property
    def damage(self) -> list[Damage]:
        """Damaged stretches of the log."""
        return [(each["offset"], each["offset"] + each["length"], each["reason"]) for each in self.shown["damage"]]


def _open(given: FindingsFile, stores: OpenedStores) -> OpenedFile:
    """Return what a file of findings says. Raises InputError for a file that has none, and for one of no store here."""
    path, shown = given.path, escape(given.path)
    kind = files.entry_of(path).kind
    if kind == files.ABSENT and given.unknown:
        names = ", ".join(map(escape, stores.by_name))
        raise InputError(f"{shown}: is not there, and {escape(given.unknown)} is the name of no store here ({names})")
    if kind == files.OTHER:
        raise InputError(f"{shown}: is neither a file nor a folder")
    if kind == files.FOLDER and files.entry_of(files.join(path, MANIFEST)).kind != files.FILE and (listings := _listings(path)):
        store = _store_of(given, "", stores)
        return OpenedFile(path, "quarantine", store, _quarantine(listings, store), shell(["ls", redacted(path)]))
    found, place = make.read_model(path, most=FINDINGS_MAX)
    of_verify = found.command == "verify"
    store = _store_of(given, place if of_verify else "", stores)
    others = dict(found.facts).get("compared with") if of_verify else None
    both = [store, *(each for each in stores.settings.stores if others and _same(each.path, others) and each != store)]
    try:
        shown_facts = told(found, both)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{shown}: its findings are not what verify writes ({escape(str(error))})") from None
    kind = "verify" if of_verify else "repair" if found.repaired else "build"
    command = ["rmq-reindex", "repair", "--explain"] if kind == "repair" else ["rmq-reindex", "report"]
    return OpenedFile(path, kind, store, shown_facts, shell([*command, redacted(path)]))


def _same(one: str, other: str) -> bool:
    return one == other or files.canonical(files.absolute(one)) == files.canonical(files.absolute(other))


def _store_of(given: FindingsFile, place: str, stores: OpenedStores) -> TracedStore:
    """Return the store that findings are about: the one that is named, that they name, or the only one. Raises InputError."""
    if given.name:
        return stores.by_name[given.name]
    named = stores.settings.stores
    same = [store for store in named if place and (_same(store.path, place) or redacted(store.path) == place)]
    if same:
        return same[0]
    shown = escape(given.path)
    if place:
        raise InputError(f"{shown}: is about {escape(place)}, which is no store here: say which one it is by NAME={shown}")
    if len(named) > 1:
        raise InputError(f"{shown}: does not name its store: say which one it is by NAME={shown}")
    return named[0]


def _listings(folder: str) -> list[str]:
    """Return the listings of a quarantine."""
    names = sorted(entry.name for entry in files.listing(folder) if entry.kind == files.FILE and _LISTING.fullmatch(entry.name))
    return [files.join(folder, name) for name in names[:_KEPT_MAX]]


def _quarantine(listings: list[str], store: TracedStore) -> Facts:
    """Return what a quarantine says: which stretches a repair has replaced, and which records were still to be read there."""
    damage, records = list[tuple[int, int, str]](), 0
    for path in listings:
        try:
            listing, cut, _ = checks.bounded_json(path, checks.RESULT_MAX, 0)
            records += cut.get("records", 0)
            begin, length = int(listing["offset"]), int(listing["length"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            wrong = f"it has no {escape(str(error))}" if isinstance(error, KeyError) else escape(str(error))
            raise InputError(f"{escape(path)}: is no listing of a quarantine ({wrong})") from None
        places = counted(cut.get("damage", 0), "damaged place")
        kept = "the old bytes are kept" if listing.get("bytes") else "there were no bytes but zeros"
        damage.append((begin, length, f"{places}, {counted(cut.get('records', 0), 'record')} still to be read: {kept}"))
    verdict = f"a repair replaced {counted(len(damage), 'stretch', 'stretches')} of the log"
    told_of = model.Model(store.name, "repair", "", verdict=verdict, damage=damage)
    told_of.facts = [("records still to be read in them", f"{records:,}")]
    return told(told_of, [store])


class Opened:
    """The files of findings that were named at the start."""

    def __init__(self, stores: OpenedStores) -> None:
        """Read them. Raises InputError for one that has no findings."""
        try:
            self.files = [_open(given, stores) for given in stores.settings.findings]
        except OSError as error:
            raise InputError(f"--findings {escape(str(error.filename))}: {error.strerror}") from None
        stores.known.append(self._damage)

    def _damage(self, store: TracedStore) -> Iterable[Damage]:
        return [stretch for file in self.files if file.store.name == store.name for stretch in file.damage]

    def pages(self) -> list[Address]:
        """Return the page of the files, and of one."""
        return [Address("/findings", "findings", ("file", "from"), self._page)]

    def _page(self, asked: Asked) -> PageFacts:
        number, first = asked.number("file"), asked.number("from") or 0
        if number is None:
            rows = [
                {"file": at, "path": escape(file.path), "kind": file.kind, "store": file.store.name, "good": file.shown["good"],
                 "verdict": file.shown["verdict"], "command": file.command}
                for at, file in enumerate(self.files)
            ]  # fmt: skip
            return PageFacts("Findings", {"files": rows}, {"found": None})
        if number >= len(self.files):
            raise NotFound(f"file {number}: there are {counted(len(self.files), 'file')} of findings, and the first is 0")
        file = self.files[number]
        of_file = {"file": number, "path": escape(file.path), "kind": file.kind, "store": file.store.name}
        shown = damage_rows(file.shown, first)
        # Of a long list each page would have all: those of a site would take gigabytes.
        given = of_file | {"found": file.shown | {"damage": shown["rows"]}, "command": file.command}
        return PageFacts(f"Findings of {file.store.name}", given, shown)


def damage_rows(shown: Facts, first: int = 0) -> dict[str, Any]:
    """Return what a template needs beside the facts: the damage of one page, from its number ``first`` on."""
    damage = shown["damage"]
    return {
        "rows": damage[first : first + DAMAGE_SHOWN], "first": first,
        "before": max(0, first - DAMAGE_SHOWN) if first else None,
        "behind": first + DAMAGE_SHOWN if first + DAMAGE_SHOWN < len(damage) else None,
    }  # fmt: skip


def known_damage(stores: OpenedStores, store: TracedStore) -> list[Damage]:
    """Return the damaged stretches of a store's log that are known: from checks that pages started, and from files of findings.

    They come in order, each once: its first byte, the byte behind its last, and what is wrong. There may be none because nobody
    has looked.
    """
    known = sorted({stretch for knows in stores.known for stretch in knows(store)})
    return known[:DAMAGE_MAX]
