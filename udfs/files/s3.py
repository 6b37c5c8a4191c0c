"""How to reach a bucket: by the options of its URI, else by the environment variables of AWS."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlsplit

from rocketmq_reindex.udfs.files.uris import Uri


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
