"""A release belongs to the line whose bytes it writes."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.versions import VERSIONS, alike, line_of


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("4.0.0", "4.9"), ("4.9", "4.9"), ("4.9.8", "4.9"), ("5.0.0", "5.3"), ("5.1.4", "5.3"), ("5.2", "5.3"),
        ("5.3.4", "5.3"),
        ("5.4.0", "5.4"), ("5.5.1", "5.5"), ("5.5.12", "5.5"),
    ],
)  # fmt: skip
def test_a_release_has_a_line(release: str, line: str) -> None:
    assert line_of(release) == line


def test_a_line_is_its_own() -> None:
    assert [line_of(version) for version in VERSIONS] == list(VERSIONS)


@pytest.mark.parametrize("word", ["", "5", "5.", "5.3.", "v5.3", "5.3.3.1", "5.3-SNAPSHOT", "latest", "5.3\n", "٥.٣"])
def test_what_is_no_release(word: str) -> None:
    with pytest.raises(ValueError, match=r"is no release such as 5.3.3, and no line such as 5.3"):
        line_of(word)


@pytest.mark.parametrize("release", ["3.2.6", "5.6", "5.6.0", "6.0.0", "5.10.1"])
def test_a_release_of_no_line(release: str) -> None:
    with pytest.raises(ValueError, match=r"is not known: take one of 5.5, 5.4, 5.3, 4.9, or a release of 4.x to 5.5.x"):
        line_of(release)


@pytest.mark.parametrize(
    ("versions", "are"),
    [(["5.3", "4.9"], True), (["5.4", "5.3", "4.9"], False), (["5.5", "5.4"], False), (["5.5"], True), ([], False)],
)
def test_files_that_serve_each_version(versions: list[str], are: bool) -> None:
    assert alike(versions) == are
