"""``verify A --against B``: logs and derived files of two stores, the first difference of each."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.reporting.make import make_page
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.run import Against
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.storage_format.errors import InputError
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore
from tests.tools import spoil
from tests.tools.local_engine import InlineEngine, QuietReporter, single
from tests.tools.local_verify import kinds, local_verify

Stores = Callable[[str], GoldenStore]


def against(a: Path, b: Path) -> VerifyResult:
    settings = VerifySettings(str(a), against=str(b)).check()
    job = Against(settings, QuietReporter(), single(InlineEngine()))
    job.run()
    return job.result


@pytest.fixture
def pair(golden_store: Stores, tmp_path: Path) -> tuple[Path, Path]:
    """A store and its copy."""
    source = golden_store("v2-ipv6-batch").path
    stores = tmp_path / "a", tmp_path / "b"
    for store in stores:
        shutil.copytree(source, store, ignore=shutil.ignore_patterns("rebuilt", "config"))
    return stores


def first(summary: VerifyResult) -> tuple[str, int, str]:
    (finding,) = summary.findings
    example = finding["examples"][0]
    return example["where"], example["at"], example["text"]


def test_a_copy_does_not_differ(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with guarded(pair[0], tmp_path / "b"), guarded(pair[1], tmp_path / "a"):
        summary = against(*pair)
    assert (summary.exit, summary.findings, summary.notes[2:]) == (0, [], [])
    assert summary.bytes == 2 << 20
    assert summary.units == local_verify(pair[0]).units, "and not the zeros behind them"
    assert summary.files == {"consumequeue": len(list((pair[0] / "consumequeue").glob("*/*/*"))), "index": 5}
    assert summary.to_text().endswith("no differences")


def test_live_and_rebuilt_differ_in_names_alone(golden_store: Stores, tmp_path: Path) -> None:
    """The broker names IndexFiles by its clock: they are compared in order."""
    store = golden_store("basic-5.3").path
    shutil.copytree(store / "rebuilt", tmp_path / "b")
    shutil.copytree(store / "commitlog", tmp_path / "b" / "commitlog")
    summary = against(store, tmp_path / "b")
    assert (summary.exit, summary.findings) == (0, [])
    assert any("the order of names" in note for note in summary.notes)
    assert any("checkpoints differ" in note for note in summary.notes)


def test_a_log_with_a_segment_more(pair: tuple[Path, Path]) -> None:
    """One of zeros, as a broker makes ahead: no difference, but told."""
    *_, last = sorted((pair[1] / "commitlog").iterdir())
    size, end = last.stat().st_size, int(last.name) + last.stat().st_size
    (last.parent / f"{end:020d}").write_bytes(bytes(size))
    summary = against(*pair)
    assert (summary.exit, summary.findings) == (0, [])
    assert f"the last segment ends at offset {end} in A, at {end + size} in B" in summary.notes


def test_a_byte_of_the_log(pair: tuple[Path, Path]) -> None:
    hit = spoil.flip_body(pair[1], 700)
    summary = against(*pair)
    assert kinds(summary) == {"against-log-differs": 1}
    assert first(summary)[:2] == ("commitlog", hit.offset)


def test_a_replica_that_is_behind(pair: tuple[Path, Path]) -> None:
    place, _ = spoil.record_offsets(pair[1])[-50]
    path = spoil.segment_paths(pair[1])[-1]
    kept = place - int(path.name)
    path.write_bytes(path.read_bytes()[:kept].ljust(1 << 20, b"\0"))
    where, at, text = first(against(*pair))
    assert where == "commitlog"
    assert place <= at < place + 4, "TOTALSIZE"
    assert text.startswith("B has only zeros from offset")
    assert first(against(*reversed(pair)))[2].startswith("A has only zeros")


def test_a_unit_and_an_item(pair: tuple[Path, Path]) -> None:
    path = pair[1] / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[20 * 7 + 11] ^= 1
    path.write_bytes(data)
    where, at, text = first(against(*pair))
    assert (where, at) == (f"consumequeue/TopicA/0/{0:020d}", 7)
    assert re.fullmatch(r"queue offset 7: phy_offset \d+, size \d+, tagsCode .* in A; phy_offset \d+, size \d+, .* in B", text)
    path.write_bytes((pair[0] / where).read_bytes())
    index = sorted((pair[1] / "index").iterdir())[2]
    data = bytearray(index.read_bytes())
    data[40 + 4 * 200 + 20 * 9 + 3] ^= 1
    index.write_bytes(data)
    where, at, text = first(against(*pair))
    assert (where, at) == (f"index/{index.name}", 9)
    assert text.startswith("item 9: keyHash ")
    data = bytearray((pair[0] / where).read_bytes())
    data[47] ^= 1
    index.write_bytes(data)
    assert first(against(*pair))[2].startswith("slot 1: ")
    data[47] ^= 1
    data[7] ^= 1
    index.write_bytes(data)
    assert first(against(*pair))[2].startswith("beginTimestamp: ")
    data[7] ^= 1
    for at, name in (
        (15, "endTimestamp"),
        (23, "beginPhyOffset"),
        (31, "endPhyOffset"),
        (35, "hashSlotCount"),
        (39, "indexCount"),
    ):
        data[at] ^= 1
        index.write_bytes(data)
        assert first(against(*pair))[2].startswith(f"{name}: ")
        data[at] ^= 1


def test_index_files_of_other_sizes(pair: tuple[Path, Path]) -> None:
    """Nothing of them is compared, also where both are long enough for a header, or neither is."""
    index = sorted((pair[1] / "index").iterdir())[2]
    size = index.stat().st_size
    for other in (size + 20, size - 20, 40, 39, 0):
        os.truncate(index, other)
        _, at, text = first(against(*pair))
        assert (at, text) == (size, f"{size} bytes in A, {other} in B")


def test_files_of_one_store_alone(pair: tuple[Path, Path]) -> None:
    (max((pair[1] / "index").iterdir())).unlink()
    shutil.rmtree(pair[0] / "consumequeue" / "TopicA" / "0")
    summary = against(*pair)
    assert kinds(summary).keys() == {"against-queue-file", "against-index-file"}
    texts = [finding["examples"][0]["text"] for finding in summary.findings]
    assert texts[0].startswith("only in B, ")
    assert texts[1] == "only in A"


def test_what_has_expired_in_one_does_not_count(golden_store: Stores, tmp_path: Path) -> None:
    """The replica keeps fewer segments, and queue files only from there on."""
    source = golden_store("basic-5.3").path
    for name in ("a", "b"):
        shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("rebuilt", "config"))
    (tmp_path / "b" / "commitlog" / f"{0:020d}").unlink()
    path = tmp_path / "b" / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[:20] = bytes(8) + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    path.write_bytes(data)
    assert against(tmp_path / "a", tmp_path / "b").findings == []


def test_no_store(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        against(pair[0], tmp_path / "none")


def test_the_report_tells_what_was_compared(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The log was not asked for units and items, so none is missing."""
    summary = against(*pair)
    text = summary.to_text()
    files = f"{summary.files['consumequeue']} ConsumeQueue files, {summary.files['index']} IndexFiles"
    assert f"compared {summary.bytes:,} bytes of both logs, {summary.units:,} units in {files}\n" in text
    (tmp_path / "verify.json").write_text(summary.to_json())
    page = make_page(str(tmp_path / "verify.json"))
    facts = dict(re.findall(r"<dt>([^<]*)</dt><dd[^>]*>([^<]*)</dd>", page))
    assert list(facts) == ["compared with", "bytes of both logs", "units", "ConsumeQueue files", "IndexFiles"]
    assert (facts["compared with"], facts["units"]) == (str(pair[1]), f"{summary.units:,}")
