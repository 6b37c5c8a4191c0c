"""The annotated bytes of docs/explanation/format.md are those of the golden store, whole, under the page's names."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from docs import hex_dumps
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from tests.docs.pages import rows, section, text_of
from tests.golden.stores import GoldenStore


@pytest.fixture
def store(golden_store: Callable[[str], GoldenStore]) -> GoldenStore:
    return golden_store(hex_dumps.STORE)


def values(name: str) -> dict[str, str]:
    """What the dump says of each field but the properties, up to the first colon or blank."""
    return {row.field: re.split("[: ]", row.value)[0] for row in hex_dumps.dumps()[name].rows}


@pytest.mark.parametrize("name", hex_dumps.TITLES)
def test_the_bytes_are_those_of_the_file(name: str, store: GoldenStore) -> None:
    dump = hex_dumps.dumps()[name]
    data = b"".join(row.data for row in dump.rows)
    assert all(row.data and row.field and row.value for row in dump.rows)
    assert (store.path / dump.path).read_bytes()[dump.start :][: len(data)] == data


@pytest.mark.parametrize("name", hex_dumps.TITLES)
def test_every_line_follows_the_one_before(name: str) -> None:
    at = 0
    for line in re.findall(r"^ +\d+  .*$", hex_dumps.dumps()[name].text("x"), re.MULTILINE):
        stated, _, rest = line.strip().partition("  ")
        assert int(stated) == at, line
        more = re.match(r"\.\.\. ([\d,]+) more bytes$", rest)
        at += int(more[1].replace(",", "")) if more else len(bytes.fromhex(rest[:24]))
    assert at == sum(len(row.data) for row in hex_dumps.dumps()[name].rows)


def test_they_are_one_record_and_what_was_derived_from_it(store: GoldenStore) -> None:
    record, unit, item = values("record"), values("unit"), values("item")
    assert int(record["PHYSICALOFFSET"]) == int(unit["phy_offset"]) == int(item["phyOffset"])
    assert int(record["PHYSICALOFFSET"]) == hex_dumps.dumps()["record"].start, "in the first segment"
    assert int(record["TOTALSIZE"]) == int(unit["size"]) == sum(len(row.data) for row in hex_dumps.dumps()["record"].rows)
    assert f"/{record['TOPIC']}/{record['QUEUEID']}/" in hex_dumps.dumps()["unit"].path
    assert hex_dumps.dumps()["unit"].start == 20 * int(record["QUEUEOFFSET"])
    checkpoint = Checkpoint.from_bytes((store.path / "checkpoint").read_bytes())
    assert [int(value) for value in list(values("checkpoint").values())[:6]] == [
        checkpoint.physic, checkpoint.logics, checkpoint.index,
        checkpoint.master_flushed, checkpoint.confirm_offset, checkpoint.logics_offset,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "title"), [("record", "Commitlog record"), ("unit", "ConsumeQueue unit"), ("checkpoint", "Checkpoint")]
)
def test_the_fields_are_those_of_the_table(name: str, title: str) -> None:
    stated = [field.strip() for row in rows(section("explanation/format", title)) for field in row[1].split(",")]
    found = [row.field for row in hex_dumps.dumps()[name].rows]
    assert stated == list(dict.fromkeys(field.replace("property", "PROPERTIES") for field in found if field != "(zeros)"))


def test_each_is_on_the_page() -> None:
    used = re.findall(r"\{from-code\} bytes (.+)", text_of("explanation/format"))
    assert " ".join(used).split() == [*hex_dumps.TITLES]
