"""What every store keeps to, whatever lies behind it: inherited by one class for each kind of store."""

from __future__ import annotations

import json
import random
import threading

import numpy as np
import pytest

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError


class FilesContract:
    """``place`` is a folder that is not there yet."""

    odd_names: tuple[str, ...] = ("a b", "a%20b", "é😀", "*", "...", "%RETRY%group", "%LMQ%a|b", "a+b&c=d")
    copies = False

    @pytest.fixture
    def aside(self, place: str) -> str:
        folder = files.join(place, "aside")
        files.make_folder(folder)
        return folder

    def test_writes_and_reads(self, place: str, aside: str) -> None:
        target = files.join(place, "file")
        with files.writing(aside, target) as writer:
            writer.append(b"one ")
            writer.append(memoryview(b"two "))
            writer.append(np.array([0x33], ">u4"))
            assert files.entry_of(target).kind == files.ABSENT
            writer.finish()
        assert writer.written == 12
        assert files.read_bytes(target) == b"one two \0\0\0\x33"
        entry = files.entry_of(target)
        assert (entry.name, entry.kind, entry.size, entry.path) == ("file", files.FILE, 12, target)
        assert entry.modified > 10**18
        # A bucket may give milliseconds in a listing and seconds elsewhere.
        grain = 10**9 if files.is_flat(place) else 1
        listed = [found.modified for found in files.listing(place) if found.name == "file"]
        assert [when // grain for when in listed] == [entry.modified // grain]
        assert files.names(aside) == []

    def test_what_lies_between_is_zeros(self, place: str, aside: str) -> None:
        target = files.join(place, "file")
        with files.writing(aside, target) as writer:
            writer.append(b"head")
            writer.write_at(3 << 20, b"middle")
            writer.write_at((3 << 20) + 6, b"!")
            writer.finish(4 << 20)
        data = files.read_bytes(target)
        assert len(data) == 4 << 20
        assert data == b"head".ljust(3 << 20, b"\0") + b"middle!".ljust(1 << 20, b"\0")
        assert writer.written == 11

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
    def test_a_body_that_raises_leaves_nothing(self, place: str, aside: str, error: type[BaseException]) -> None:
        target = files.join(place, "file")
        with pytest.raises(error), files.writing(aside, target) as writer:  # noqa: PT012
            writer.append(b"half of it")
            raise error
        assert files.entry_of(target).kind == files.ABSENT
        assert files.names(aside) == []

    def test_a_body_that_raises_leaves_the_file_before(self, place: str, aside: str) -> None:
        target = files.join(place, "file")
        files.write_bytes(aside, target, [b"old"])
        with pytest.raises(ValueError), files.writing(aside, target) as writer:  # noqa: PT011, PT012
            writer.append(b"half of it")
            raise ValueError
        assert files.read_bytes(target) == b"old"
        files.write_bytes(aside, target, [b"new"])
        assert files.read_bytes(target) == b"new"
        assert files.names(aside) == []

    def test_attempts_of_one_task_never_meet(self, place: str, aside: str) -> None:
        target, parts = files.join(place, "file"), [bytes([k]) * 1000 for k in range(50)]
        first, second = files.Writer(aside, target), files.Writer(aside, target)
        for part in parts:
            first.append(part)
            second.append(part)
        second.finish()
        assert files.read_bytes(target) == b"".join(parts)
        first.finish()
        assert files.read_bytes(target) == b"".join(parts)
        assert files.names(aside) == []

    def test_many_at_once(self, place: str, aside: str) -> None:
        errors = list[BaseException]()

        def work() -> None:
            try:
                for k in range(5):
                    files.write_bytes(aside, files.join(place, f"{k}"), [b"%d" % k, b"\n"])
            except BaseException as error:  # noqa: BLE001  told below
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        assert [files.read_bytes(files.join(place, f"{k}")) for k in range(5)] == [b"%d\n" % k for k in range(5)]

    def test_ranges(self, place: str, aside: str, seed: int) -> None:
        target, data = files.join(place, "segment"), random.Random(seed).randbytes(300_000)
        files.write_bytes(aside, target, [data])
        rng = random.Random(seed + 1)
        with files.Reader(target) as reader:
            assert reader.size() == len(data)
            for _ in range(5):
                at = rng.randrange(len(data))
                count = rng.randrange(len(data) - at + 1)
                assert reader.read(at, count) == data[at : at + count]
                out = np.zeros(count, np.uint8)
                reader.read_into(at, out)
                assert out.tobytes() == data[at : at + count]
            assert reader.read(len(data), 0) == b""
            with pytest.raises(InputError, match="ends at byte 300000, shorter than when the run began: input changed"):
                reader.read(len(data) - 5, 6)
            view = reader.view(100, 50)
            assert view is None or view[:50].tobytes() == data[100:150]
            assert reader.next_data(7) == 7

    def test_what_stands_there(self, place: str, aside: str) -> None:
        files.write_bytes(aside, files.join(place, "file"), [b"four"])
        files.make_folder(files.join(place, "folder", "deep"))
        files.write_bytes(aside, files.join(place, "folder", "deep", "x"), [b""])
        found = {entry.name: (entry.kind, entry.size) for entry in files.listing(place) if entry.name != "aside"}
        assert found == {"file": (files.FILE, 4), "folder": (files.FOLDER, 0)}
        assert [entry.path for entry in files.listing(files.join(place, "folder"))] == [files.join(place, "folder", "deep")]
        assert files.entry_of(files.join(place, "folder")).kind == files.FOLDER
        assert files.entry_of(files.join(place, "none")).kind == files.ABSENT
        assert files.entry_of(files.join(place, "folder", "deep", "x")).size == 0
        with pytest.raises(FileNotFoundError):
            files.read_bytes(files.join(place, "none"))

    def test_odd_names_are_names(self, place: str, aside: str) -> None:
        for name in self.odd_names:
            target = files.join(place, "odd", name, "f")
            files.make_folder(files.parent(target))
            files.write_bytes(aside, target, [name.encode()])
            assert files.read_bytes(target) == name.encode()
            assert (files.base(files.parent(target)), files.base(target)) == (name, "f")
        listed = files.listing(files.join(place, "odd"))
        assert {entry.name for entry in listed} == set(self.odd_names) == set(files.names(files.join(place, "odd")))
        for entry in listed:
            assert files.read_bytes(files.join(entry.path, "f")) == entry.name.encode()

    def test_all_files_below(self, place: str, aside: str) -> None:
        wanted = [*(f"{name}/0/f" for name in self.odd_names), "file", "deep/er/still/x"]
        for k, name in enumerate(wanted):
            target = files.join(place, "tree", name)
            files.make_folder(files.parent(target))
            files.write_bytes(aside, target, [bytes(k)])
        found = files.below(files.join(place, "tree"))
        assert {entry.name: entry.size for entry in found} == {name: k for k, name in enumerate(wanted)}
        for entry in found:
            assert entry.path == files.join(place, "tree", entry.name)
            there = files.entry_of(entry.path)
            assert (there.kind, there.modified // 10**9) == (files.FILE, entry.modified // 10**9)
        assert files.below(files.join(place, "none")) == []

    def test_a_copy_within_the_store(self, place: str, aside: str) -> None:
        """Only buckets have that."""
        for name in self.odd_names:
            one, other = files.join(place, "one", name), files.join(place, "other", name)
            for target in (one, other):
                files.make_folder(files.parent(target))
            files.write_bytes(aside, one, [name.encode()])
            assert files.copy_in_store(one, other) == self.copies
            if self.copies:
                assert files.read_bytes(one) == files.read_bytes(other) == name.encode()
        assert not files.copy_in_store(files.join(place, "none"), files.join(place, "new"))
        assert files.entry_of(files.join(place, "new")).kind == files.ABSENT

    def test_removing(self, place: str, aside: str) -> None:
        for name in ("keep/file", "tree/deep/file", "tree/file", "file"):
            target = files.join(place, name)
            files.make_folder(files.parent(target))
            files.write_bytes(aside, target, [b"x"])
        for name in ("tree", "file", "none"):
            files.remove_tree(files.join(place, name))
        assert set(files.names(place)) - {"aside"} == {"keep"}
        assert files.read_bytes(files.join(place, "keep", "file")) == b"x"

    def test_renaming_replaces(self, place: str, aside: str) -> None:
        one, other = files.join(place, "one"), files.join(place, "other")
        files.write_bytes(aside, one, [b"one"])
        files.write_bytes(aside, other, [b"other"])
        files.rename(one, other)
        assert files.read_bytes(other) == b"one"
        assert files.entry_of(one).kind == files.ABSENT

    def test_lines(self, place: str, aside: str) -> None:
        target = files.join(place, "lines")
        lines = [json.dumps({"number": k}).encode() for k in range(3000)]
        files.write_bytes(aside, target, [line + b"\n" for line in lines])
        assert list(files.lines(target)) == lines

    def test_more_than_is_held(self, place: str, aside: str, seed: int) -> None:
        """A file that is held until it is whole lies on a disk when it is large."""
        target, piece = files.join(place, "large"), random.Random(seed).randbytes(1 << 20)
        with files.writing(aside, target) as writer:
            for _ in range(34):
                writer.append(piece)
            assert files.entry_of(target).kind == files.ABSENT
            writer.finish()
        with files.Reader(target) as reader:
            assert reader.size() == 34 << 20
            out = np.zeros(33 << 20, np.uint8)
            reader.read_into(1 << 20, out)
            assert out.tobytes() == piece * 33
            with pytest.raises(InputError, match=f"ends at byte {34 << 20}, shorter"):
                reader.read_into(2 << 20, out)
