"""Settings with which Spark's Hadoop reaches the tables as ``udfs.files`` reaches the files beside them."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

_SIMPLE: Final = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_PROFILE: Final = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"


def hadoop_settings(place: str) -> dict[str, str]:
    """Return settings of a session for writing tables at ``place``. They may hold secrets: never show them.

    Keys in the environment are not among them: Spark takes these over by itself.
    """
    if not files.is_remote(place) or not files.is_known(place):
        return {}
    uri = files.split(place)
    if uri.scheme == "s3":
        return _s3a(uri)
    user, _, host = uri.authority.rpartition("@")
    key = user.partition(":")[2]
    return {f"fs.azure.account.key.{host}": unquote(key)} if key and uri.scheme in ("abfss", "abfs") else {}


def _s3a(uri: files.Uri) -> dict[str, str]:
    user, _, bucket = uri.authority.rpartition("@")
    access, _, secret = user.partition(":")
    options = files.s3_options(uri)
    scheme, found = options.get("scheme", "https"), dict[str, str]()
    if "scheme" in options:
        found["connection.ssl.enabled"] = str(scheme != "http").lower()
    if "endpoint_override" in options:
        own_hosts = options.get("force_virtual_addressing", "").lower() in ("1", "true")
        found["endpoint"] = f"{scheme}://{options['endpoint_override']}"
        found["path.style.access"] = str(not own_hosts).lower()
    if "region" in options:
        found["endpoint.region"] = options["region"]
    if user:
        # Alone: with a session token of the environment, that belongs to another key, they would be refused.
        found |= {"access.key": unquote(access), "secret.key": unquote(secret), "aws.credentials.provider": _SIMPLE}
    elif os.environ.get("AWS_PROFILE") and not os.environ.get("AWS_ACCESS_KEY_ID"):
        found["aws.credentials.provider"] = _PROFILE
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in found.items()}


def hdfs_user(place: str) -> str:
    """Return the user who writes tables in an HDFS; "" when the URI names none. Raises InputError for what is no user's name.

    Hadoop knows a user for the whole process: as its JVM starts, by HADOOP_USER_NAME.
    """
    if not files.is_remote(place) or not files.is_known(place):
        return ""
    uri = files.split(place)
    if uri.scheme not in ("hdfs", "webhdfs", "swebhdfs"):
        return ""
    name, at, _ = uri.authority.rpartition("@")
    user = unquote(name.partition(":")[0]) if at else files.option(uri, "user")
    if not re.fullmatch(r"[^\s\"'\\]*", user):
        raise InputError(f"--tables {escape(place)}: {escape(user)} is no user's name")
    return user
