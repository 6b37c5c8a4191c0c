"""Which checksums the AWS SDK is asked for, by where a connection leads to and by what the user has set; how one fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import systems
from rocketmq_reindex.files.systems import plain_checksums
from rocketmq_reindex.storage_format.errors import InputError

REQUEST, RESPONSE = "AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"
MINIO = {"endpoint_override": "minio.local:9000"}


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (REQUEST, RESPONSE, "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


def asked(options: dict[str, str]) -> tuple[str | None, str | None]:
    before = dict(os.environ)
    with plain_checksums(options):
        found = os.environ.get(REQUEST), os.environ.get(RESPONSE)
    assert dict(os.environ) == before
    return found


@pytest.mark.parametrize(
    ("options", "value"),
    [
        (MINIO, "when_required"),
        ({"endpoint_override": "127.0.0.1:1"}, "when_required"),
        ({"endpoint_override": "amazonaws.com.example.org"}, "when_required"),
        ({}, None),
        ({"region": "eu-west-1"}, None),
        ({"endpoint_override": "S3.eu-west-1.amazonaws.com"}, None),
        ({"endpoint_override": "bucket.vpce-1-2.s3.eu-west-1.vpce.amazonaws.com:443"}, None),
        ({"endpoint_override": "s3.cn-north-1.amazonaws.com.cn"}, None),
    ],
)
def test_amazons_own_store_gets_what_the_sdk_takes(options: dict[str, str], value: str | None) -> None:
    assert asked(options) == (value, value)


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUEST, "when_supported")
    assert asked(MINIO) == ("when_supported", "when_required")


def test_the_configuration_file_counts_as_well(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("[default]\nRegion = x\n[profile own]\nrequest_checksum_calculation = when_supported\n")
    assert asked(MINIO) == ("when_required", "when_required")
    monkeypatch.setenv("AWS_PROFILE", "own")
    assert asked(MINIO) == (None, "when_required")
    config.write_bytes(b"\xff no configuration [")
    assert asked(MINIO) == ("when_required", "when_required")


def test_a_bucket_whose_region_is_not_found_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a request has the place beside its text: that comes in front, and no number of the system's."""

    def no_answer(_: object) -> None:
        raise OSError(errno.EIO, "no address (NETWORK_CONNECTION, HeadBucket)", "s3://unheard")

    monkeypatch.setattr(systems, "open_s3", no_answer)
    with pytest.raises(InputError) as raised:
        files.names("s3://unheard/store")
    assert str(raised.value) == "s3://unheard: no address (NETWORK_CONNECTION, HeadBucket)"
