"""What to do about each reason for which a store does not load."""

from __future__ import annotations

import os

from rocketmq_reindex.jobs.building.advice import REPAIR, WITHOUT_REPLICA, shell
from rocketmq_reindex.jobs.preflighting.commands import Commands
from rocketmq_reindex.jobs.preflighting.losses import IN_BROKERS_ORDER, Loss
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.start.loading import Loading
from rocketmq_reindex.storage_format.start.prediction import Refusal

_ADVICE = {
    "log-file-size": "give the broker.conf of this store; a short last segment starts when zeros fill it up: keep a copy of it",
    "log-file-name": "move it out of the commitlog",
    "queue-file-size": "give the broker.conf of this store, or rebuild",
    "queue-file-name": "move it out of the queue's folder",
    "queue-type": "put the topic's attribute into config/topics.json, or move the folder away and rebuild with --topics-config",
    "index-folder": "move it out of index/",
    "checkpoint-not-a-file": "move it away and rebuild",
    "lock-not-a-file": "move it away",
    "lock-held": "stop the broker, or ask for a snapshot of the store",
    "abort-not-a-file": "move it away",
    "delay-levels": "set messageDelayLevel right",
    "queue-last-file-empty": "rebuild, and run preflight again: a start that failed may have left that file",
    "checkpoint-logics-offset": "rebuild, or start once with enableAcceleratedRecovery=false",
    "record-too-large": f"{REPAIR}: {WITHOUT_REPLICA}",
    "dispatch-stuck": "look first whether the disk of the missing segment is mounted; if it is lost, rebuild",
    "light-queue-offset": "rebuild, or start once with enableMultiDispatch=false: light queues then get no units",
}
_REBUILT = frozenset({
    "queue-file-size", "checkpoint-not-a-file", "queue-last-file-empty", "checkpoint-logics-offset", "dispatch-stuck",
    "light-queue-offset",
})  # fmt: skip

_REPAIRED = frozenset({"record-too-large"})


def refused(refusals: tuple[Refusal, ...], loading: Loading, commands: Commands, store: str, segment: int) -> list[Loss]:
    """Each kind of refusal once, with the number of files, the first of them, and what to do."""
    found = list[Loss]()
    for kind in dict.fromkeys(refusal.kind for refusal in refusals):
        of_kind = [refusal for refusal in refusals if refusal.kind == kind]
        first = of_kind[0]
        more = f", and {len(of_kind) - 1:,} more" if len(of_kind) > 1 else ""
        text = f"{escape(first.path)}: {first.detail}{more}" if first.path else f"{first.detail}{more}"
        ready = (commands.rebuilt(),) if kind in _REBUILT else ()
        ready = (commands.repaired(),) if kind in _REPAIRED else ready
        if kind == "log-file-size" and len(of_kind) == 1 and _is_short_last(first, loading, segment, store):
            ready = (shell(["truncate", "-s", str(segment), os.path.join(store, first.path)]),)
        advice: tuple[str, ...] = (_ADVICE[kind],) if kind in _ADVICE else ()
        if kind == "queue-last-file-empty" and not os.path.lexists(os.path.join(store, first.path)):
            # The recovery begins it for a record that then gets no unit (ConsumeQueue.putMessagePositionInfo).
            advice, ready = IN_BROKERS_ORDER, (commands.rebuilt(queue_order="broker"),)
        found.append(Loss(kind, len(of_kind), text, advice, ready))
    return found


def _is_short_last(refusal: Refusal, loading: Loading, segment: int, store: str) -> bool:
    """Whether it is the newest segment, and only cut off."""
    name = os.path.basename(refusal.path)
    path = os.path.join(store, refusal.path)
    newest = max((entry.name for entry in loading.segments), default="")
    return name.isdigit() and name > newest and os.path.isfile(path) and 0 < os.path.getsize(path) < segment
