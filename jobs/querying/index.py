"""The physical offsets of a key, from all IndexFiles of a store.

The broker leaves files and items out by their times. These are rounded, and they are wrong for a file's first item and where a
clock went back. They are not used here: to look into a file costs a slot and a chain, and the record has its own store time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rocketmq_reindex.jobs.querying.options import IndexSizes
from rocketmq_reindex.jobs.store.folders import entries, reason
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import is_index_file
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, IndexHeader, file_size
from rocketmq_reindex.storage_format.index.lookup import FOUND_ALL, LookupHeader, lookup
from rocketmq_reindex.storage_format.index.sizes import quick_sizes
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import form
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.pages import Pages


def _sizes(found: tuple[int, int] | None) -> IndexSizes | None:
    return None if found is None else IndexSizes(*found)


@dataclass
class _File:
    name: str
    path: str
    pages: Pages
    sizes: IndexSizes | None = None


class IndexFiles:
    """The IndexFiles in a folder. ``present`` is false where there is no such folder."""

    def __init__(self, folder: str, sizes: IndexSizes | None, notes: Notes) -> None:
        self._notes = notes
        listed = entries(folder, notes)
        self.present = listed is not None
        self._files: list[_File] = []
        for entry in listed or []:
            if entry.kind == files.FILE and is_index_file(entry.name):
                self._open(entry)
            else:
                notes.add("not an IndexFile", f"{escape(entry.path)}: is no IndexFile: not looked at", lost=False)
        self._find_sizes(sizes)

    def _open(self, entry: files.Entry) -> None:
        try:
            pages = Pages(entry.path)
        except (OSError, InputError) as error:
            self._unread(entry.path, reason(error))
            return
        if pages.size < HEADER_SIZE:
            self._unread(entry.path, f"has {pages.size} {form(pages.size, 'byte', 'bytes')}, less than a header")
            pages.close()
            return
        self._files.append(_File(entry.name, entry.path, pages))

    def _unread(self, path: str, why: str) -> None:
        self._notes.add("unreadable IndexFile", f"{escape(path)}: {why}: its keys are not found; --scan reads the log instead")

    def _find_sizes(self, given: IndexSizes | None) -> None:
        """Of each file: given, said by itself, or said by another one; a broker's files are alike."""
        known = given
        for file in self._files:
            if given is not None:
                file.sizes = given
                continue
            file.sizes = self._quick(file)
            known = known or file.sizes
        for file in self._files:
            # Of another size than its neighbours: a broker whose settings were changed, or a torn file.
            if file.sizes is None and (known is None or file.pages.size != file_size(*known)):
                file.sizes = self._slow(file)
            known = known or file.sizes
        for file in self._files:
            file.sizes = file.sizes or known

    def _quick(self, file: _File) -> IndexSizes | None:
        try:
            return _sizes(quick_sizes(file.pages.read, file.pages.size))
        except (OSError, InputError) as error:
            self._unread(file.path, reason(error))
            return None

    def _slow(self, file: _File) -> IndexSizes | None:
        """From all of a file that is not full."""
        from rocketmq_reindex.storage_format.index.reader import guess_sizes

        try:
            return _sizes(guess_sizes(files.read_bytes(file.path)))
        except (OSError, InputError):
            return None

    def phy_offsets(self, key_hash: int) -> Iterator[int]:
        """Physical offsets of the items with a hash, newest file first, newest item first."""
        for file in reversed(self._files):
            yield from self._offsets_in(file, key_hash)

    def _offsets_in(self, file: _File, key_hash: int) -> Iterator[int]:
        try:
            yield from self._lookup(file, key_hash)
        except (OSError, InputError) as error:
            self._unread(file.path, reason(error))

    def _lookup(self, file: _File, key_hash: int) -> Iterator[int]:
        header = IndexHeader.from_bytes(file.pages.read(0, HEADER_SIZE))
        if file.sizes is None:
            if header.index_count > 1:
                self._unread(file.path, "its slots and items are not known (--hash-slots, --index-items)")
            return
        slots, items = file.sizes
        if file.pages.size != file_size(slots, items):
            self._notes.add(
                "IndexFile of a wrong size",
                f"{escape(file.path)}: has {file.pages.size} bytes, not the {file_size(slots, items)} of {slots} slots and "
                f"{items} items: looked into all the same",
                lost=file.pages.size < file_size(slots, items),
            )
        read = file.pages.read
        found = lookup(read, LookupHeader(header.begin_time, header.index_count, slots, items), key_hash, any_time=True)
        yield from found.phy_offsets
        if found.end == FOUND_ALL and header.index_count > 1:
            return
        # A header that counts too few items hides the others: what lies in the file is looked at, too.
        more = lookup(read, LookupHeader(header.begin_time, items, slots, items), key_hash, any_time=True)
        if found.end != FOUND_ALL or more.phy_offsets:
            where = found.end if found.end != FOUND_ALL else "indexCount is below the number of items"
            self._notes.add(
                "broken IndexFile",
                f"{escape(file.path)}: {where}: some of its entries may not be found; --scan reads the log instead, and "
                "`rmq-reindex build STORE --out DIR --only index,checkpoint` makes it anew",
            )
        seen = set(found.phy_offsets)
        yield from (phy_offset for phy_offset in more.phy_offsets if phy_offset not in seen)

    def close(self) -> None:
        for file in self._files:
            file.pages.close()
