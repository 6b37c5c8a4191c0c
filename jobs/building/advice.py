"""What to do about a damaged log, in the same words everywhere: repair it first, or another way, with what that loses.

And what to say of a log of DLedger whose last entries are not committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command.option_table import ADVISED, default_of
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.showing import escape, redacted, shell

if TYPE_CHECKING:
    from rocketmq_reindex.storage_format.scan.chain import Chain

DIR: Final = "DIR"
"""stands for the folder of the result"""
STORE: Final = "STORE"
"""stands for the broker's store"""
REPLICA: Final = "REPLICA"
"""stands for the store of a replica, or a backup"""
BROKER_CONF: Final = "BROKER_CONF"
"""stands for the broker's own file of settings"""
VERSION: Final = "VERSION"
"""stands for the release of the broker"""
_FILES_OF: Final = {layouts.QUEUES: "ConsumeQueue files", layouts.INDEX: "IndexFiles"}
"""what the files of a part are called"""
REPAIR: Final = "repair the log first"
REPAIRS: Final = "rmq-reindex repair "
"""how such a command begins"""
WITHOUT_REPLICA: Final = "without a replica or a backup leave --replica out: what the damage took is then lost, nothing else"
REPAIR_FIRST: Final = f"{REPAIR}: {WITHOUT_REPLICA}"
"""what to say above the command of a repair"""


COPIED: Final = (
    "stop the node, move its dledger-.../, consumequeue/, index/ and checkpoint away, and start it: it copies its log from "
    "the leader"
)
"""what to do where a log of DLedger is damaged: no repair mends it"""


MAY_DIFFER: Final = "they are left out; the checkpoint may be behind: units and items of them are no damage, though they differ"
"""of entries that are not committed: the node writes its checkpoint every three seconds, and dispatches meanwhile"""


@dataclass(frozen=True)
class Way:
    """Another way than a repair."""

    loses: str
    """what it loses, as the end of a sentence"""
    command: str


def place_beside(store: str, ending: str, taken: Collection[str] = ()) -> str:
    """Return a place for a result beside ``store`` where nothing is yet: STORE.rebuilt, or STORE.rebuilt-2, and so on.

    ``taken`` are those that other commands name.
    """
    named = files.absolute(store) if files.base(store) in (".", "..") else store
    endings = (ending if number == 1 else f"{ending}-{number}" for number in itertools.count(1))
    return next(place for place in (files.beside(named, end) for end in endings) if place not in taken and not _stands(place))


def _stands(place: str) -> bool:
    try:
        return files.entry_of(place).kind != files.ABSENT
    except OSError:
        # The command itself says what is wrong there.
        return False


def opening(name: str, settings: StoreSettings, out: str = DIR) -> list[str]:
    """Return the words a command begins with: its name, the store, and where the result goes (``out``; "" for none)."""
    words = ["rmq-reindex", name, *([settings.store] if settings.store else []), *(["--out", out] if out else [])]
    return words + _commitlogs(settings)


def fetching(settings: StoreSettings, out: str, *, partial: bool = False) -> list[str]:
    """Return the words of the fetch that puts the build ``out`` in place; ``partial``: it leaves something out.

    A store behind a URI is a copy: no broker starts on it, and a fetch goes into the broker's own (STORE).
    """
    to = [STORE] if files.is_remote(settings.store) else [settings.store, *_commitlogs(settings)]
    words = ["rmq-reindex", "fetch", out, "--to", *to]
    return [*words, "--partial"] if partial else words


def _commitlogs(settings: StoreSettings) -> list[str]:
    return [word for root in settings.commitlogs for word in ("--commitlog", root)]


def options(settings: StoreSettings, topics_config: str = "") -> list[str]:
    """Return the options by which a build and a repair read this store as ``settings`` do.

    ``topics_config`` is the file that the batch topics are from, if it is not STORE/config/topics.json.
    """
    # Sizes that stand in it are named all the same: they win over it, whatever it says by then.
    words = ["--broker-conf", settings.broker_conf] if settings.broker_conf else []
    for name in ADVISED:
        value = getattr(settings, name)
        if value != default_of(name) or name in settings.named:
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--lmq"] if settings.lmq else []
    words += ["--cq-ext", settings.cq_ext] if settings.is_named("cq_ext") else []
    words += ["--snapshot"] if settings.snapshot else []
    if settings.batch_topics:
        words += ["--topics-config", topics_config or f"{settings.store or settings.store_folder}/config/topics.json"]
    return words


def repair(
    settings: StoreSettings, topics_config: str = "", out: str = DIR, *, replica: bool = True, more: Sequence[str] = ()
) -> str:  # fmt: skip
    """Return the repair of this store's log, with places for a ``replica`` and for the result, and ``more`` options."""
    # A repair refuses --crc none: the start behind it verifies body CRCs.
    settings = replace(settings, crc="body") if settings.crc == "none" and settings.crc_on_recover else settings
    opened = opening("repair", settings, out)
    return shell(
        map(redacted, [*opened, *(["--replica", REPLICA] if replica else []), *more, *options(settings, topics_config)])
    )


def stopped(offset: int) -> str:
    """Return what ``--on-damage stop`` loses."""
    return f"loses all messages from offset {offset} on"


def salvaged(cut: int) -> str:
    """Return what ``--on-damage salvage`` loses; ``cut`` is where a broker that starts cuts the log, or -1."""
    where = f" at offset {cut}" if cut >= 0 else ""
    return (
        "loses what the damage took, and leaves the log as it is: a broker whose start reads the damage cuts its log "
        f"there{where}, and loses what follows"
    )


def no_place(offset: int) -> str:
    """Return what to say, in lines of their own, where good records have no place in their queue: a repair leaves them."""
    return (
        "\n  no repair gives these records a place, though their bytes are sound: choose --on-damage salvage, which leaves out "
        f"them alone,\n  or --on-damage stop, which {stopped(offset)}"
    )


def is_copied(segments: Sequence[Segment]) -> bool:
    """Return whether a damaged log is to be copied from the leader of its group: it has one of DLedger."""
    return any(segment.lead for segment in segments)


def first_step(settings: StoreSettings, segments: Sequence[Segment]) -> str:
    """Return what to do about a damaged log before all else."""
    return COPIED if is_copied(segments) else f"{REPAIR}: {repair(settings)} ({WITHOUT_REPLICA})"


def refusal(settings: StoreSettings, segments: Sequence[Segment], offset: int) -> str:
    """Return what a build that refuses a damaged log says, in lines of their own; ``offset`` is that of the first damage."""
    return (
        f"{_gap(segments, offset)}\n  {first_step(settings, segments)}"
        f"\n  or build with --on-damage stop, which {stopped(offset)}, or with salvage, which loses what the damage took, "
        "while a broker may cut its log there"
    )


def _gap(segments: Sequence[Segment], offset: int) -> str:
    """Return, in a line of its own, where the logs begin between which bytes are missing at ``offset``; "" for other damage."""
    for before, segment in itertools.pairwise(segments):
        if before.segment_end == offset < segment.start and before.lead != segment.lead:
            old, new = (escape(files.parent(one.path)) for one in (before, segment))
            return (
                f"\n  {old} begins at offset {segments[0].start} and ends at {offset}, {new} begins at {segment.start}: one "
                "of them may be a leftover: name the other one by --commitlog"
            )
    return ""


def of_sizes(parts: Collection[str], command: str) -> list[str]:
    """Return a note on ``parts`` whose sizes neither a setting nor a file shows, and which ``command``, in words, makes."""
    if unsized := [files_of for part, files_of in _FILES_OF.items() if part in parts]:
        told = "makes them as large as by default: give the broker's own by --broker-conf"
        return [f"no file shows the sizes of {' and '.join(unsized)}: {command} {told}"]
    return []


def of_entries(settings: StoreSettings, segments: Sequence[Segment], chain: Chain, left: str) -> list[str]:
    """Return what to say of a log of DLedger: from where on its entries are not committed, or that nobody knows that.

    ``left`` says what becomes of those that are not.
    """
    if chain.uncommitted >= 0:
        where = f"offset {chain.later}: entries of DLedger from index {chain.uncommitted} on"
        return [f"{where} are not committed, by the node's checkpoint: {left}"]
    if any(segment.lead for segment in segments) and settings.committed == layouts.INT64_MAX:
        return ["no checkpoint of DLedger says which entries are committed: all are kept, and the group may drop the last ones"]
    return []


def check_committed(committed: int, segments: Sequence[Segment], chain: Chain) -> None:
    """Raise InputError where the first record of the log lies in an entry of DLedger behind the index ``committed``."""
    if chain.uncommitted < 0 or any(summary.records + summary.excluded for summary in chain.accepted):
        return
    (path,) = [escape(segment.path) for segment in segments if segment.start <= chain.later < segment.data_end]
    raise errors.InputError(
        f"{path}: offset {chain.later}: the log's first entry of DLedger has index {chain.uncommitted}, and the checkpoint of "
        f"its node says committedIndex={committed}, so nothing would be built: --allow-empty builds it all the same"
    )
