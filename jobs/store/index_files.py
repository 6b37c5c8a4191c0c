"""The physical offsets of a key, from all IndexFiles of a store.

The broker leaves files and items out by their times. These are rounded, and they are wrong for a file's first item and where a
clock went back. They are not used here: to look into a file costs a slot and a chain, and the record has its own store time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rocketmq_reindex.jobs.store.folders import entries, reason
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import is_index_file
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, IndexHeader, file_size
from rocketmq_reindex.storage_format.index.lookup import FOUND_ALL, LookupHeader, all_hits
from rocketmq_reindex.storage_format.index.sizes import quick_sizes
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import form
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.pages import Pages


class IndexSizes(NamedTuple):
    """How many slots and items an IndexFile has."""

    slots: int
    items: int


def _sizes(found: tuple[int, int] | None) -> IndexSizes | None:
    return None if found is None else IndexSizes(*found)


@dataclass
class OpenIndexFile:
    """An IndexFile that has a header; ``sizes`` is None where they are not known."""

    path: str
    pages: Pages
    sizes: IndexSizes | None = None

    @property
    def header(self) -> IndexHeader:
        """The header as it stands in the file now."""
        return IndexHeader.from_bytes(self.pages.read(0, HEADER_SIZE))


class IndexFiles:
    """The IndexFiles in a folder, or so many of the ``newest``. ``present`` is false where there is no such folder."""

    def __init__(self, folder: str, sizes: IndexSizes | None, notes: Notes, newest: int | None = None) -> None:
        self._notes = notes
        listed = entries(folder, notes)
        self.present = listed is not None
        self.files: list[OpenIndexFile] = []
        """oldest first"""
        named = []
        for entry in listed or []:
            if entry.kind == files.FILE and is_index_file(entry.name):
                named.append(entry)
            else:
                notes.add("not an IndexFile", f"{escape(entry.path)}: is no IndexFile: not looked at", lost=False)
        for entry in named if newest is None else named[-newest:]:
            self._open(entry)
        self._find_sizes(sizes)

    def _open(self, entry: files.Entry) -> None:
        try:
            pages = Pages(entry.path)
        except (OSError, InputError) as error:
            self.unread(entry.path, reason(error))
            return
        if pages.size > files.MAPPED_MAX:
            self.unread(entry.path, f"has {pages.size:,} bytes, more than any IndexFile")
            pages.close()
            return
        if pages.size < HEADER_SIZE:
            self.unread(entry.path, f"has {pages.size} {form(pages.size, 'byte', 'bytes')}, less than a header")
            pages.close()
            return
        self.files.append(OpenIndexFile(entry.path, pages))

    def unread(self, path: str, why: str) -> None:
        """Note that a file cannot be read, or not whole."""
        self._notes.add("unreadable IndexFile", f"{escape(path)}: {why}: its keys are not found; --scan reads the log instead")

    def _find_sizes(self, given: IndexSizes | None) -> None:
        """Of each file: given, said by itself, or said by another one; a broker's files are alike."""
        known = given
        for file in self.files:
            if given is not None:
                file.sizes = given
                continue
            file.sizes = self._quick(file)
            known = known or file.sizes
        for file in self.files:
            # Of another size than its neighbours: a broker whose settings were changed, or a torn file.
            if file.sizes is None and (known is None or file.pages.size != file_size(*known)):
                file.sizes = self._slow(file)
            known = known or file.sizes
        for file in self.files:
            file.sizes = file.sizes or known

    def _quick(self, file: OpenIndexFile) -> IndexSizes | None:
        try:
            return _sizes(quick_sizes(file.pages.read, file.pages.size))
        except (OSError, InputError) as error:
            self.unread(file.path, reason(error))
            return None

    def _slow(self, file: OpenIndexFile) -> IndexSizes | None:
        """From all of a file that is not full."""
        from rocketmq_reindex.storage_format.index.reader import guess_sizes

        try:
            with files.Reader(file.path) as reader:
                return _sizes(guess_sizes(reader.whole()))
        except (OSError, InputError):
            return None

    def phy_offsets(self, key_hash: int) -> Iterator[int]:
        """Physical offsets of the items with a hash, newest file first, newest item first, read as they are asked for."""
        for file in reversed(self.files):
            yield from self._offsets_in(file, key_hash)

    def _offsets_in(self, file: OpenIndexFile, key_hash: int) -> Iterator[int]:
        try:
            yield from self._lookup(file, key_hash)
        except (OSError, InputError) as error:
            self.unread(file.path, reason(error))

    def _lookup(self, file: OpenIndexFile, key_hash: int) -> Iterator[int]:
        header = file.header
        if file.sizes is None:
            if header.index_count > 1:
                self.unread(file.path, "its slots and items are not known (--hash-slots, --index-items)")
            return
        slots, items = file.sizes
        if file.pages.size != file_size(slots, items):
            self._notes.add(
                "IndexFile of a wrong size",
                f"{escape(file.path)}: has {file.pages.size:,} bytes, not the {file_size(slots, items):,} of {slots:,} slots "
                f"and {items:,} items: looked into all the same",
                lost=file.pages.size < file_size(slots, items),
            )
        read = file.pages.read
        found = all_hits(read, LookupHeader(header.begin_time, header.index_count, slots, items), key_hash)
        yield from (hit.phy_offset for hit in found)
        end = found.ended.end
        if end == FOUND_ALL and header.index_count > 1:
            return
        # A header that counts too few items hides the others: what lies in the file is looked at, too.
        more = [hit.phy_offset for hit in all_hits(read, LookupHeader(header.begin_time, items, slots, items), key_hash)]
        if end != FOUND_ALL or more:
            where = end if end != FOUND_ALL else "indexCount is below the number of items"
            self._notes.add(
                "broken IndexFile",
                f"{escape(file.path)}: {where}: some of its entries may not be found; --scan reads the log instead, and "
                "`rmq-reindex build STORE --out DIR --only index,checkpoint` makes it anew",
            )
        yield from more

    def close(self) -> None:
        for file in self.files:
            file.pages.close()
