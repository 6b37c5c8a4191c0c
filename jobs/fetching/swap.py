"""Put the parts of a build in the place of a store's own, which are kept under the names PART.previous."""

import json
import os
import re
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.fetching.record import Copy, Laid, Pinned, Record, files_of
from rocketmq_reindex.jobs.publishing.layout import CONFIGS, TIMERS
from rocketmq_reindex.jobs.store.owner import give
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

# --------------------------------------------------------------------------------------------------------------------- previous
# A store's own parts under the names PART.previous, PART.previous.2 and so on: the highest number is the newest.
#
# No number is used again while it, or a higher one, is there. A copy that is to go is first renamed into the work folder, so
# that a kill leaves no half of one under its name.


def numbers(store: str, part: str) -> list[int]:
    """Return the numbers of what lies in ``store`` under names of earlier parts, ascending; ``PART.previous`` is number 1."""
    folder, base = os.path.split(os.path.join(store, part))
    numbers = (_number(base, name) for name in (os.listdir(folder) if os.path.isdir(folder) else ()))
    return sorted(number for number in numbers if number)


def _number(base: str, name: str) -> int:
    """Return the number in the name of an earlier part; 0 where it is none."""
    match = re.fullmatch(re.escape(base) + r"\.previous(?:\.([1-9][0-9]*))?", name)
    return 0 if match is None or match[1] == "1" else int(match[1] or 1)


def is_name(part: str, name: str) -> bool:
    """Return whether a copy of ``part`` may have this name."""
    return _number(part, name) > 0


def name_of(part: str, number: int) -> str:
    """Return the name of an earlier part, in its store."""
    return f"{part}.previous" + (f".{number}" if number > 1 else "")


def next_name(store: str, part: str) -> str:
    """Return the name for the store's own part, behind all that are there."""
    return name_of(part, max(numbers(store, part), default=0) + 1)


def copies(store: str, parts: tuple[str, ...], record: Record) -> list[str]:
    """Return the copies of ``parts`` that fetches are known to have put there."""
    names = (name_of(part, number) for part in parts for number in numbers(store, part))
    return [name for name in names if record.is_copy(store, name)]


def surplus_copies(store: str, parts: tuple[str, ...], record: Record, keep: int) -> tuple[list[str], list[str]]:
    """Return the copies of each part but those of its newest ``keep`` fetches, and notes on what is not known to be a fetch's.

    A fetch has two of one part where a broker ran between a kill and the next fetch.
    """
    surplus, notes = list[str](), list[str]()
    for part in parts:
        names = [name_of(part, number) for number in reversed(numbers(store, part))]
        ours = [name for name in names if record.is_copy(store, name)]
        fetches = sorted({record.copies[name].fetch for name in ours}, reverse=True)[:keep]
        surplus += [name for name in ours if record.copies[name].fetch not in fetches]
        if others := [name for name in names if name not in ours]:
            first_others = ", ".join(map(escape, others[:3])) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            notes.append(f"{first_others}: not known to be as a fetch left it, so it stays: remove it when the broker is well")
    return surplus, notes


def retire(store: Pinned, names: list[str], folder: str) -> None:
    """Remove ``names`` from ``store``, through the new folder ``folder`` on its file system. Raises InputError, OSError."""
    if not names:
        return
    os.mkdir(folder)
    for number, name in enumerate(names):
        inner, base = os.path.split(name)
        with store.inner(inner) as parent:
            os.rename(os.path.join(parent.path, base), os.path.join(folder, str(number)))
    store.sync()
    files.remove_tree(folder)


# ------------------------------------------------------------------------------------------------------------------------- swap
# STORE/.rmq-reindex-fetch/new/...        the parts, complete and durable, before anything else is touched
# STORE/.rmq-reindex-fetch/journal.json   which parts are to be put in; from then on the swap is finished, never undone
# STORE/PART.previous                     what was there before; .previous.2 and so on are newer
#
# A part is swapped when it is no longer in new/. One that is still there may have moved the store's own away or not; either way
# the next step is known from what lies there. The journal says beforehand under which name, and which inode, the store's own is
# moved away: so what lies there behind a kill is known to be the store's own. Older copies are removed when all this is done.
#
# Store and work folder are held by handles, and the work folder is this user's alone: who may write in the store can put no
# link in the way.

FOLDER: Final = ".rmq-reindex-fetch"
JOURNAL: Final = "journal.json"
_JOURNAL_MAX: Final = 1 << 20
PARTS: Final = (
    layouts.EXT_QUEUES,
    layouts.QUEUES,
    layouts.SEPARATE,
    layouts.BATCH_QUEUES,
    "index",
    "checkpoint",
    *TIMERS,
    *CONFIGS,
)
"""What can be swapped, in this order: a checkpoint last of all that it speaks of."""


class Swap:
    """The work folder in one store, which is locked."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.folder = os.path.join(store, FOLDER)
        self._root = Pinned(store)
        self._work: Pinned | None = None

    @property
    def new(self) -> str:
        """The folder of the new parts."""
        return self._at("new")

    @property
    def temporary(self) -> str:
        """The folder of files that are not whole yet."""
        return self._at("temporary")

    def close(self) -> None:
        """Let go of store and work folder."""
        self._leave()
        self._root.close()

    def _at(self, name: str) -> str:
        """Return the path of what lies in the work folder. Raises InputError where that is none."""
        if self._work is None:
            self._work = Pinned(self.folder, os.path.join(self._root.path, FOLDER))
        return os.path.join(self._work.path, name)

    def _leave(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None

    def pending(self) -> dict[str, Any] | None:
        """Return the journal of a swap that was started and not finished. Raises InputError for a file that is no journal."""
        if not os.path.lexists(os.path.join(self._root.path, FOLDER)) or not os.path.lexists(self._at(JOURNAL)):
            return None
        name = os.path.join(self.folder, JOURNAL)
        if self._work is not None and not self._work.is_mine():
            raise InputError(
                f"{escape(name)}: was left by another user's fetch: fetch as that user, or remove {escape(self.folder)}"
            )
        try:
            return _checked(json.loads(files.read_bytes(self._at(JOURNAL), _JOURNAL_MAX)))
        except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise InputError(f"{escape(name)}: is no journal of a fetch: look at what lies there, and remove it")

    def check(self, parts: list[str]) -> None:
        """Raise InputError for a part that cannot be renamed into the store. Once a swap has started there is no way back."""
        device = os.stat(self.store).st_dev
        for part in parts:
            place = os.path.join(self.store, part)
            if os.path.islink(os.path.dirname(place)):
                raise InputError(
                    f"{escape(os.path.dirname(place))}: is a link, and fetch writes through none: put the folder itself there, "
                    f"or lay {part} out by hand"
                )
            for path, look in ((place, os.lstat), (os.path.dirname(place), os.stat)):
                if os.path.lexists(path) and look(path).st_dev != device:
                    raise InputError(
                        f"{escape(path)}: lies on another file system than {escape(self.store)}: lay it out by hand"
                    )

    def clear(self) -> None:
        """An empty work folder; what an earlier fetch left before its swap is of no use."""
        self.remove()
        self._make()
        for folder in (self.new, self.temporary):
            os.mkdir(folder)

    def _make(self) -> None:
        """Make the work folder, which nobody else may look into or write to."""
        os.mkdir(os.path.join(self._root.path, FOLDER), 0o700)
        self._at("")
        if self._work is not None and not self._work.is_mine():
            raise InputError(f"{escape(self.folder)}: was replaced as it was made: see who writes to {escape(self.store)}")

    def begin(self, build: str, parts: list[str]) -> dict[str, Any]:
        """Write the journal: all of ``new`` is there, and from here on the swap can only be finished. Return it."""
        give(self.new, self.store)
        # Else the journal could outlive, in a power cut, what it speaks of.
        self._root.sync()
        ordered = [part for part in PARTS if part in parts]
        journal = {
            "build": build,
            "parts": ordered,
            "files": {part: files_of(os.path.join(self.new, part)) for part in ordered},
            "digest": layouts.KIND,
            "away": [self._away(part) for part in ordered if os.path.lexists(os.path.join(self.store, part))],
        }
        self._write(journal)
        return journal

    def finish(self, journal: dict[str, Any]) -> dict[str, str]:
        """Swap what is not swapped yet. Return where the store's own parts are now, by part."""
        for part in journal["parts"]:
            new = os.path.join(self.new, part)
            if not os.path.lexists(new):
                continue
            folder, name = os.path.split(part)
            if folder and not os.path.lexists(os.path.join(self._root.path, folder)):
                self._make_inner(folder)
            with self._root.inner(folder) as parent:
                place = os.path.join(parent.path, name)
                if os.path.lexists(place):
                    os.rename(place, os.path.join(parent.path, os.path.basename(self._moving(journal, part))))
                os.rename(new, place)
        self._root.sync()
        moved = self._record(journal)
        self._root.sync()
        os.unlink(self._at(JOURNAL))
        # Without its journal the folder is only something to remove.
        self._root.sync()
        self.remove()
        return moved

    def _make_inner(self, folder: str) -> None:
        """Make a folder of the store, which has its owner before it stands where that one may write."""
        made = self._at("made")
        files.remove_tree(made)
        os.mkdir(made)
        give(made, self.store)
        os.rename(made, os.path.join(self._root.path, folder))

    def prune(self, keep: int) -> tuple[list[str], list[str]]:
        """Remove the work folder, and what fetches put aside but the newest ``keep`` of each part.

        Return what was removed, by name in the store, and notes on what stays.
        """
        surplus, notes = surplus_copies(self.store, PARTS, Record.read(self.store), keep)
        self.remove()
        if surplus:
            self._make()
            retire(self._root, surplus, self._at("old"))
            self.remove()
        return surplus, notes

    def _away(self, part: str) -> dict[str, Any]:
        """Return what the store's own part is now, and where it is to be moved."""
        status = os.lstat(os.path.join(self.store, part))
        name = next_name(self.store, part)
        return {"part": part, "name": name, "inode": status.st_ino, "modified": status.st_mtime_ns}

    def _moving(self, journal: dict[str, Any], part: str) -> str:
        """Return the name to move the store's own part to, which the journal on the disk has.

        Behind a kill a broker may have made a part anew, or somebody may have taken the name: then the journal gets another.
        """
        away = self._away(part)
        if away not in journal["away"]:
            journal["away"].append(away)
            self._write(journal)
        return str(away["name"])

    def _record(self, journal: dict[str, Any]) -> dict[str, str]:
        """Write down what is laid out and what was moved away. Return the latter by part."""
        record, moved = Record.read(self.store), dict[str, str]()
        record.copies = {name: copy for name, copy in record.copies.items() if record.is_copy(self.store, name)}
        number = max((copy.fetch for copy in record.copies.values()), default=0) + 1
        for away in journal["away"]:
            path = os.path.join(self.store, away["name"])
            if not os.path.lexists(path) or not _is(os.lstat(path), away):
                continue
            moved[away["part"]] = away["name"]
            if copy := Copy.of(path, number):
                record.copies[away["name"]] = copy
        record.laid |= {part: Laid(journal["build"], laid, journal["digest"]) for part, laid in journal["files"].items()}
        record.write(self._root.path, self.temporary)
        return moved

    def _write(self, journal: dict[str, Any]) -> None:
        files.write_bytes(self.temporary, self._at(JOURNAL), [json.dumps(journal).encode()])
        self._root.sync()

    def held(self) -> int:
        """Return the bytes on the disk that an earlier fetch left, which ``clear`` gives back."""
        paths = (os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        return sum(os.lstat(path).st_blocks * 512 for path in paths)

    def remove(self) -> None:
        self._leave()
        files.remove_tree(os.path.join(self._root.path, FOLDER))
        if os.path.lexists(self.folder):
            raise InputError(f"{escape(self.folder)}: cannot be removed: remove it")


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    """Return a journal, which names nothing but parts and copies of them. That of an older version says less.

    Raises ValueError, KeyError, TypeError, AttributeError for what is none.
    """
    away, laid, kind = content.get("away", []), content.get("files", {}), content.get("digest", layouts.EARLIER_KIND)
    texts, numbers = [content["build"], kind, *laid.values()], [entry[key] for entry in away for key in ("inode", "modified")]
    copies = all(entry["part"] in PARTS and is_name(entry["part"], entry["name"]) for entry in away)
    if not copies or not {*content["parts"], *laid} <= set(PARTS) or _types(texts) != {str} or _types(numbers) - {int}:
        raise ValueError("is no journal")
    return {"build": content["build"], "parts": list(content["parts"]), "files": laid, "digest": kind, "away": away}


def _types(values: list[Any]) -> set[type]:
    return {type(value) for value in values}


def _is(status: os.stat_result, away: dict[str, Any]) -> bool:
    """Return whether it is what was to be moved. A rename changes neither."""
    return (status.st_ino, status.st_mtime_ns) == (away["inode"], away["modified"])
