"""How to reach a bucket: by the options of its URI, else by environment variables of AWS's and of our own."""

from __future__ import annotations

import configparser
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.object_store import ObjectStore, patiently
from rocketmq_reindex.udfs.files.uris import Uri

if TYPE_CHECKING:
    from pyarrow import fs as pafs

_CHECKSUMS: Final = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "request_checksum_calculation",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "response_checksum_validation",
}
"""What says in the environment, and in AWS's configuration file, which checksums the AWS SDK adds and looks at."""
_AMAZON: Final = (".amazonaws.com", ".amazonaws.com.cn")
_SECONDS: Final = {"request_timeout": 60.0, "connect_timeout": 10.0}
"""Of silence before a request is given up, and of waiting for a connection. pyarrow has 3 s and 1 s, too short for many."""
_MOST_SECONDS: Final = 3600
_VARIABLE: Final = "RMQ_REINDEX_{}"
_FLAGS: Final = ("allow_bucket_creation", "allow_bucket_deletion", "force_virtual_addressing", "allow_delayed_open")
_WORDS: Final = ("endpoint_override", "scheme", "region", "tls_ca_file_path")
_NO_DELAY: Final = "allow_delayed_open"
"""An option by which a small file takes one request instead of three; older versions of pyarrow do not know it."""
_PART_TRIES: Final = 3
"""of each part of a large file: AWS's SDK makes pauses of 25 ms and then twice as long each"""


def s3_options(uri: Uri) -> dict[str, str]:
    """The options in pyarrow's names: ``endpoint_override`` (HOST:PORT), ``scheme``, ``region``, and all others of the URI."""
    options = dict(parse_qsl(uri.query, keep_blank_values=True))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in options:
        found = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options |= {"endpoint_override": found.netloc, "scheme": found.scheme}
    if "endpoint_override" in options and "region" not in options:
        # Amazon's own store is asked for its region; others do not answer that.
        options["region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return options


def open_s3(uri: Uri) -> ObjectStore:
    """The store of a URI. Raises InputError for a wrong option, and what pyarrow raises."""
    options = s3_options(uri)
    seconds = {name: _seconds(uri, options.pop(name, ""), name) for name in _SECONDS}
    with plain_checksums(options):
        once, parts = _systems(uri, options, seconds)
    return ObjectStore(once, parts, "s3")


def _seconds(uri: Uri, value: str, name: str) -> float:
    """The seconds that a URI or the environment gives for one of _SECONDS."""
    variable = _VARIABLE.format(name.upper())
    where = f"s3://{escape(uri.authority.rpartition('@')[2])}?{name}={escape(value)}"
    if not value and (value := os.environ.get(variable, "")):
        where = f"{variable}={escape(value)}"
    try:
        found = float(value or _SECONDS[name])
    except ValueError:
        found = 0.0
    if not 1 <= found <= _MOST_SECONDS:
        raise InputError(f"{where}: takes seconds, from 1 to {_MOST_SECONDS}")
    return found


def _systems(uri: Uri, options: dict[str, str], seconds: dict[str, float]) -> tuple[pafs.FileSystem, pafs.FileSystem]:
    """The file systems that try a request once, and that send a file in parts."""
    from pyarrow import fs as pafs

    if options.keys() - {*_FLAGS, *_WORDS}:
        # pyarrow knows some only in a URI, which cannot have the time limits. It refuses what it does not know.
        system, _ = pafs.FileSystem.from_uri(f"s3://{uri.authority}/?{urlencode(options)}")
        return system, system
    user, _, bucket = uri.authority.rpartition("@")
    access, _, secret = user.partition(":")
    words: dict[str, Any] = dict(seconds)
    words |= {name: _flag(value) if name in _FLAGS else value for name, value in options.items()}
    if user:
        words |= {"access_key": unquote(access), "secret_key": unquote(secret)}
    if "region" not in words:
        words["region"] = patiently(lambda: pafs.resolve_s3_region(bucket), f"s3://{bucket}")

    once, few = pafs.AwsStandardS3RetryStrategy(max_attempts=1), pafs.AwsDefaultS3RetryStrategy(max_attempts=_PART_TRIES)
    delayed = words.pop(_NO_DELAY, True)
    # Without delay an upload begins as its stream is opened: a stream that could not begin it later leaves an empty object.
    parts = pafs.S3FileSystem(**words, retry_strategy=few)
    try:
        return pafs.S3FileSystem(**words, **{_NO_DELAY: delayed}, retry_strategy=once), parts
    except TypeError as error:
        if _NO_DELAY not in str(error):
            raise
        return pafs.S3FileSystem(**words, retry_strategy=once), parts


def _flag(value: str) -> bool:
    return value.lower() in ("1", "true")


@contextlib.contextmanager
def plain_checksums(options: dict[str, str]) -> Iterator[None]:
    """Open a connection in this block: unless it leads to AWS, its requests have only checksums that every server knows.

    The AWS SDK adds a CRC64NVME to each write since 2025, and other servers answer 501 or 400 to that. It asks the environment
    when it makes a client. What the user has set, there or in AWS's configuration file, stays.
    """
    host = options.get("endpoint_override", "").partition(":")[0].lower()
    known = _configured() if host and not host.endswith(_AMAZON) else set(_CHECKSUMS.values())
    missing = [name for name, key in _CHECKSUMS.items() if name not in os.environ and key not in known]
    os.environ.update(dict.fromkeys(missing, "when_required"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _configured() -> set[str]:
    """The keys that AWS's configuration file has for the profile in use."""
    file = configparser.RawConfigParser(strict=False)
    path = os.environ.get("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config")
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    with contextlib.suppress(OSError, ValueError, configparser.Error):
        file.read(path, encoding="utf-8")
    sections = [name for name in (f"profile {profile}", profile) if file.has_section(name)]
    return {key for name in sections for key in file.options(name)}
