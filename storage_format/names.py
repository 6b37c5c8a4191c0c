"""Topic and LMQ names: which may become a path, and how they are shown.

A name is hostile until validated here, and this is the only function that turns one into a path component.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

PLAIN: Final = 1
"""one plain path component"""
SLASH: Final = 2
SCHEDULE: Final = 4
DISPATCHES: Final = 8
"""a record of this topic may be dispatched to LMQs as well"""
INCLUDED: Final = 16
LMQ: Final = 32
UNUSUAL: Final = 64
"""plain, but refused by ``TopicValidator``"""
SEEN: Final = 128
"""a record of the range being scanned was dispatched to it"""
BATCH: Final = 256
"""its queues are batch ConsumeQueues (``queue.type=BatchCQ``)"""
TOPIC: Final = 512
"""a record of the range being scanned has it as its topic, and gets a unit"""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
RETRY_PREFIX: Final = "%RETRY%"
SYSTEM_PREFIX: Final = "rmq_sys_"
LMQ_PREFIX: Final = "%LMQ%"
NAME_BYTES_MAX: Final = 255
TOPIC_MAX_LENGTH: Final = 127
"""``TopicValidator.TOPIC_MAX_LENGTH``"""
_KNOWN: Final = r"\b(?:s3[an]?|gs|abfss?|wasbs?|hdfs|s?webhdfs)"
_USER: Final = re.compile(
    rf"(?i)([a-z][a-z0-9+.-]{{0,30}}:[/\\]{{1,9}}|{_KNOWN}[;.,]?//{{1,9}}|(?<!/)/{{1,9}}(?=:?[^/%?#\s:@][^/?#\s:@]{{0,300}}:(?!/))"
    rf"|{_KNOWN}:(?=[^/?#\s:@]{{1,300}}:))"
    r"([^/?#\s]{0,1000}|[^/?#\s:@]{0,300}:(?!\d+/)[^?#\s]{0,1000})(@|%40)"
)
"""What stands before an @ in a URI's host: also where a password has a slash that should have been %2F, where the @ is written
as %40, and where what belongs between the kind of URI and its host is mistyped. In a path, too, but not in the folder of
a light queue (``%LMQ%a:b@c``). Each place of a hostile text costs a bounded time.
"""
_KEY_PAIR: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{8,100}:[^?#\s]{0,1000}(?=@|%40)")
"""Of AWS, in what has no more of a URI"""
_NO_PORT: Final = re.compile(
    rf"(?i)([a-z][a-z0-9+.-]{{0,30}}://|{_KNOWN}:[/\\]{{1,9}})"
    r"([^/?#\s:@\[\]*\"']{1,300}:(?!\d+(?:\W|$))[^?#\s]+)"
)
"""A key and a secret without their host: they stand where a host and a port would."""
_SECRET: Final = re.compile(
    r"(?i)([?&][^=&\s]*(?:secret|token|password|delegation|signature|credential|key|sig)[^=&\s]*)=[^&\s]*"
)
_PLAIN_CHARACTERS: Final = frozenset("%-_|0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def path_component(name: str) -> str | None:
    """``name`` if it is one plain path component, else None."""
    if name in ("", ".", "..") or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        return None
    if any(c in "/\\" or unicodedata.category(c) in ("Cc", "Cs") for c in name):
        return None
    return name


def is_usual(name: str) -> bool:
    """Whether ``TopicValidator.validateTopic`` takes the name (its length rule aside: V2 records carry longer topics)."""
    return all(c in _PLAIN_CHARACTERS for c in name)


def escape(name: str, limit: int = 300) -> str:
    """A name from the input as it may stand in a log, an error or a report: one line of printable ASCII, no URI's password."""
    text = redacted(name).encode("unicode_escape").decode("ascii")
    return text if len(text) <= limit else f"{text[:limit]}... ({len(name)} characters)"


def redacted(text: str) -> str:
    """``text`` without what URIs in it hold of credentials: user names, passwords, secret options."""
    if "@" in text or "%40" in text:
        text = _KEY_PAIR.sub("***", _USER.sub(_without_user, text))
    if ":" in text:
        text = _NO_PORT.sub(r"\1***", text)
    return _SECRET.sub(r"\1=***", text) if "=" in text else text


def _without_user(found: re.Match[str]) -> str:
    # abfss://container@account: what stands before the @ is no secret, unless it has a password.
    if found[1].lower().startswith("abfs") and ":" not in found[2]:
        return found[0]
    return f"{found[1]}***{found[3]}"


def printable(text: str) -> str:
    """``text`` for a terminal: letters of any script stay; controls, marks of direction and the like are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
