"""Put the parts of a build in the place of a store's own, so that a kill at any moment leaves something to go on from.

STORE/.rmq-reindex-fetch/new/...        the parts, complete and durable, before anything else is touched
STORE/.rmq-reindex-fetch/journal.json   which parts are to be put in; from then on the swap is finished, never undone
STORE/PART.previous                     what was there before; .previous.2 and so on are newer

A part is swapped when it is no longer in new/. One that is still there may have moved the store's own away or not; either way
the next step is known from what lies there. The journal says beforehand under which name, and which inode, the store's own is
moved away: so what lies there behind a kill is known to be the store's own. Older copies are removed when all this is done.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

from rocketmq_reindex.jobs.fetching import previous
from rocketmq_reindex.jobs.fetching.record import Copy, Laid, Record, files_of
from rocketmq_reindex.jobs.publishing.layout import CONFIGS, TIMERS
from rocketmq_reindex.jobs.store.ownership import give
from rocketmq_reindex.storage_format.digest_kinds import EARLIER_KIND, KIND
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

FOLDER: Final = ".rmq-reindex-fetch"
JOURNAL: Final = "journal.json"
_JOURNAL_MAX: Final = 1 << 20
PARTS: Final = ("consumequeue", "batchconsumequeue", "index", "checkpoint", *TIMERS, *CONFIGS)
"""What can be swapped, in this order: a checkpoint last of all that it speaks of."""


class Swap:
    """The work folder in one store, which is locked."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.folder = os.path.join(store, FOLDER)
        self.new = os.path.join(self.folder, "new")
        self.temporary = os.path.join(self.folder, "temporary")
        self._journal = os.path.join(self.folder, JOURNAL)

    def pending(self) -> dict[str, Any] | None:
        """The journal of a swap that was started and not finished. Raises InputError for a file that is no journal."""
        if not os.path.lexists(self._journal):
            return None
        try:
            return _checked(json.loads(files.read_bytes(self._journal, _JOURNAL_MAX)))
        except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise InputError(f"{escape(self._journal)}: is no journal of a fetch: look at what lies there, and remove it")

    def check(self, parts: list[str]) -> None:
        """Raises InputError for a part that cannot be renamed into the store. Once a swap has started there is no way back."""
        device = os.stat(self.store).st_dev
        for part in parts:
            place = os.path.join(self.store, part)
            for path, look in ((place, os.lstat), (os.path.dirname(place), os.stat)):
                if os.path.lexists(path) and look(path).st_dev != device:
                    raise InputError(
                        f"{escape(path)}: lies on another file system than {escape(self.store)}: lay it out by hand"
                    )

    def clear(self) -> None:
        """An empty work folder; what an earlier fetch left before its swap is of no use."""
        self.remove()
        for folder in (self.folder, self.new, self.temporary):
            os.mkdir(folder)

    def begin(self, build: str, parts: list[str]) -> dict[str, Any]:
        """All of ``new`` is there: write the journal. From here on the swap can only be finished."""
        give(self.new, self.store)
        # Else the journal could outlive, in a power cut, what it speaks of.
        files.sync(self.folder)
        ordered = [part for part in PARTS if part in parts]
        journal = {
            "build": build,
            "parts": ordered,
            "files": {part: files_of(os.path.join(self.new, part)) for part in ordered},
            "digest": KIND,
            "away": [self._away(part) for part in ordered if os.path.lexists(os.path.join(self.store, part))],
        }
        self._write(journal)
        return journal

    def finish(self, journal: dict[str, Any]) -> dict[str, str]:
        """Swap what is not swapped yet. Returns where the store's own parts are now, by part."""
        for part in journal["parts"]:
            new, place = os.path.join(self.new, part), os.path.join(self.store, part)
            if not os.path.lexists(new):
                continue
            if os.path.lexists(place):
                os.rename(place, os.path.join(self.store, self._moving(journal, part)))
            elif os.path.dirname(part):
                files.make_folder(os.path.dirname(place), below=self.store)
                give(os.path.dirname(place), self.store)
            os.rename(new, place)
        files.sync(self.store)
        moved = self._record(journal)
        files.sync(self.store)
        os.unlink(self._journal)
        # Without its journal the folder is only something to remove.
        files.sync(self.store)
        self.remove()
        return moved

    def prune(self, keep: int) -> tuple[list[str], list[str]]:
        """Remove the work folder, and what fetches put aside but the newest ``keep`` of each part.

        Returns what was removed, by name in the store, and notes on what stays.
        """
        surplus, notes = previous.surplus(self.store, PARTS, Record.read(self.store), keep)
        self.remove()
        if surplus:
            os.mkdir(self.folder)
            previous.retire(self.store, surplus, os.path.join(self.folder, "old"))
            self.remove()
        return surplus, notes

    def _away(self, part: str) -> dict[str, Any]:
        """What the store's own part is now, and where it is to be moved."""
        found = os.lstat(os.path.join(self.store, part))
        name = previous.next_name(self.store, part)
        return {"part": part, "name": name, "inode": found.st_ino, "modified": found.st_mtime_ns}

    def _moving(self, journal: dict[str, Any], part: str) -> str:
        """The name to move the store's own part to, which the journal on the disk has.

        Behind a kill a broker may have made a part anew, or somebody may have taken the name: then the journal gets another.
        """
        away = self._away(part)
        if away not in journal["away"]:
            journal["away"].append(away)
            self._write(journal)
        return str(away["name"])

    def _record(self, journal: dict[str, Any]) -> dict[str, str]:
        """Write down what is laid out and what was moved away. Returns the latter by part."""
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
        record.write(self.store, self.temporary)
        return moved

    def _write(self, journal: dict[str, Any]) -> None:
        files.write_bytes(self.temporary, self._journal, [json.dumps(journal).encode()])
        files.sync(self.folder)

    def held(self) -> int:
        """Bytes on the disk that an earlier fetch left, which ``clear`` gives back."""
        found = (os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        return sum(os.lstat(path).st_blocks * 512 for path in found)

    def remove(self) -> None:
        files.remove_tree(self.folder)
        if os.path.lexists(self.folder):
            raise InputError(f"{escape(self.folder)}: cannot be removed: remove it")


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    """A journal, which names nothing but parts and copies of them. That of an older version says less.

    Raises ValueError, KeyError, TypeError, AttributeError for what is none.
    """
    away, laid, kind = found.get("away", []), found.get("files", {}), found.get("digest", EARLIER_KIND)
    texts, numbers = [found["build"], kind, *laid.values()], [one[key] for one in away for key in ("inode", "modified")]
    copies = all(one["part"] in PARTS and previous.is_name(one["part"], one["name"]) for one in away)
    if not copies or not {*found["parts"], *laid} <= set(PARTS) or _types(texts) != {str} or _types(numbers) - {int}:
        raise ValueError("is no journal")
    return {"build": found["build"], "parts": list(found["parts"]), "files": laid, "digest": kind, "away": away}


def _types(values: list[Any]) -> set[type]:
    return {type(value) for value in values}


def _is(found: os.stat_result, away: dict[str, Any]) -> bool:
    """Whether it is what was to be moved. A rename changes neither."""
    return (found.st_ino, found.st_mtime_ns) == (away["inode"], away["modified"])
