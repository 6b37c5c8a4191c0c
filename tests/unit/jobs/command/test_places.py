"""Paths and URIs of all commands: one that is mistyped is refused by each option and argument in the same words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import COMMANDS, main
from rocketmq_reindex.jobs.command.option_table import options_of

OF_PLACES = {"BUILD", "DIR", "FILE", "MANIFEST", "PATH", "STORE", "STORE2", "URI"}
OTHERS = {
    "", "BYTES", "FRACTION", "GLOB", "GROUP", "HOST:PORT", "ID", "K", "LEVELS", "MSGID", "N", "NAME", "NAME=FILE", "NAME=STORE",
    "OLD=NEW", "PARTS", "POLICY", "Q", "REGEX", "SOURCE", "SQL", "T", "TAG", "TEXT", "TIME", "URL", "VERSION",
}  # fmt: skip
ON_DISK = {
    "export to", "import source", "import to", "metrics", "report", "report store", "report source", "report summary",
    "report out", "replay journal", "replay credentials",
}  # fmt: skip


def places() -> Iterator[tuple[str, str]]:
    for command in COMMANDS:
        for name, option in options_of(command).items():
            if option.metavar in OF_PLACES:
                yield command, name


def test_each_value_is_known_to_be_a_place_or_none() -> None:
    assert {option.metavar for command in COMMANDS for option in options_of(command).values()} == OF_PLACES | OTHERS


def errors_of(command: str, name: str, place: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit status and the errors of a command with that place; what else it would need is not there."""
    option = options_of(command)[name]
    given = [place] if option.is_argument else [f"--{name.replace('_', '-')}", place]
    status = main([command, *given])
    return status, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(("command", "name"), list(places()))
@pytest.mark.parametrize("place", ["file:x", "file:/x", "s3:/b/x", "S3:b"])
def test_slashes_that_are_missing(command: str, name: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = errors_of(command, name, place, capsys)
    begin = "" if options_of(command)[name].is_argument else f"--{name.replace('_', '-')} "
    assert status == 2
    assert lines[0] == f"error: {begin}{place}: is no URI: write it with ://, or ./{place} for a path of that name"


@pytest.mark.parametrize(("command", "name"), [each for each in places() if each[1] != "tables"])
def test_uris_that_cannot_be_one(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = errors_of(command, name, "ftp://host/x", capsys)
    assert status == 2
    assert "ftp://host/x: is a URI of an unknown kind: take s3://, " in lines[0]


@pytest.mark.parametrize(("command", "name"), [each for each in places() if {each[1], " ".join(each)} & ON_DISK])
def test_uris_of_what_lies_on_a_disk(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = errors_of(command, name, "s3://bucket/x", capsys)
    assert status == 2
    assert "s3://bucket/x: is a URI: name a " in lines[0]
    assert lines[0].endswith(" on a disk")


def test_as_in_python() -> None:
    with pytest.raises(rr.UsageError, match=r'^out="file:x": is no URI: write it with ://'):
        rr.report("built", out="file:x")
    with pytest.raises(rr.UsageError, match=r'^work="s3:/x": is no URI: write it with ://'):
        rr.verify("store", work="s3:/x")
