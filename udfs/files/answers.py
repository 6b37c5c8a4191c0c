"""What the errors of an object store mean: whether to ask again, and which words say what is wrong.

pyarrow gives an error of AWS's SDK as text alone: ``When ... key 'K' in bucket 'B': AWS Error CODE during OPERATION operation:
MESSAGE``. ``CODE`` is UNKNOWN with the HTTP status where the SDK knows no better.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape

_ERROR: Final = re.compile(
    r"AWS Error (?P<code>[A-Z_0-9]+)(?: \(HTTP status (?P<status>\d+)\))? during (?P<operation>\w+) operation: "
)
_REQUEST: Final = re.compile(r" \(Request ID: [^)]*\)")
_UNKNOWN: Final = re.compile(r"Unable to parse ExceptionName: (\S+) Message: ")
_TRANSIENT: Final = frozenset(
    {"INTERNAL_FAILURE", "SERVICE_UNAVAILABLE", "THROTTLING", "SLOW_DOWN", "REQUEST_TIMEOUT", "NETWORK_CONNECTION"}
)
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 509, 529})
_TRANSIENT_WORDS: Final = re.compile(
    r"(?i)internal error|reduce your request rate|slow ?down|service ?unavailable|"
    r"\b(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED)\b|\b(500|502|503|504) "
)
"""What removing many objects says of one of them, and what the other clouds' libraries say once they have given up."""
_QUOTED: Final = re.compile(r"'[^'\n]*'")
_NO_CONNECTION: Final = re.compile(r"curlCode: (?P<curl>\d+)")
_TLS: Final = frozenset({35, 51, 53, 54, 58, 59, 60, 64, 66, 77, 80, 82, 83, 90, 91})
_NO_ADDRESS: Final = 6
_FLUSH: Final = "Failed to flush response stream"
_NO_BODY: Final = "No response body"
_LENGTH: Final = 300
_KEYS: Final = "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, at AWS_PROFILE, or at the URI"
_ADVICE: Final = {
    "INVALID_ACCESS_KEY_ID": f"the store does not know this access key: {_KEYS}",
    "SIGNATURE_DOES_NOT_MATCH": f"the secret key does not fit the access key: {_KEYS}",
}
NO_BUCKET: Final = "there is no such bucket: make the bucket first, or name another"
_BUCKET: Final = {
    "NO_SUCH_BUCKET": NO_BUCKET,
    "NoSuchBucket": NO_BUCKET,
    "InvalidBucketName": "is no name of a bucket: bucket names have 3 to 63 small letters, digits, dots and hyphens",
}
"""By the code of the answer: the bucket itself is wrong, whatever was asked of it."""


def lacks_reason(error: OSError) -> bool:
    """Whether the answer had no body, as that to a HEAD: a GET of the same then says what is wrong."""
    return _NO_BODY in str(error)


def hides_reason(error: OSError) -> bool:
    """Whether the reason was lost: the SDK wants to write an error's text to where the bytes go, and it is too long for it."""
    return _FLUSH in str(error)


def tries(error: OSError, most: int) -> int:
    """How often at most a request is tried that ended with ``error``: once where the same answer would come again."""
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)):
        return 1
    text = str(error)
    found, connection = _ERROR.search(text), _NO_CONNECTION.search(text)
    if connection and int(connection["curl"]) in _TLS:
        return 1
    if connection and int(connection["curl"]) == _NO_ADDRESS:
        # A name server may be slow for once. Mostly the name is wrong.
        return min(most, 4)
    if found:
        again = found["code"] in _TRANSIENT or int(found["status"] or 0) in _TRANSIENT_STATUS
        return most if again else 1
    # What is in quotes is a name.
    return most if _TRANSIENT_WORDS.search(_QUOTED.sub("", text)) else 1


def reason(error: OSError) -> str:
    """What the answer says, in one line, with its code and the request."""
    text = error.strerror or str(error)
    found = _ERROR.search(text)
    if not found:
        return text
    message = _REQUEST.sub("", text[found.end() :]).strip().rstrip(".")
    code = found["code"] if not found["status"] else f"HTTP status {found['status']}"
    if other := _UNKNOWN.match(message):
        code, message = other[1], message[other.end() :]
    if message in ("", _NO_BODY) or _FLUSH in message:
        return f"{found['operation']} ended with {code} and no reason"
    advice = f": {_ADVICE[code]}" if code in _ADVICE else ""
    return escape(f"{message} ({code}, {found['operation']})", _LENGTH) + advice


def told(error: OSError, place: str, number: int, seconds: float) -> Exception:
    """The error to raise for the last answer of ``number``, in ``seconds`` s: it names ``place``, a URI with bucket and key."""
    said = reason(error)
    for code, words in _BUCKET.items():
        if f"({code}, " in said:
            scheme, _, rest = place.partition("://")
            return InputError(f"{escape(f'{scheme}://' + rest.partition('/')[0])}: {words}")
    often = f" (tried {number} times in {seconds:.0f} s)" if number > 1 else ""
    return OSError(error.errno or errno.EIO, f"{said}{often}", error.filename or place)
