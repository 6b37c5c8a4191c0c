"""Names from the log: which may become a path, and how a hostile one is shown."""

from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import is_usual, path_component
from tests.reference import java
from tests.reference.names import is_plain_component

NAMES = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="./\\a%~ \0\n\x7f\x85", max_size=5),
    st.integers(250, 258).map(lambda n: "a" * n),
    st.integers(125, 130).map(lambda n: "é" * n),
)


@given(NAMES)
@example("..")
@example("...")
@example("a" * 255)
@example("😀" * 64)
def test_only_plain_components_become_paths(name: str) -> None:
    component = path_component(name)
    assert (component is not None) == is_plain_component(java.java_text(name))
    if component is not None:
        assert component == name
        assert posixpath.normpath(f"/tree/{component}/0") == f"/tree/{name}/0"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "/",
        "../x",
        "a\\b",
        "nul\0",
        "bell\x07",
        "line\n",
        "del\x7f",
        "c1\x85",
        "\ud800",
        "a" * 256,
        "é" * 128,
    ],
)
def test_names_that_are_refused(name: str) -> None:
    assert path_component(name) is None


@pytest.mark.parametrize("name", ["...", "..a", "%RETRY%g", "a b", "~", "-rf", "$(x)", "Тема", "😀", "a\u202eb", "é" * 127])
def test_odd_names_that_are_plain(name: str) -> None:
    assert path_component(name) == name


@given(st.text(alphabet=st.characters(), max_size=40))
@example("\x1b[31mred\x1b[0m\r\nerror: all is well")
@example("\ud800\udfff\u2028\u202e")
def test_escaped_names_are_one_printable_line(name: str) -> None:
    shown = escape(name)
    assert re.fullmatch(r"[ -~]*", shown)
    if re.fullmatch(r"[ -\[\]-~]*", name):
        assert shown == name


def test_escaped_names_differ_and_end() -> None:
    assert escape("a\\n") != escape("a\n")
    assert escape("é") != escape("\\xe9")
    long = escape("x" * 100_000)
    assert len(long) < 400
    assert "100000 characters" in long


@given(NAMES)
def test_the_brokers_own_characters(name: str) -> None:
    assert is_usual(name) == bool(re.fullmatch(r"[%|a-zA-Z0-9_-]*", name))
