"""The README says what the program does: its options and their defaults, the summary, the statuses, what the demo prints."""

import argparse
import dataclasses
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_reindex.jobs import demo
from rocketmq_reindex.jobs.building.options import build_parser
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.storage_format.errors import InputError, RefusedError, UsageError
from rocketmq_reindex.storage_format.integers import INT64_MAX
from tests.golden.stores import GoldenStore

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _section(title: str) -> str:
    return README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def _rows(section: str) -> Iterator[list[str]]:
    """The cells of each row of a section's table, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def _options() -> dict[str, argparse.Action]:
    """Every option of ``rmq-reindex build`` but --help."""
    return {name: action for action in build_parser()._actions for name in action.option_strings if action.dest != "help"}


def _default(action: argparse.Action) -> str | None:
    """What the table says when an option has a default of its own; None when a word or two describe it."""
    fields = {field.name: field.default for field in dataclasses.fields(BuildSettings)}
    value = fields.get(action.dest)
    if value is False:
        return "off"
    if isinstance(value, tuple) and value:
        return f"`{','.join(value)}`"
    return f"`{value}`" if value and value != INT64_MAX and value is not dataclasses.MISSING else None


def test_the_table_has_every_option_and_no_other() -> None:
    told = [re.fullmatch(r"`(--[a-z-]+)( [A-Z]+)?`", row[0]) for row in _rows(_section("Options"))]
    assert all(told)
    assert sorted(found[1] for found in told if found) == sorted(_options())


def test_an_option_with_an_argument_shows_it() -> None:
    options = _options()
    for name, *_ in _rows(_section("Options")):
        option, _, argument = name.strip("`").partition(" ")
        assert bool(argument) == (options[option].nargs != 0), option


def test_defaults_are_the_settings() -> None:
    options = _options()
    for name, default, _ in _rows(_section("Options")):
        action = options[name.strip("`").split()[0]]
        expected = _default(action)
        assert expected is None or default == expected, name


@pytest.mark.parametrize("option", ["--on-damage", "--queue-order"])
def test_every_policy_is_explained(option: str) -> None:
    title = {"--on-damage": "Damage", "--queue-order": "Queue order"}[option]
    told = [row[0] for row in _rows(_section(title))]
    assert told == [f"`{choice}`" for choice in _options()[option].choices or ()]


def test_exit_statuses() -> None:
    told = [int(row[0]) for row in _rows(_section("Exit status"))]
    assert told == sorted({0, 3} | {kind.exit_status for kind in (InputError, UsageError, RefusedError)})


def test_the_summary_is_shown_whole() -> None:
    shown = next(block for block in _section("Summary and manifest").split("\n\n") if block.lstrip().startswith("{"))
    keys = re.findall(r'"(\w+)"', re.sub(r": (\{[^}]*\}|\[[^]]*\])", "", shown))
    assert keys == [field.name for field in dataclasses.fields(Summary)]


def _anchors(page: str) -> set[str]:
    """Of a page's headings."""
    titles = [line.lstrip("# ").lower() for line in page.splitlines() if line.startswith("#")]
    return {re.sub(r"[^a-z -]", "", title).replace(" ", "-") for title in titles}


def test_commands_files_and_anchors_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    told = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`| {4})make ([a-z]+)", told)) <= targets
    for link in re.findall(r"\]\(([^)]+)\)", README):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            page = ROOT / (path or "README.md")
            assert page.exists(), link
            assert not anchor or anchor in _anchors(page.read_text(encoding="utf-8")), link
    for path in re.findall(r"(?:jobs|conf|notebooks|scripts)/[\w.-]+\w", README):
        assert (ROOT / path).exists(), path


def test_the_demo_shown_is_the_demo(golden_store: Callable[[str], GoldenStore], capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store(demo.NAME)
    rebuilt = store.path / "rebuilt"
    assert demo.show(demo.compare(rebuilt, rebuilt)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"{len(store.rebuilt())} of {len(store.rebuilt())} files equal, byte for byte"
    shown = {line.strip() for line in README.splitlines()}
    assert {line.strip() for line in printed} <= shown


@pytest.mark.parametrize("kind", ["consumequeue", "index", "checkpoint"])
@pytest.mark.parametrize("harm", ["change", "remove", "add"])
def test_the_demo_sees_any_difference(
    kind: str, harm: str, golden_store: Callable[[str], GoldenStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuilt = golden_store(demo.NAME).path / "rebuilt"
    built = tmp_path / "built"
    shutil.copytree(rebuilt, built)
    path = built / demo.tree(built, kind)[-1]
    if harm == "change":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    elif harm == "remove":
        path.unlink()
    elif kind == "checkpoint":
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        path.with_name("9" * 20).write_bytes(b"")
    assert demo.show(demo.compare(rebuilt, built)) == 1
    assert "files equal, byte for byte" in capsys.readouterr().out.splitlines()[-1]
