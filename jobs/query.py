"""``rmq-reindex query``: messages of a store by key, id, queue offset, time or place, without a broker and without Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from jobs.folders import reason
from jobs.notes import Notes
from jobs.query_index import IndexFiles
from jobs.query_options import Query, parse_query
from jobs.query_queue import PLAIN, Served, StoreQueue, queue_folder, topics
from jobs.query_show import Shown, show
from jobs.store_log import EXPIRED, StoreLog
from storage_format.errors import InputError, ReindexError
from storage_format.java_string import key_hash
from storage_format.message import Message
from storage_format.names import escape
from udfs import files


def query(arguments: Sequence[str]) -> int:
    """One question; returns the exit status: 1 also where nothing was found and something could not be read."""
    notes = Notes()
    try:
        asked = parse_query(arguments)
        found = _Search(asked, notes).run()
        notes.close()
        return 1 if notes.lost and not found else 0
    except ReindexError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # Whoever read the answer has seen enough: nothing more may be written, at the exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "store"
        print(f"error: {where}: {reason(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 1


class _Search:
    def __init__(self, asked: Query, notes: Notes) -> None:
        self._asked, self._notes = asked, notes
        if files.look(asked.store).kind != files.FOLDER:
            raise InputError(f"{escape(asked.store)}: is no folder: STORE is the folder around commitlog/ and index/")
        self._log = StoreLog(asked.roots, notes)

    def run(self) -> int:
        """Show what is found; returns how many messages."""
        asked = self._asked
        if asked.key is not None:
            found = self._shown(self._by_key(asked.key))
        elif asked.id is not None:
            found = self._shown(self._by_id(asked.id))
        elif asked.physical is not None:
            found = self._shown(self._by_place(asked.physical))
        else:
            found = (Shown(message, offset) for offset, message in self._by_queue())
        return show(found, self._log, asked, self._notes)

    @staticmethod
    def _shown(messages: Iterable[Message]) -> Iterator[Shown]:
        return (Shown(message, None) for message in messages)

    # -- one place ----------------------------------------------------------------------------------------------------

    def _by_place(self, place: int) -> Iterator[Message]:
        found = self._log.message(place)
        if isinstance(found, str):
            self._notes.add("no message", f"offset {place}: {found}", lost=found != EXPIRED)
        else:
            yield found

    def _by_id(self, word: str) -> Iterator[Message]:
        at_offset = self._by_offset_id(word)
        if at_offset is not None and at_offset.message_id == word.upper():
            yield at_offset
            return
        names = [self._asked.topic] if self._asked.topic is not None else None
        found = list(self._matching(names, word, unique=True))
        yield from found
        if not found and at_offset is not None:
            text = f"{escape(word)}: the message at that offset was stored by another host: its id is {at_offset.message_id}"
            self._notes.add("another host", text, lost=False)
            yield at_offset

    def _by_offset_id(self, word: str) -> Message | None:
        """The message where a broker's id says (``MessageDecoder.decodeMessageId``); a client's id has the same length."""
        if len(word) not in (32, 56):
            return None
        try:
            place = int.from_bytes(bytes.fromhex(word)[-8:], "big", signed=True)
        except ValueError:
            return None
        found = self._log.message(place) if place >= 0 else EXPIRED
        return found if isinstance(found, Message) else None

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _by_key(self, key: str) -> Iterator[Message]:
        assert self._asked.topic is not None
        return self._matching([self._asked.topic], key, unique=False)

    def _matching(self, names: list[str] | None, key: str, unique: bool) -> Iterator[Message]:
        """Messages with the key, in the order of the log; of more than --max the newest. ``names`` None: of any topic."""
        asked, kept = self._asked, []
        places = self._scanned(names, key) if asked.scan else self._indexed(names, key)
        for place in sorted(places, reverse=asked.max is not None):
            found = self._log.message(place)
            if isinstance(found, str):
                text = f"offset {place}: {found}: an entry of the index points there"
                self._notes.add("entry without a record", text, lost=found != EXPIRED)
                continue
            mine = found.unique_key == key if unique else found.has_key(found.topic, key)
            if not mine or (names is not None and found.topic not in names) or not asked.in_time(found.store_time):
                continue
            if asked.max is None:
                yield found
                continue
            kept.append(found)
            if len(kept) == asked.max:
                break
        yield from reversed(kept)

    def _indexed(self, names: list[str] | None, key: str) -> set[int]:
        folder = files.join(self._asked.store, "index")
        index = IndexFiles(folder, self._asked.sizes, self._notes)
        if not index.present:
            raise InputError(
                f"{escape(folder)}: is not there: add --scan to read the whole log ({self._size():,} bytes) instead, "
                "or make it with `rmq-reindex build --only index,checkpoint`"
            )
        hashes = {key_hash(name, key) for name in (topics(self._asked.store, self._notes) if names is None else names)}
        places = {place for hashed in hashes for place in index.places(hashed)}
        index.close()
        return places

    def _scanned(self, names: list[str] | None, key: str) -> set[int]:
        from jobs.query_scan import scan_log

        return scan_log(self._log, names, key, self._notes)

    def _size(self) -> int:
        return sum(segment.size for segment in self._log.segments)

    # -- queues -------------------------------------------------------------------------------------------------------

    def _by_queue(self) -> Iterator[Served]:
        asked = self._asked
        assert asked.topic is not None
        assert asked.queue is not None
        where = queue_folder(asked.store, asked.topic, asked.queue)
        if where is None:
            self._no_queue()
            return
        queue = StoreQueue(*where, self._log, self._notes)
        most = asked.max or 1
        if asked.offset is not None:
            yield from queue.from_position(queue.units.find(asked.offset), asked.offset + most)
            span, wanted = queue.span(), asked.offset
            outside = span is not None and not span[0] <= wanted < span[1]
        else:
            assert asked.time is not None
            taken = 0
            for served in queue.from_position(queue.position_at_time(asked.time, asked.scan)):
                yield served
                taken += 1
                if taken == most:
                    break
            span, outside = queue.span(), taken == 0
        if span is None or outside:
            has = "no message" if span is None else f"the offsets {span[0]} to {span[1] - 1}"
            self._notes.add("nothing there", f"queue {escape(asked.topic)}/{asked.queue}: has {has}", lost=False)
        queue.close()

    def _no_queue(self) -> None:
        asked = self._asked
        folder = files.join(asked.store, PLAIN)
        if files.look(folder).kind != files.FOLDER:
            raise InputError(f"{escape(folder)}: is not there: `rmq-reindex build --only consumequeue,checkpoint` makes it")
        self._notes.add("no queue", f"queue {escape(asked.topic or '')}/{asked.queue}: is not there", lost=False)
