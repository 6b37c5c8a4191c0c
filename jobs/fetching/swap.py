"""Put the parts of a build in the place of a store's own, so that a kill at any moment leaves something to go on from.

STORE/.rmq-reindex-fetch/new/...        the parts, complete and durable, before anything else is touched
STORE/.rmq-reindex-fetch/journal.json   which parts are to be put in; from then on the swap is finished, never undone
STORE/PART.previous                     what was there before, .previous.2 and so on where that is taken

A part is swapped when it is no longer in new/. One that is still there may have moved the store's own away or not; either way
the next step is known from what lies there.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

from rocketmq_reindex.jobs.publishing.layout import TOPICS
from rocketmq_reindex.jobs.store.ownership import give
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

FOLDER: Final = ".rmq-reindex-fetch"
JOURNAL: Final = "journal.json"
PARTS: Final = ("consumequeue", "batchconsumequeue", "index", "checkpoint", TOPICS)
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
            found = json.loads(files.read_bytes(self._journal))
            if set(found["parts"]) <= set(PARTS) and isinstance(found["build"], str):
                return dict(found)
        except (ValueError, KeyError, TypeError):
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
        journal = {"build": build, "parts": [part for part in PARTS if part in parts]}
        files.write_bytes(self.temporary, self._journal, [json.dumps(journal).encode()])
        files.sync(self.folder)
        return journal

    def finish(self, journal: dict[str, Any]) -> dict[str, str]:
        """Swap what is not swapped yet. Returns where the store's own parts are now, by part."""
        kept: dict[str, str] = {}
        for part in journal["parts"]:
            new, place = os.path.join(self.new, part), os.path.join(self.store, part)
            if not os.path.lexists(new):
                continue
            if os.path.lexists(place):
                kept[part] = self.previous(part)
                os.rename(place, os.path.join(self.store, kept[part]))
            elif os.path.dirname(part):
                files.make_folder(os.path.dirname(place), below=self.store)
                give(os.path.dirname(place), self.store)
            os.rename(new, place)
        files.sync(self.store)
        os.unlink(self._journal)
        # Without its journal the folder is only something to remove.
        files.sync(self.store)
        self.remove()
        return kept

    def previous(self, part: str) -> str:
        """A name for the store's own part, that nothing has."""
        number = 1
        while os.path.lexists(os.path.join(self.store, name := f"{part}.previous" + (f".{number}" if number > 1 else ""))):
            number += 1
        return name

    def held(self) -> int:
        """Bytes on the disk that an earlier fetch left, which ``clear`` gives back."""
        found = (os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        return sum(os.lstat(path).st_blocks * 512 for path in found)

    def remove(self) -> None:
        files.remove_tree(self.folder)
        if os.path.lexists(self.folder):
            raise InputError(f"{escape(self.folder)}: cannot be removed: remove it")
