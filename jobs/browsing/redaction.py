"""Replace what a store's users wrote by stable pseudonyms: by the names of fields first, then inside sentences, then a check.

A pseudonym is made with a random secret that nobody keeps: the same value has the same one within one site, and another one in
the next. A field with a name that is not known here is replaced as well, unless it is a number or a time.
"""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from html import escape as html
from typing import Any, Final
from urllib.parse import parse_qsl, quote, quote_plus

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing.options import url
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format.showing import escape, printable, shell

SECRET: Final = frozenset({
    "keys", "key", "uniqueKey", "unique_key", "msgId", "id", "messageId", "originMessageId", "recalls", "transactionId", "body",
    "json", "preview", "storeHost", "bornHost", "host", "address", "client", "clientId", "broker", "place", "path",
    "folder", "uri", "url", "body_lines", "properties", "trace", "traces", "regex", "holder", "source",
})  # fmt: skip
"""fields whose texts are replaced, and known from then on wherever they stand"""
KEPT: Final = frozenset({
    "topic", "topics", "realTopic", "group", "groups", "consumerGroup", "tags", "tag", "kind", "kinds", "what", "field",
    "version", "versions", "signs", "compression", "bodyFormat", "storeTime", "bornTime", "time", "certainty", "fits",
    "raw_topic", "names", "of", "bodyCrcMatches", "queue", "record", "format", "status", "severity", "type", "class", "state",
    "name",
})  # fmt: skip
"""fields whose texts stay: topics, groups, tags, words of this program, times, names of files in a store"""
SENTENCES: Final = frozenset({
    "warnings", "error", "text", "command", "commands", "why", "problems", "title", "sub", "note", "notes", "body_note",
    "remark", "evidence", "wrong", "file", "part", "description", "label", "summary",
    "verdict", "when", "where", "reason", "mend", "advice", "damage",
})  # fmt: skip
"""fields with words of this program around values of a store, and names of files, which may have a path"""
DROPPED: Final = frozenset({"hex", "hex_lines", "bodyCrc", "keyHash", "key_hash"})
"""fields that stay empty: bytes of bodies, and checksums by which somebody could try a guess"""
_VALUES: Final = frozenset({"body", "json", "keys", "key", "properties"})
"""fields of which numbers are values of a user, too"""
_KEYS: Final = ("key", "unique key")
TEXT_MIN: Final = 4
"""Shorter values are replaced in their own fields alone: in a sentence they stand for anything."""
SURE: Final = 8
"""bytes from which on a value counts wherever it stands, also inside of a longer word"""
_LINES: Final = 200
_PLAIN: Final = re.compile(r"[-+]?[\d.,:/ %TZ+-]*|\d{4}-\d\d-\d\d[T ][\d:.]+Z?")
_PORT: Final = re.compile(r"(.+):(\d{1,5})", re.DOTALL)
_PLACES: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s'\"<>]+"
    r"|(?<![\w./~%-])/(?:[\w.@%+=:,~-]+/)+[\w.@%+=:,~-]*"
    r"|(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"
    r"|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]"
)
"""URIs, absolute paths and IP addresses in a sentence"""
_ASKED: Final = re.compile(
    r"(--(?:key|id|unique-key|text|regex)[= ])((?:\$'(?:\\.|[^'])*'|'[^']*'|\"[^\"]*\"|\\.|[^\s'\"])+)", re.DOTALL
)
"""what a command line asks for: it need not be on any page"""
_HASH: Final = re.compile(r"\bhash -?\d+", re.ASCII)
_MADE: Final = re.compile(r"r-[0-9a-f]{10}")
_JSON_WORDS: Final = "true false null NaN Infinity"
_SMALL: Final = re.compile(r'"[^"]*": (?:-?\d{1,7}|true|false|null)', re.ASCII)
"""a line of JSON that may as well stand in the JSON of the pages: "items": 15"""


class Redactor:
    """Replaces values. Everything has to be learnt before the first text is changed."""

    def __init__(self, stores: Iterable[TracedStore], own_words: str) -> None:
        """``own_words`` are texts of this program, such as templates: what stands there is nobody's secret."""
        self._secret = secrets.token_bytes(32)
        self._known, self._fields = dict[str, str](), dict[str, str]()
        self._public, self._kept = {own_words, _JSON_WORDS}, set[str]()
        self.unknown = set[str]()
        """names of fields that were replaced because nothing is known of them"""
        self._stores = frozenset(store.name for store in stores)
        for store in stores:
            self._learn_places([store.path, *store.commitlogs])
        self._know(socket.gethostname(), "host name")

    def _learn_places(self, places: Iterable[str]) -> None:
        for place in places:
            real = place if files.is_remote(place) else os.path.realpath(place)
            for path in {place, real}:
                self._know(path, "path")
                around = os.path.dirname(path)
                if not files.is_remote(path) and around.count("/") > 1:
                    self._know(around, "path")

    # ------------------------------------------------------------------------------------------------------------- learn

    def learn(self, value: Any, field: str = "") -> None:
        """Remember what of these facts is to be replaced, wherever it stands."""
        if isinstance(value, Mapping):
            for name, inner in value.items():
                self.learn(inner, field if field in SECRET else _field(value, name))
        elif isinstance(value, list | tuple):
            for inner in value:
                self.learn(inner, field)
        elif isinstance(value, str) and field in SECRET:
            self._know(value, field)
            if field in ("body", "json"):
                lines = (line.strip(" \t,") for line in value.splitlines()[:_LINES])
                for line in lines:
                    if not _SMALL.fullmatch(line):
                        self._know(line, field, SURE)
                self._learn_json(value)
        elif isinstance(value, str) and field in KEPT:
            self._kept.add(value)

    def _learn_json(self, body: str) -> None:
        try:
            left = [json.loads(body)]
        except (ValueError, RecursionError):
            return
        while left:
            value = left.pop()
            if isinstance(value, str):
                self._know(value, "body", SURE)
            elif isinstance(value, dict | list):
                left.extend(value.values() if isinstance(value, dict) else value)

    def _know(self, value: str, field: str, least: int = TEXT_MIN) -> None:
        host = _PORT.fullmatch(value)
        value = host[1] if host and field.endswith(("Host", "host", "address", "client")) else value
        if len(value) >= least:
            self._known.setdefault(value, self.pseudonym(value))
            self._fields.setdefault(value, field)

    def pseudonym(self, value: str) -> str:
        """Return what stands for a value."""
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=5, key=self._secret)
        return f"r-{digest.hexdigest()}"

    # ------------------------------------------------------------------------------------------------------------ change

    def changed(self, value: Any, field: str = "") -> Any:
        """Return facts, or what a template is filled with, without what is to be replaced."""
        if field in DROPPED:
            return [] if isinstance(value, list | tuple) else "" if isinstance(value, str) else None
        if field in _VALUES and not isinstance(value, str | list | tuple | Mapping) and value is not None:
            return self.pseudonym(str(value))
        if isinstance(value, Mapping):
            return self._mapping(value, field)
        if isinstance(value, list | tuple):
            pairs = field not in SECRET and value and all(_is_pair(each) for each in value)
            made = [(each[0], self.changed(each[1], each[0])) if pairs else self.changed(each, field) for each in value]
            return tuple(made) if type(value) is tuple else made
        if isinstance(value, Markup):
            return self._markup(str(value))
        if isinstance(value, str):
            return self._string(value, field)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._public.update((str(value), f"{value:,}"))
        return value

    def _mapping(self, value: Mapping[Any, Any], field: str) -> dict[Any, Any]:
        # A name of a property stays, what it holds does not.
        made = {}
        for name, inner in value.items():
            shown = name
            if field != "properties" and isinstance(name, str):
                shown = name if name.isascii() and name.isidentifier() else self.text(name)
            self._public.add(str(shown))
            made[shown] = self.changed(inner, field if field in SECRET else _field(value, name))
        if "bodyFormat" in made:
            made["bodyFormat"] = "text"
        return made

    def _string(self, value: str, field: str) -> str:
        if not value:
            return value
        if field in SECRET or (field == "store" and value not in self._stores):
            if field == "keys":
                return " ".join(self.pseudonym(key) if key else "" for key in value.split(" "))
            host = _PORT.fullmatch(value)
            return f"{self.pseudonym(host[1])}:{host[2]}" if host and field.endswith("Host") else self.pseudonym(value)
        if field == "href":
            page, _, query = value.partition("?")
            return url(page[1:], **self.given(dict(parse_qsl(query, errors="surrogateescape"))))
        if field in SENTENCES:
            return self.text(value)
        if (
            field not in KEPT
            and field != "store"
            and not _time_of(field)
            and (not _PLAIN.fullmatch(value) or _PLACES.search(value))
        ):
            self.unknown.add(field)
            return self.pseudonym(value)
        self._public.update((value, printable(value), escape(value)))
        return value

    def text(self, text: str) -> str:
        """Return a sentence of this program without known values, paths, URIs and addresses."""
        text = _ASKED.sub(lambda match: f"{match[1]}{self._of_word(match[2])}", text)
        return _PLACES.sub(self._of_place, _HASH.sub("hash -", self._without_known(text)))

    def _of_place(self, match: re.Match[str]) -> str:
        place = match[0].rstrip(".,:")
        return f"{self.pseudonym(place.strip('[]'))}{match[0][len(place) :]}"

    def _of_word(self, word: str) -> str:
        # A word of a shell that is not quoted is the value itself, which has one pseudonym everywhere.
        return word if _MADE.fullmatch(word) else self.pseudonym(word)

    def _without_known(self, text: str) -> str:
        out, at, forms = list[str](), 0, self._forms_by_start
        for place in range(len(text) - TEXT_MIN + 1):
            if place < at:
                continue
            for form, pseudonym in forms.get(text[place : place + TEXT_MIN], ()):
                end = place + len(form)
                if text.startswith(form, place) and (len(form) >= SURE or _is_word(text, place, end)):
                    out += [text[at:place], pseudonym]
                    at = end
                    break
        return "".join([*out, text[at:]])

    def _markup(self, text: str) -> Markup:
        # What looks like a path or an address within a tag is the drawing's own.
        pieces = re.split(r"(<[^>]*>)", text)
        return Markup("".join(self._without_known(each) if each.startswith("<") else self.text(each) for each in pieces))

    @functools.cached_property
    def _forms_by_start(self) -> dict[str, list[tuple[str, str]]]:
        """What is replaced in sentences by its first characters, the longest first."""
        secret = {value: made for value, made in self._known.items() if value not in self._kept | self._stores}
        forms = {form: pseudonym for value, pseudonym in secret.items() for form in _forms(value) if len(form) >= TEXT_MIN}
        by_start = dict[str, list[tuple[str, str]]]()
        for form, pseudonym in sorted(forms.items(), key=lambda each: -len(each[0])):
            by_start.setdefault(form[:TEXT_MIN], []).append((form, pseudonym))
        return by_start

    def given(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Return what an address asks for, as the links of changed pages have it."""
        return {name: str(self.changed(value, "topic" if name == "from" else name)) for name, value in fields.items()}

    # ------------------------------------------------------------------------------------------------------------- check

    def remains(self, data: bytes) -> str:
        """Return the name of a field of which a value still stands in these bytes; "" for none.

        What this program says itself, and what is kept, is no secret.
        """
        for secret in self._seen(data):
            value = self._looked_for[0][secret]
            public = value in self._public_text or printable(value) in self._public_text
            if not public and value not in self._kept | self._stores:
                return self._fields[value]
        return ""

    def _seen(self, data: bytes) -> Iterator[bytes]:
        """Yield forms of values that stand in these bytes."""
        _, by_end, short = self._looked_for
        for secret in short:
            if secret in data and re.search(rb"(?<![0-9A-Za-z_])" + re.escape(secret) + rb"(?![0-9A-Za-z_])", data):
                yield secret
        found, ends = set[int](), self._ends
        for start in range(min(SURE, max(0, len(data) - SURE + 1)) if len(ends) else 0):
            words = np.frombuffer(data, "<u8", (len(data) - start) // SURE, start)
            places = np.minimum(np.searchsorted(ends, words), len(ends) - 1)
            found.update(words[ends[places] == words].tolist())
        for word in found:
            yield from (secret for secret in by_end[word] if secret in data)

    @functools.cached_property
    def _public_text(self) -> str:
        return "\n".join(self._public)

    @functools.cached_property
    def _ends(self) -> npt.NDArray[np.uint64]:
        return np.array(sorted(self._looked_for[1]), "<u8")

    @functools.cached_property
    def _looked_for(self) -> tuple[dict[bytes, str], dict[int, list[bytes]], list[bytes]]:
        """The values by their forms, the long forms by their last bytes, which differ most, and the short ones."""
        named, by_end, short = dict[bytes, str](), dict[int, list[bytes]](), list[bytes]()
        for value in self._fields:
            for form in _written_forms(value) - named.keys():
                named[form] = value
                if len(form) >= SURE:
                    by_end.setdefault(int.from_bytes(form[-SURE:], "little"), []).append(form)
                else:
                    short.append(form)
        return named, by_end, short


def _field(value: Mapping[Any, Any], name: Any) -> str:
    """Return the field that a name of these facts stands for: the text of an item is a key where its record has it as one."""
    return "key" if name == "text" and value.get("of") in _KEYS else str(name)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def _is_word(text: str, begin: int, end: int) -> bool:
    before, behind = text[begin - 1 : begin], text[end : end + 1]
    return not (before.isalnum() or behind.isalnum() or "_" in before + behind)


def _time_of(field: str) -> bool:
    return field.lower().endswith("time")


def _forms(value: str) -> set[str]:
    """Return a value as this program writes it into sentences."""
    quoted = shell([value])
    return {value, printable(value), escape(value, len(value) * 10), quoted.removeprefix("$'").removesuffix("'"), html(value)}


def _written_forms(value: str) -> set[bytes]:
    """Return a value as the bytes of a page may have it: as text, as HTML, as JSON, in an address."""
    made = {*_forms(value), *map(html, _forms(value)), json.dumps(value)[1:-1]}
    if value.isascii() and value.isprintable():
        made |= {quote(value), quote(value, safe=""), quote_plus(value)}
    return {form.encode("utf-8", "surrogatepass") for form in made if len(form) >= TEXT_MIN}
