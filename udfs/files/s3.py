"""How to reach a bucket: by the options of its URI, else by the environment variables of AWS."""

from __future__ import annotations

import configparser
import contextlib
import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from rocketmq_reindex.udfs.files.uris import Uri

_CHECKSUMS: Final = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "request_checksum_calculation",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "response_checksum_validation",
}
"""What says in the environment, and in AWS's configuration file, which checksums the AWS SDK adds and looks at."""
_AMAZON: Final = (".amazonaws.com", ".amazonaws.com.cn")


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
