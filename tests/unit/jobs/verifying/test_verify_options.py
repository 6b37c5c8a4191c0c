"""The words of ``rmq-reindex verify``, and what a store's own files say in their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import systems
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.command.options import parser_of
from rocketmq_reindex.jobs.publishing.layout import VERIFY_NAME, Leftovers, Pointer, last_beat
from rocketmq_reindex.jobs.verifying.options import VerifySettings, parse_verify
from rocketmq_reindex.jobs.verifying.parts import sampled
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.jobs.verifying.work import take_sizes, work_folder
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.scan.ranges import Segment
from tests.tools.local_verify import kinds, local_verify


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "name a STORE"),
        (["{tmp}", "--sample", "0"], "--sample"),
        (["{tmp}", "--sample", "1.5"], "--sample"),
        (["{tmp}", "--only", "queues"], "--only"),
        (["{tmp}", "--cq-file-size", "77"], "multiple of 20"),
        (["{tmp}", "--out", "x"], "--out"),
        (["{tmp}", "--against", "{tmp}/2", "--only", "index"], "--against"),
        (["{tmp}", "--against", "{tmp}"], "is STORE itself"),
        (["{tmp}", "--master", "spark://h:1"], "--work"),
        (["{tmp}", "--incremental"], "--tables"),
        (["{tmp}", "--tables", "{tmp}/t"], "--incremental"),
        (["{tmp}", "--recheck"], "--recheck"),
        (["{tmp}", "--incremental", "--tables", "{tmp}/t", "--sample", "0.5"], "--sample"),
        (["{tmp}", "--incremental", "--tables", "{tmp}/t", "--against", "{tmp}/2"], "--against"),
        (["{tmp}", "--incremental", "--tables", "ftp://a/b"], "--tables"),
        (["nowhere://bucket/store"], "URI"),
    ],
)  # fmt: skip
def test_wrong_words(words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["verify", *(word.format(tmp=tmp_path) for word in words), "--json"])
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert (status, summary["exit"], summary["command"], summary["bytes"]) == (2, 2, "verify", 0)
    assert text in summary["error"]
    assert err == f"error: {summary['error']}\n"


@pytest.mark.parametrize(("option", "place"), [("--report", "out.json"), ("--work", "commitlog"), ("--report", "index/x")])
def test_nothing_is_written_to_the_store(option: str, place: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lies inside"):
        parse_verify([str(tmp_path), option, str(tmp_path / place)])


def test_a_broker_conf(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path}\nmappedFileSizeConsumeQueue=4000\nmaxHashSlotNum=7\nmaxIndexNum=9\n")
    settings = parse_verify(["--broker-conf", str(conf)])
    assert settings.store == str(tmp_path)
    assert settings.named == {"cq_file_size", "hash_slots", "index_items"}
    settings = parse_verify([str(tmp_path / "other"), "--broker-conf", str(conf), "--hash-slots", "8"])
    assert (settings.store, settings.hash_slots) == (str(tmp_path / "other"), 8)


def test_options_of_a_build_mean_the_same() -> None:
    assert {"--lmq", "--crc", "--delay-levels", "--topics-config"} <= parser_of("verify")._option_string_actions.keys()
    assert not {"--out", "--overwrite", "--on-damage", "--include-topic"} & parser_of("verify")._option_string_actions.keys()


def test_sizes_that_the_files_say(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    for start, size in ((0, 400), (400, 400), (800, 380)):
        (folder / f"{start:020d}").write_bytes(bytes(size))
    (tmp_path / "consumequeue" / "%LMQ%x" / "0").mkdir(parents=True)
    settings, notes = take_sizes(parse_verify([str(tmp_path)]))
    assert (settings.cq_file_size, settings.lmq) == (400, True)
    assert len(notes) == 2
    settings, notes = take_sizes(parse_verify([str(tmp_path), "--cq-file-size", "380", "--lmq"]))
    assert (settings.cq_file_size, notes) == (380, [])
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(1440))
    settings, notes = take_sizes(parse_verify([str(tmp_path)]))
    assert not settings.sizes_known
    assert "index: files without an item: their slots and items are not known" in notes
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(39) + b"\x05" + bytes(1400))
    with pytest.raises(InputError, match="give --hash-slots"):
        take_sizes(parse_verify([str(tmp_path)]))
    settings, _ = take_sizes(parse_verify([str(tmp_path), "--hash-slots", "50"]))
    assert settings.index_items == 60
    settings, _ = take_sizes(parse_verify([str(tmp_path), "--index-items", "60"]))
    assert settings.hash_slots == 50


def test_a_sample_is_spread_and_has_the_last_segment() -> None:
    segments = [Segment(f"{k}", "", k, k + 1, k + 1) for k in range(10)]

    def numbers(share: float) -> list[int]:
        return [segment.start for segment in sampled(segments, share)]

    assert numbers(1.0) == list(range(10))
    assert numbers(0.3) == [0, 3, 6, 9]
    assert numbers(0.01) == [0, 9]
    assert sampled([], 0.5) == []


def test_a_store_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    summary = local_verify(tmp_path)
    assert (summary.error, kinds(summary)) == (None, {"checkpoint-missing": 1})
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(7) + b"\x07" + (200).to_bytes(4, "big") + bytes(400 - 12))
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    assert kinds(local_verify(tmp_path)) == {"queue-unit-no-record": 1}
    (tmp_path / "commitlog" / "junk").write_bytes(b"")
    summary = local_verify(tmp_path)
    assert (summary.exit, summary.findings) == (1, [])
    assert "is not a segment" in str(summary.error)


def test_an_example_is_told_with_its_text_where_it_has_one() -> None:
    examples = [{"where": "T/0", "text": "what differs"}, {"where": "T/1", "text": ""}]
    finding = {"kind": "queue-stale", "part": "queues", "text": "old", "count": 2, "mend": "look at it", "examples": examples}
    lines = VerifyResult(findings=[finding]).to_text().splitlines()
    at = lines.index("    T/0: what differs")
    assert lines[at : at + 3] == ["    T/0: what differs", "    T/1", "    look at it"]


def test_the_work_folder_goes_whatever_happens(tmp_path: Path) -> None:

    def fail() -> None:
        with work_folder(str(tmp_path), Leftovers()) as staging:
            assert Path(staging.root).parent == tmp_path
            raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        fail()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="is not a folder"), work_folder(str(tmp_path / "none"), Leftovers()):
        pass


def test_the_work_folder_of_a_mount_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By them a later build knows which of such folders a killed verify left."""
    monkeypatch.setattr(systems, "_MOUNTED", (f"{tmp_path}/mount/",))
    work = tmp_path / "mount" / "out" / "work"
    with pytest.raises(InputError, match="lies in no folder: make that first"), work_folder(str(work), Leftovers()):
        pass
    work.parent.mkdir(parents=True)
    with work_folder(f"{work.parent}/other/../work", Leftovers()) as staging:
        assert Path(staging.root).parent == work
        assert VERIFY_NAME.fullmatch(Path(staging.root).name)
        assert last_beat(staging.root)
    assert list(work.iterdir()) == []


def test_work_may_lie_in_a_store_only_where_builds_hand_on_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(work: str) -> None:
        VerifySettings(store=str(tmp_path / "mount" / "out"), work=work).check()

    out = tmp_path / "mount" / "out"
    (out / "published").mkdir(parents=True)
    pointer = out / "published" / Pointer(1, "0" * 32).name
    pointer.write_text('{"manifest": ""}')
    for mounted, refused in ((f"{tmp_path}/mount/", ("work/deep", "")), ("/none/", ("work", "work/deep", ""))):
        monkeypatch.setattr(systems, "_MOUNTED", (mounted,))
        for name in refused:
            with pytest.raises(InputError, match="where nothing is written"):
                checked(str(out / name))
    monkeypatch.setattr(systems, "_MOUNTED", (f"{tmp_path}/mount/",))
    checked(str(out / "work"))
    pointer.unlink()
    with pytest.raises(InputError, match="where nothing is written"):
        checked(str(out / "work"))


def test_a_work_folder_that_stays_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = VerifyResult()
    with summary.telling_leftovers(), work_folder(str(tmp_path), summary.leftovers) as staging:
        (Path(staging.root) / "one").write_bytes(b"1")
        monkeypatch.setattr(files, "remove_tree", lambda _: "Access Denied")
    assert summary.counts()["files_not_removed"] == 1
    assert [entry["names"] for entry in summary.not_removed] == [[Path(staging.root).name]]
    assert summary.notes == [
        f"{tmp_path}: {Path(staging.root).name} could not be removed (Access Denied): 1 file, 1 byte stay there"
    ]
