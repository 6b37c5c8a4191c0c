"""Text as Java and fastjson have it, in plain Python: decoded, hashed, written."""

import codecs
import json
import re
from typing import Any, Final

from rocketmq_reindex.storage_format.layouts import INT32_MAX, as_int

# ------------------------------------------------------------------------------------------------------------------ java string
# Text as Java decodes and hashes it, in plain Python: ``new String(bytes, UTF_8)``, ``String.hashCode``.
#
# Java and Python differ on malformed input (ED A0 80 is one U+FFFD in Java, three in Python), so hashes would differ too.

_HANDLER: Final = "storage-format-java"


def _as_java(error: UnicodeError) -> tuple[str, int]:
    """Return one U+FFFD for what Java's ``String.decodeUTF8`` takes as one malformed sequence: a surrogate is one, not
    three."""
    assert isinstance(error, UnicodeDecodeError)
    raw, start = error.object, error.start
    if raw[start] == 0xED and start + 1 < len(raw) and 0xA0 <= raw[start + 1] <= 0xBF:
        whole = start + 2 < len(raw) and 0x80 <= raw[start + 2] <= 0xBF
        return "\ufffd", start + (3 if whole else 2)
    return "\ufffd", error.end


codecs.register_error(_HANDLER, _as_java)


def java_text(raw: bytes) -> str:
    """Return ``new String(raw, UTF_8)`` as a Python string, which has no lone surrogates."""
    return raw.decode("utf-8", _HANDLER)


def string_hash(text: str) -> int:
    """Return ``String.hashCode`` of a text: over its UTF-16 code units, as a Java int."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = as_int(31 * value + (units[at] << 8 | units[at + 1]))
    return value


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which an IndexFile keeps a key (``IndexFile.indexKeyHashMethod``); abs(-2147483648) counts as 0."""
    value = abs(string_hash(f"{topic}#{key}"))
    return 0 if value > INT32_MAX else value


def tag_hash(topic: str, tag: str) -> int:
    """Return the hash under which an IndexFile keeps a record's TAGS: that of ``topic#T#TAGS`` (``IndexService.buildIndex``,
    5.4)."""
    return key_hash(topic, f"T#{tag}")


# -------------------------------------------------------------------------------------------------------------------- fast json
# JSON as fastjson writes it (``RemotingSerializable`` of 4.9 and 5.x): keys that are numbers stand without quotes.

_KEYS: Final = re.compile(r'("(?:[^"\\]|\\.)*"?)|([{,]\s*)(-?[0-9]+)(?=\s*:)')


def loads(text: str) -> Any:
    """Return JSON as ``json.loads`` reads it; keys that are numbers become texts. Raises ValueError, RecursionError."""
    return json.loads(_KEYS.sub(lambda match: match[1] or f'{match[2]}"{match[3]}"', text))
