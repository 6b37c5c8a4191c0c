"""The pages hang together: links, anchors, names of files and targets, the picture of the demo. It needs no generator."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from docs import from_code, structures
from rocketmq_reindex.jobs.cli import COMMANDS
from scripts import demo
from tests.docs.pages import AROUND, DOCS, ROOT, anchors, blocks, links, names, rows, section, text_of
from tests.golden.stores import GoldenStore

PAGES = [*AROUND, *(DOCS / f"{page}.md" for page in names())]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_anchors_exist(path: Path) -> None:
    for link in links(path):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = set()
    for page in names():
        for found in re.findall(r"```\{toctree\}\n(.*?)```", text_of(page), re.DOTALL):
            entries = re.findall(r"^(?:[^:\n].*<)?([\w/-]+)>?$", found, re.MULTILINE)
            listed |= {(Path(page).parent / entry).as_posix() for entry in entries}
    assert listed == set(names()) - {"index"}


@pytest.mark.parametrize("page", [page for page in names() if "--files rmq_python," in text_of(page)])
def test_what_is_submitted_finds_its_packages_and_keeps_spark_quiet(page: str) -> None:
    """Each such command is whole: who comes to the page by a search types it as it stands."""
    for block in blocks(page):
        if "--files rmq_python," in block.text:
            assert "export PYSPARK_PYTHON=./rmq_python" in block.text, block
            assert "-Dlog4j2.configurationFile=file:$PWD/log4j2.properties" in block.text, block


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_readme_has_every_command() -> None:
    stated = {row[0] for row in rows(README.split("\n## Commands\n")[1].split("\n## ")[0])}
    assert stated == {f"[`{name}`](docs/reference/{name}.md)" for name in COMMANDS}


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"(?:`| {4}|^)make ([a-z-]+)", text, re.MULTILINE)) <= targets, path


def test_contributing_has_every_target_of_make() -> None:
    targets = re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert targets
    assert [target for target in targets if not re.search(rf"\bmake {target}(?![\w-])", text)] == []


def test_a_version_that_is_not_released_has_no_history() -> None:
    _, unreleased, *_ = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert unreleased.splitlines()[0].endswith("unreleased")
    history = re.compile(r"no longer|any more|used to be|than before|instead of|\bis gone\b|this update")
    assert [line for line in unreleased.splitlines() if history.search(line)] == []
    stated = re.findall(r"^### (.+)$", unreleased, re.MULTILINE)
    assert {*COMMANDS} <= {word for title in stated for word in title.split()}


def test_files_of_the_project_exist() -> None:
    for path in PAGES:
        if path.name == "CHANGELOG.md":
            continue
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"\b(?:jobs|udfs|storage_format|conf|notebooks|scripts|tests)/[\w./-]*\w", text):
            assert (ROOT / name).exists(), f"{path}: {name}"


def test_files_have_what_the_map_says_of_them() -> None:
    """A name in brackets behind a file, or in front of it, is defined in it."""
    said = list[tuple[str, str]]()
    for path in (ROOT / "CONTRIBUTING.md", DOCS / "explanation/architecture.md"):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for file, names_of in re.findall(r"`([\w/]+/\w+\.py)`,? \(?((?:`\w+`(?:, | and )?)+)\)", text):
            said += [(file, name) for name in re.findall(r"`(\w+)`", names_of)]
        said += [(file, name) for name, file in re.findall(r"`(\w+)`\)? (?:in|of) `([\w/]+/\w+\.py)`", text)]
    assert len(said) > 80
    for file, name in said:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *(?:def|class) {name}\b|^{name}\b", source, re.MULTILINE), f"{file}: {name}"


def test_the_map_has_every_package() -> None:
    for package in from_code.FLOORS:
        here = ROOT / package
        there = {path.stem for path in here.glob("[a-z]*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}
        assert {name for layer in from_code.layers_of(package) for name in layer} == there


def test_the_map_says_of_every_file_what_it_is() -> None:
    shown = {package: from_code.packages(package) + from_code.files_in(package) for package in from_code.FLOORS}
    for package, text in shown.items():
        said = dict(re.findall(r"^\| `([\w/]+\.py)` \| (.*) \|$", text, re.MULTILINE))
        paths = (path for path in (ROOT / package).rglob("*.py") if path.stem != "__init__" and path.parent.name != "dags")
        missing = [name for name in (str(path.relative_to(ROOT)) for path in paths) if len(said.get(name, "").split()) < 4]
        assert missing == []


def test_every_example_of_what_crosses_a_border_is_on_the_map() -> None:
    assert re.findall(r"\{from-code\} example (\w+)", text_of("explanation/architecture")) == [*structures.EXAMPLES]


def test_tests_that_security_names_exist() -> None:
    stated = [row[-1] for row in rows(section("explanation/security", "What an attacker cannot do"))]
    named = re.findall(r"`(?:(\w+)/)?(\w+\.py)`", " ".join(stated))
    assert len(named) > len(stated)
    for folder, name in named:
        assert list((ROOT / "tests" / folder).rglob(name)), f"{folder}/{name}"


def test_pictures_are_small_and_load_nothing() -> None:
    for picture in (DOCS / "images").iterdir():
        assert picture.stat().st_size < 100_000
        if picture.suffix == ".png":
            continue
        text = picture.read_text(encoding="utf-8")
        assert not re.search(r"url\((?!#)|href|<script|@import", text), picture


def test_the_picture_shows_the_demo(golden_store: Callable[[str], GoldenStore], capsys: pytest.CaptureFixture[str]) -> None:
    rebuilt = golden_store(demo.NAME).path / "rebuilt"
    assert demo.show(demo.compare(rebuilt, rebuilt)) == 0
    picture = (DOCS / "images" / "demo.svg").read_text(encoding="utf-8")
    shown = html.unescape(" ".join(re.findall(r"<text[^>]*>(.*?)</text>", picture))).split()
    for line in capsys.readouterr().out.splitlines():
        words = line.split()
        assert not words or any(shown[k : k + len(words)] == words for k in range(len(shown))), line


def test_each_word_of_the_glossary_stands_once_in_order_and_leads_on() -> None:
    words: list[str] = []
    for part in text_of("reference/glossary").split("\n## ")[1:]:
        found = [(re.findall(r"\*\*(.+?)\*\*", word), meaning) for word, meaning in rows(part)]
        assert all(names for names, _ in found), part
        firsts = [names[0].lower() for names, _ in found]
        assert firsts == sorted(firsts)
        assert [names for names, meaning in found if "](" not in meaning] == []
        words += [name.lower() for names, _ in found for name in names]
    assert len(words) == len(set(words))


def test_every_claim_of_the_alternatives_has_its_source() -> None:
    """A test that is there, a class of RocketMQ with its version, a public issue, or a page that has one of these."""
    _, _, *parts = text_of("explanation/alternatives").split("\n## ")
    claims = [row for part in parts for row in rows(part)]
    assert len(claims) > 25
    for before, (claim, source) in zip([["", ""], *claims], claims, strict=False):
        named = re.search(r"`tests/[\w/]+\.py`|`\w+(?:\.\w+)?`.*\(\d\.\d\.\d|\]\(", source)
        assert named or (source == "as above" and before[1]), claim
