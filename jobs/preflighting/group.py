"""A broker of a controller group: what its start makes of the epochs, and what a role then does to the log.

``AutoSwitchHAService`` reads the epochs when the store has loaded. The log is first recovered as that of any broker. Until the
controller gives it a role, records behind the confirmed offset get no unit; as master it dispatches them, too.
"""

from __future__ import annotations

from typing import Final

from rocketmq_reindex.jobs.preflighting.advice import CONFIRMED, Commands
from rocketmq_reindex.jobs.preflighting.losses import Loss
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.store import group
from rocketmq_reindex.storage_format import epochs, versions
from rocketmq_reindex.storage_format.broker_start.loading import Prediction, Refusal
from rocketmq_reindex.storage_format.showing import counted

_GROUPS_FROM: Final = (5,)
"""the release that has ``enableControllerMode``"""
_BEHIND: Final = "make the log whole by a repair with --extend: the store of another broker of the group is the replica"
_CUT: Final = "or repair without a replica, which also writes the epochs cut to the log: look first what the group then lacks"
_COMPARE: Final = "verify this store --against that of the broker that is, or will be, master: it says where the two part"


class StoreGroup:
    """What one store has of a controller group."""

    def __init__(self, settings: PreflightSettings, is_node: bool = False) -> None:
        """``is_node``: the log is that of a node of DLedger, and no broker is in a controller group, too."""
        self._settings = settings
        has_epochs = any(group.read_epoch_file(settings.store, name) is not None for name in (epochs.FILE, epochs.BACKUP))
        is_new = versions.numbers_of(settings.release) >= _GROUPS_FROM
        self.is_one = is_new and not is_node and (has_epochs if settings.broker.group is None else settings.broker.group)
        """the broker is one of a controller group"""
        self._taken = group.taken(settings.store) if self.is_one else group.Taken()
        self._is_unread = has_epochs and not self.is_one

    def refusals(self) -> tuple[Refusal, ...]:
        """Return why the broker does not start: ``CheckpointFile.read`` throws what nobody catches."""
        return (Refusal("epoch-file", self._taken.name, self._taken.stops),) if self._taken.stops else ()

    def found(self, prediction: Prediction, commands: Commands) -> tuple[list[Loss], list[Loss], list[str]]:
        """Return the losses, the warnings and the notes of a start. Raises OSError, and InputError."""
        if self._is_unread:
            return [], [], [f"{epochs.FILE}: a broker without enableControllerMode, or of 4.9, does not read it"]
        if not self.is_one or prediction.log is None:
            return [], [], []
        end, lost, warned = prediction.log.max_offset, list[Loss](), list[Loss]()
        if behind := self._taken.behind(end):
            text = (
                f"{counted(len(behind), 'epoch')}, from {behind[0].epoch} at offset {behind[0].start} on, behind the log's end "
                f"at {end}: as slave of a master with the same epochs the broker copies nothing"
            )
            either = commands.repaired(extend=True), commands.cut_to_log()
            lost.append(Loss("epoch-behind-log", len(behind), text, (_BEHIND, _CUT), either))
        if 0 <= prediction.cut_as_master < end:
            at, size = prediction.cut_as_master, counted(end - prediction.cut_as_master, "byte")
            text = f"no record begins at offset {at}, which is not confirmed: a master may cut its log there: {size}"
            mended = commands.mended()
            lost.append(Loss("log-cut-as-master", 1, text, (CONFIRMED, *mended.advice), mended.commands))
        with group.opened(self._settings.roots) as log:
            tail = group.suspect_tail(self._settings.store, log, end)
        if tail is not None and self._taken.entries:
            warned.append(Loss("log-tail-suspect", tail.records, f"{tail}: {group.SUSPECT}", (_COMPARE,)))
        return lost, warned, [self._note(end)]

    def _note(self, end: int) -> str:
        """Return what a role does (``AutoSwitchHAService.changeToMaster``, ``AutoSwitchHAClient.doTruncate``)."""
        entries = self._taken.entries
        if not entries:
            return f"controller group: no epoch: as master the broker begins its first one at offset {end}"
        last = epochs.in_order(entries)[-1]
        return (
            f"controller group: {counted(len(entries), 'epoch')} in {self._taken.name}, the last one is {last.epoch}, from "
            f"offset {last.start} on: as master the broker keeps the log up to {end}; as slave it cuts what lies behind the "
            "offset up to which its epochs are its master's (verify --against)"
        )
