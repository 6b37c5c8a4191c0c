"""How names of the input, words and numbers are shown: safe in a log, an error, a report and a shell."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

NEAR_MAX: Final = 3
COMPARED_MAX: Final = 5000
"""Names are compared letter by letter, which takes some 20 microseconds each."""
_KNOWN: Final = r"\b(?:s3[an]?|gs|abfss?|wasbs?|hdfs|s?webhdfs)"
_USER: Final = re.compile(
    rf"(?i)([a-z][a-z0-9+.-]{{0,30}}:[/\\]{{1,9}}|{_KNOWN}[;.,]?//{{1,9}}|(?<!/)/{{1,9}}(?=:?[^/%?#\s:@][^/?#\s:@]{{0,300}}:(?!/))"
    rf"|{_KNOWN}:(?=[^/?#\s:@]{{1,300}}:))"
    r"([^/?#\s]{0,1000}|[^/?#\s:@]{0,300}:(?!\d+/)[^?#\s]{0,1000})(@|%40)"
)
"""What stands before an @ in a URI's host.

Also where a password has a slash that should have been %2F, where the @ is written as %40, and where what belongs between
scheme and host is mistyped. In a path, too, but not in the folder of a light queue (``%LMQ%a:b@c``). The lengths are bounded,
so that a hostile text costs little time.
"""
_KEY_PAIR: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{8,100}:[^?#\s]{0,1000}(?=@|%40)")
"""A key pair of AWS, in text that has nothing else of a URI."""
_NO_PORT: Final = re.compile(
    rf"(?i)([a-z][a-z0-9+.-]{{0,30}}://|{_KNOWN}:[/\\]{{1,9}})"
    r"([^/?#\s:@\[\]*\"']{1,300}:(?!\d+(?:\W|$))[^?#\s]+)"
)
"""A key and a secret without their host: they stand where host and port would."""
_SECRET: Final = re.compile(
    r"(?i)([?&][^=&\s]*(?:secret|token|password|delegation|signature|credential|key|sig)[^=&\s]*)=[^&\s]*"
)


def escape(name: str, limit: int = 300) -> str:
    """Return a name of the input as it may stand in a log, an error or a report: one line of printable ASCII without a URI's
    password.

    Text longer than ``limit`` characters is cut.
    """
    text = redacted(name).encode("unicode_escape").decode("ascii")
    return text if len(text) <= limit else f"{text[:limit]}... ({len(name)} characters)"


def redacted(text: str) -> str:
    """Return ``text`` without the credentials of URIs in it: user names, passwords, secret options."""
    if "@" in text or "%40" in text:
        text = _KEY_PAIR.sub("***", _USER.sub(_without_user, text))
    if ":" in text:
        text = _NO_PORT.sub(r"\1***", text)
    return _SECRET.sub(r"\1=***", text) if "=" in text else text


def _without_user(match: re.Match[str]) -> str:
    # abfss://container@account: what stands before the @ is no secret, unless it has a password.
    if match[1].lower().startswith("abfs") and ":" not in match[2]:
        return match[0]
    return f"{match[1]}***{match[3]}"


def printable(text: str) -> str:
    """Return ``text`` for a terminal: letters of any script stay; control characters, marks of direction and the like are
    escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def name_bytes(text: str) -> bytes:
    """Return the bytes of a name that need not be text. Half of a surrogate pair, which JSON can have, is written as one unit:
    no name of a file is read so."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def shell(words: Iterable[str]) -> str:
    """Return words as one line of a shell; what is not printable is written with escapes ($'...', as bash and zsh read it)."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    import shlex  # only advice asks for it

    if word.isprintable():
        return shlex.quote(word)
    plain = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'" else f"\\x{byte:02x}" for byte in name_bytes(word))
    return f"$'{''.join(plain)}'"


def near_names(word: str, names: Iterable[str], count: int = NEAR_MAX, similar: float = 0.5) -> list[str]:
    """Return at most ``count`` names that look most like a word, whatever their case; the most similar one first.

    ``similar`` is how alike they are at least, from 0 to 1. COMPARED_MAX names are looked at.
    """
    import difflib  # only an error asks for it

    folded = {name.casefold(): name for name in sorted(set(names))[:COMPARED_MAX]}
    return [folded[name] for name in difflib.get_close_matches(word.casefold(), folded, count, similar)]


def near_in_words(word: str, names: Iterable[str]) -> str:
    """Return the names that look most like a word, as the end of a clause; "" for none, or where the word is among them."""
    names = set(names)
    near = [] if word in names else near_names(word, names)
    return f" (near it: {', '.join(map(escape, near))})" if near else ""


def reason(error: BaseException) -> str:
    """Return in a few words, escaped, why something could not be done: an OSError's own text may hold a name of the input."""
    return escape((isinstance(error, OSError) and error.strerror) or str(error))


# ---------------------------------------------------------------------------------------------------------------------- plurals
# Numbers and lists of things in sentences: ``1 queue``, ``2,000 queues``, ``a, b and c``.


def form(count: int, singular: str, plural: str) -> str:
    """Return ``singular`` for a count of 1, else ``plural``: the form of a noun or a verb that goes with the count."""
    return singular if count == 1 else plural


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return a count and its noun, as ``1 unit`` or ``2,500 units``; ``nouns`` is the plural where it is not ``noun`` and
    an s."""
    return f"{count:,} {form(count, noun, nouns or f'{noun}s')}"


def listed(parts: Sequence[str]) -> str:
    """Return the parts of a list as in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([*([", ".join(parts[:-1])] if parts[1:] else []), *parts[-1:]])
