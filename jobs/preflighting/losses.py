"""The losses of a start by kind: what it cuts, hides and refuses."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rocketmq_reindex.jobs.building import advice as building_advice
from rocketmq_reindex.jobs.preflighting.advice import (
    DISPATCHED,
    EXT_REBUILT,
    IN_BROKERS_ORDER,
    NOT_READ,
    OUT_OF_ORDER,
    RECOVER_MAX,
    TIMERS_AGAIN,
    TIMERS_ASTRAY,
    TIMERS_LOST,
    VERIFY,
    Advised,
    Commands,
    Loss,
)
from rocketmq_reindex.jobs.store.queue import behind_log
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.broker_start import loading as start_loading
from rocketmq_reindex.storage_format.broker_start.delayed import DelayedOutcome, TimerOutcome
from rocketmq_reindex.storage_format.showing import counted, escape, form
from rocketmq_reindex.udfs.times import show_time

# ----------------------------------------------------------------------------------------------------------------------- losses
# What a start would lose or hide, by kind, and what avoids it.

KINDS: Final = {
    "log-missing": "the commitlog has no segment: the start deletes all ConsumeQueues",
    "log-cut": "good records behind the place where the log is cut: the start removes them from the disk",
    "records-hidden": "records that stay in the log and have no unit: no consumer gets them",
    "records-misplaced": "records that lie elsewhere in the log than they say: their units and items lead to other bytes",
    "messages-passed-over": "messages with a unit that no consumer is given who begins at the queue's min offset",
    "dispatch-stopped": "a topic cannot be a folder: the broker gives up after 30 seconds, and takes no messages any more",
    "records-moved": "records whose unit gets a lower queue offset than their own: groups whose offset is between miss them",
    "queue-short": "queues whose max offset is below what the log holds: the next message gets an offset that is taken",
    "index-items-lost": "items of IndexFiles that the start deletes, and does not make again: no query by key finds them",
    "index-items-missing": "keys of the log without an item: no query by key finds them",
    "delayed-skipped": "delayed messages that were not delivered yet, and never will be",
    "delayed-stuck": "delayed messages behind a unit in consumequeue_ext that a broker cannot read: it stops there",
    "ext-short": "queues whose units lead behind the end of consumequeue_ext: units of new messages take their places there",
    "ext-unreadable": "queues with a unit in consumequeue_ext that a broker cannot read: no consumer gets past it",
    "rocksdb-gap": "queues in RocksDB with an offset between their ends that has no unit: no consumer gets past it",
    "entries-committed-lost": "entries of DLedger that the node's own checkpoint calls committed, and its log lacks",
    "epoch-behind-log": "epochs of a controller group that begin behind the log's end: replicas cannot be compared by them",
    "log-cut-as-master": "an offset of a controller group at which no record begins: a master may cut its log there",
    "timer-lost": "timer messages that were not delivered yet, and never will be",
    "timer-stuck": "units of timerlog that lead to records without a real queue: no timer message of a later slot comes",
}
"""Kinds of loss: with one of them the exit status is 4."""
WARNINGS: Final = {
    "combine-set-back": "queues that end elsewhere in RocksDB than in files: the start lets RocksDB's begin at their end",
    "earlier-lives": "records of a topic that was deleted and made again: its queue began again at offset 0 behind them",
    "log-tail-cut": "bytes behind the last good record, which the start cuts off: no record is lost",
    "log-tail-suspect": "sound records that a controller group has not confirmed: another master may have cut them",
    "delayed-again": "delayed messages that are, or may be, delivered a second time",
    "timer-again": "timer messages that are delivered a second time",
    "timer-other": "units of timerlog that lead to other messages than their own: the broker delivers these",
    "timer-passed-over": "units of timerlog that lead to nothing a broker delivers, until the log grows over these places",
}
"""Kinds that cost no message."""


def losses(
    prediction: start_loading.Prediction, commands: Commands, keeps_index: bool, segments: int, mend: str = ""
) -> list[Loss]:
    """Return what is lost or hidden. ``keeps_index``: the broker keeps an index (``messageIndexEnable``); ``mend`` says what to
    do for one that reads its queues from RocksDB."""
    log, dispatch, index = prediction.log, prediction.dispatch, prediction.index
    if not prediction.loads or log is None or dispatch is None or index is None:
        return []
    if not segments:
        advice = "look first whether the disk that holds the commitlog is mounted, and its folder right"
        return [Loss("log-missing", len(prediction.queues), "no segment: the start deletes all ConsumeQueues", (advice,))]
    cut = log.cut_bytes > 0 and log.cut_records != 0
    until = log.max_offset if cut else -1
    lost, rebuild = list[Loss](), Advised(("rebuild before the start",), (commands.rebuilt(until=until),))
    if cut and commands.is_node:
        rebuild = commands.mended()
        lost.append(_cut(log, rebuild))
    elif cut:
        repaired = commands.repaired()
        lost.append(_cut(log, commands.mended()))
        words = (
            f"{building_advice.REPAIR}: that makes its units and items anew, too",
            f"or rebuild, which {building_advice.stopped(until)}",
        )
        rebuild = Advised(words, (repaired, *rebuild.commands))
    elif dispatch.stopped_at >= 0:
        # A build refuses the record as damage, and a start that dispatches again meets it again.
        rebuild = commands.mended()
    elif prediction.in_order is False:
        rebuild = Advised((OUT_OF_ORDER,), (commands.verified(),))
    elif prediction.in_order is None:
        rebuild = Advised((NOT_READ,), rebuild.commands)
    if mend:
        rebuild = Advised((building_advice.REPAIR_FIRST, mend) if cut else (mend,), (commands.repaired(),) if cut else ())
    if commands.is_node and not cut and not prediction.release.startswith("4."):
        rebuild = Advised((*rebuild.advice, DISPATCHED), rebuild.commands)
    hidden = dispatch.hidden_records
    if hidden > 0 or (hidden < 0 and dispatch.hidden_from >= 0):
        advised = Advised(VERIFY, (commands.verified(),))
        is_limited = _is_hidden_by_limit(log, hidden, prediction.queues)
        if cut or dispatch.stopped_at >= 0 or is_limited or mend or commands.is_node:
            advised = rebuild
        elif any(queue.ends_blank for queue in prediction.queues):
            # ConsumeQueue.truncateDirtyLogicFiles keeps the file's first unit, which correctMinOffset then takes for the last.
            advised = Advised(IN_BROKERS_ORDER, (commands.rebuilt(queue_order="broker"),))
        lost.append(_hidden(dispatch, advised, is_limited, segments))
    if dispatch.misplaced:
        lost.append(_misplaced(dispatch, commands.verified()))
    if passed := [queue for queue in prediction.queues if queue.passed_over]:
        lost.append(_passed_over(passed))
    if dispatch.stopped_at >= 0:
        lost.append(_stopped(dispatch.stopped_at, commands.mended()))
    if short := [queue for queue in prediction.queues if _is_short(queue)]:
        worst = max(short, key=lambda queue: queue.log_max - queue.max_offset)
        text = (
            f"{counted(len(short), 'queue')}, such as {escape(worst.topic)}/{worst.queue}: its max offset becomes "
            f"{worst.max_offset}, the log holds offsets up to {worst.log_max - 1}"
        )
        text += "" if worst.hidden else "; each of its records has a unit, some of them at a lower offset than their own"
        lost.append(Loss("queue-short", len(short), text, *rebuild))
    # Of one that is short this is told with its max offset.
    if moved := [queue for queue in prediction.queues if queue.moved and not _is_short(queue)]:
        lost.append(_moved(moved, rebuild))
    if prediction.ext_short:
        text = (
            f"{_such(prediction.ext_short)}: a broker filters its old messages by the tags of new ones, and delivers delayed "
            "ones at the time of new ones"
        )
        lost.append(Loss("ext-short", len(prediction.ext_short), text, EXT_REBUILT, (commands.rebuilt(),)))
    if prediction.ext_unreadable:
        text = f"{_such(prediction.ext_unreadable)}: a consumer that comes to such a unit gets an error, and does not go on"
        lost.append(Loss("ext-unreadable", len(prediction.ext_unreadable), text, EXT_REBUILT, (commands.rebuilt(),)))
    if gaps := [queue for queue in prediction.queues if queue.gap_at >= 0]:
        lost.append(_gaps(gaps, rebuild))
    if mend and not cut:
        rebuild = Advised(("rebuild the index before the start",), (commands.rebuilt(only="index,checkpoint"),))
    return lost + _index(index, keeps_index, rebuild)


def _gaps(queues: Sequence[start_loading.QueueOutcome], advised: Advised) -> Loss:
    # DefaultMessageStore.getMessage: OFFSET_FOUND_NULL, with rollNextFile of 0; with RocksDBReusableIterator an exception.
    worst = max(queues, key=lambda queue: queue.behind_gap)
    behind = sum(queue.behind_gap for queue in queues)
    text = (
        f"{counted(len(queues), 'queue')}, such as {escape(worst.topic)}/{worst.queue}: queue offset {worst.gap_at} has no "
        "unit: the broker answers a consumer that comes there with an error, or sends it back to offset 0: "
        f"{counted(behind, 'unit')} behind such offsets"
    )
    return Loss("rocksdb-gap", len(queues), text, *advised)


def _such(queues: Sequence[str]) -> str:
    return f"{counted(len(queues), 'queue')}, such as {escape(queues[0])}"


def _is_short(queue: start_loading.QueueOutcome) -> bool:
    return queue.log_max > max(queue.max_offset, 0) and queue.hidden <= 0


def _cut(log: start_loading.LogOutcome, mended: Advised) -> Loss:
    deleted = f", {counted(len(log.deleted_segments), 'segment')} deleted" if log.deleted_segments else ""
    records = counted(log.cut_records, "good record") if log.cut_records > 0 else "records that were not counted"
    text = (
        f"at offset {log.max_offset} ({log.cut_reason}): {counted(log.cut_bytes, 'byte')} with {records} are cut off{deleted}"
    )
    advice = list(mended.advice)
    if "crc" in log.cut_reason.lower():
        advice.append("or start once with checkCRCOnRecover=false: the record is then served as it is")
    return Loss("log-cut", log.cut_records, text, tuple(advice), mended.commands)


def _is_hidden_by_limit(log: start_loading.LogOutcome, hidden: int, queues: Sequence[start_loading.QueueOutcome]) -> bool:
    """Return whether a rebuild is sure to make units of what is hidden.

    The recovery passed over it, and the queues begin behind it. A record among the units of its queue may have no place there.
    """
    if not log.limited or hidden < 0:
        return log.limited
    return any(queue.hidden > 0 and queue.min_offset > queue.log_min for queue in queues)


def _hidden(dispatch: start_loading.DispatchOutcome, advised: Advised, is_limited: bool, segments: int) -> Loss:
    records = counted(dispatch.hidden_records, "record") if dispatch.hidden_records >= 0 else "records that were not counted"
    place = f" at offsets {dispatch.hidden_from} to {dispatch.hidden_to}" if dispatch.hidden_from >= 0 else ""
    advice = list(advised.advice)
    text = f"{records} of the log{place} get no unit"
    if is_limited:
        text += f": the recovery looks at no more segments ({RECOVER_MAX})"
        advice.append(
            f"or start once with {RECOVER_MAX}={segments} in broker.conf, which reads all {counted(segments, 'segment')}"
        )
    return Loss("records-hidden", dispatch.hidden_records, text, tuple(advice), advised.commands)


def _misplaced(dispatch: start_loading.DispatchOutcome, verified: str) -> Loss:
    # CommitLog.checkMessageAndReturnSize takes a record's PHYSICALOFFSET as it is.
    lie = form(dispatch.misplaced, "lies elsewhere than it says", "lie elsewhere than they say")
    text = f"{counted(dispatch.misplaced, 'record')} of the log {lie}, the first at offset {dispatch.misplaced_from}"
    advice = "verify the store: it says which name a segment should have, or which record is damaged"
    return Loss("records-misplaced", dispatch.misplaced, f"{text}: no unit leads there", (advice,), (verified,))


def _passed_over(queues: list[start_loading.QueueOutcome]) -> Loss:
    worst, total = max(queues, key=lambda queue: queue.passed_over), sum(queue.passed_over for queue in queues)
    name = f"{escape(worst.topic)}/{worst.queue}"
    text = (
        f"{counted(total, 'message')} of {counted(len(queues), 'queue')}, such as {name}: the units from its min offset "
        f"{worst.min_offset} on stand for no record, and a consumer that begins there goes on at {worst.given_from}"
    )
    advice = (
        "if bytes of the log are lost before the queue's first record, rebuild: units that repeat that record then stand there",
        "else let the groups of such a queue begin at the offset of its first message",
    )
    return Loss("messages-passed-over", total, text, advice)


def _moved(queues: list[start_loading.QueueOutcome], rebuild: Advised) -> Loss:
    # ConsumeQueue.putMessagePositionInfo logs "logic queue order maybe wrong", and puts the unit behind the last one.
    worst, total = max(queues, key=lambda queue: queue.moved), sum(queue.moved for queue in queues)
    text = (
        f"{counted(total, 'record')} of {counted(len(queues), 'queue')}, such as {escape(worst.topic)}/{worst.queue}: "
        f"{form(total, 'its unit gets a lower queue offset', 'their units get lower queue offsets')} than the record says: a "
        "group whose offset is between the two misses it"
    )
    return Loss("records-moved", total, text, *rebuild)


def _stopped(offset: int, mended: Advised) -> Loss:
    text = (
        f"the topic of the record at offset {offset} cannot be a folder: the broker tries 30 times, a second each, then puts "
        "no unit into any queue, and takes no messages until it starts again, and at that start likewise"
    )
    return Loss("dispatch-stopped", 1, text, *mended)


def _index(index: start_loading.IndexOutcome, keeps_index: bool, rebuild: Advised) -> list[Loss]:
    if not keeps_index:
        return []
    lost, advice = list[Loss](), rebuild.advice
    if index.items_lost > 0:
        text = f"{counted(index.items_lost, 'item')} of {counted(len(index.deleted), 'IndexFile')} that the start deletes"
        lost.append(Loss("index-items-lost", index.items_lost, text, *rebuild))
    if index.items_missing > max(index.items_lost, 0):
        advice_for_missing = (
            advice
            if index.files or index.deleted
            else (*advice, "or, if this broker keeps no index, say so by messageIndexEnable=false in --broker-conf")
        )
        text = f"{counted(index.items_missing, 'key')} of records in the log have no item after the start"
        lost.append(Loss("index-items-missing", index.items_missing, text, advice_for_missing, rebuild.commands))
    return lost


def delivered(
    levels: tuple[DelayedOutcome, ...], timers: TimerOutcome | None, commands: Commands
) -> tuple[list[Loss], list[Loss]]:
    """Return the losses and the warnings of delayed and timer messages."""
    lost, warned = list[Loss](), list[Loss]()
    skipped, repeated = sum(level.skipped for level in levels), sum(level.again for level in levels)
    if skipped:
        text = f"{counted(skipped, 'message')} below the min offset of their queue"
        lost.append(Loss("delayed-skipped", skipped, text, ("rebuild before the start, so that their queue begins with them",)))
    if stuck := [level for level in levels if level.stuck_at >= 0]:
        first, count = stuck[0], sum(level.end - level.stuck_at for level in stuck)
        text = (
            f"{counted(count, 'message')} of {counted(len(stuck), 'level')}: the delivery of level {first.level} stops at "
            f"queue offset {first.stuck_at}, and 4.9 delivers the message in front of it again and again"
        )
        lost.append(Loss("delayed-stuck", count, text, EXT_REBUILT, (commands.rebuilt(),)))
    if repeated:
        unknown = [level.level for level in levels if level.kept < 0 and level.again]
        text = f"at most {counted(repeated, 'delayed message')}" if not unknown else f"{counted(repeated, 'delayed message')}"
        text += f", config/delayOffset.json has no offset of {counted(len(unknown), 'level')}" if unknown else ""
        restore = "restore config/delayOffset.json from a backup; if there is none, build with --write-delay"
        advice = restore if unknown else "rebuild before the start"
        warned.append(Loss("delayed-again", repeated, text, (advice,)))
    if timers is not None and timers.lost:
        text = f"{_many(timers.lost)} below queue offset {timers.goes_on}, to which neither timerwheel nor timerlog leads"
        lost.append(Loss("timer-lost", timers.lost, text, TIMERS_LOST, (commands.rebuilt(),)))
    if timers is not None and timers.again:
        text = f"{_many(timers.again)}: by config/timercheck their time is still to come, or they are still to be taken"
        warned.append(Loss("timer-again", timers.again, text, (TIMERS_AGAIN,)))
    if timers is not None:
        anew = (TIMERS_ASTRAY,), (commands.rebuilt(),)
        lost += [Loss("timer-stuck", timers.stuck, _stuck(timers), *anew)] if timers.stuck > 0 else []
        other, over = (f"{counted(count, 'unit')} of timerlog" for count in (timers.other, timers.passed_over))
        text = f"{other} {form(timers.other, 'leads to another message', 'lead to other messages')}, which the broker delivers"
        warned += [Loss("timer-other", timers.other, f"{text} at the time of the unit", *anew)] if timers.other > 0 else []
        text = f"{over}: when the log has grown over such a place before the time comes, another record stands there"
        warned += [Loss("timer-passed-over", timers.passed_over, text, *anew)] if timers.passed_over > 0 else []
    return lost, warned


def _stuck(timers: TimerOutcome) -> str:
    # TimerDequeuePutMessageService catches what convertMessage throws, waits, and does the same again.
    return (
        f"{counted(timers.stuck, 'unit')} of timerlog {form(timers.stuck, 'leads to a record', 'lead to records')} without a "
        f"real queue, the first in the slot of {show_time(timers.stuck_at)}: the broker tries to deliver that for ever, and "
        "reads no later slot; what else waits in that slot comes again at each start"
    )


def _many(count: int) -> str:
    return counted(count, "timer message") if count >= 0 else "timer messages that were not counted (--count-limit)"


def earlier_lives(queues: Sequence[start_loading.QueueOutcome]) -> list[Loss]:
    """Return the warning of records of topics that were made again."""
    again = [queue for queue in queues if queue.earlier_lives]
    if not again:
        return []
    worst, total = max(again, key=lambda queue: queue.earlier_lives), sum(queue.earlier_lives for queue in again)
    text = (
        f"{counted(total, 'record')} of {counted(len(again), 'queue')}, such as {escape(worst.topic)}/{worst.queue}, lie in "
        "front of its first message: the topic was deleted and made again, which is no loss of this start; if nobody deleted "
        "it, its files were lost once, and these messages with them"
    )
    return [Loss("earlier-lives", total, text)]


def set_back(prediction: start_loading.Prediction) -> list[Loss]:
    """Return the warning of queues that a start sets back in RocksDB (``verifyAndInitOffsetForAllStore``)."""
    if not prediction.set_back:
        return []
    count = len(prediction.set_back)
    text = (
        f"{counted(count, 'queue')}: {prediction.set_back[0]}{f', and {count - 1:,} more' if count > 1 else ''}: the start "
        "lets RocksDB's queue begin where that of files ends, and nobody reads older messages through it any more"
    )
    advice = "read the files (combineCQPreferCQType=default) until these messages have expired"
    return [Loss("combine-set-back", count, text, (advice,))]


def tail_cut(log: start_loading.LogOutcome | None) -> list[Loss]:
    """Return the warning of a cut that costs no record."""
    if log is None or not log.cut_bytes or log.cut_records:
        return []
    return [Loss("log-tail-cut", 0, f"{counted(log.cut_bytes, 'byte')} behind offset {log.max_offset} ({log.cut_reason})")]


def units_behind_log(prediction: start_loading.Prediction, queues: Sequence[start_loading.LoadedQueue]) -> list[str]:
    """Return a note for each folder of queues in which the start cuts units of messages behind a log that it keeps whole."""
    if prediction.log is None or prediction.log.cut_bytes:
        return []
    cut = [queue for queue in prediction.queues if queue.units_cut > queue.units_added]
    batch, units = {(queue.topic, queue.queue) for queue in queues if cut and queue.batch}, Counter[str]()
    for queue in cut:
        folder = layouts.BATCH_QUEUES if (queue.topic, queue.queue) in batch else layouts.QUEUES
        units[folder] += queue.units_cut - queue.units_added
    return [
        behind_log(folder, f"{counted(count, 'unit')}, which the start cuts,", prediction.log.max_offset)
        for folder, count in sorted(units.items(), reverse=True)
    ]
