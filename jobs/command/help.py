"""What ``--help`` shows beside the options: the group of each, an example, the exit statuses, and where to read more.

One command has forty options. In a group stand those that a reader looks for together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

INPUT, WHAT, DAMAGE, SIZES, OUTPUT, RUN = "input", "what", "damage", "sizes and version", "output", "run"
GROUPS: Final = {
    INPUT: (
        "commitlogs", "commitlog", "broker_conf", "topics_config", "snapshot", "replicas", "against", "sample", "abort",
        "explain", "consumer_offsets", "kind", "store", "summary",
    ),
    WHAT: (
        "only", "index_policy", "checkpoint", "include_topics", "exclude_topics", "until_offset", "until_time", "lmq",
        "write_topics", "write_delay", "undecided", "topic", "key", "tag", "queue", "offset", "time", "id", "physical", "begin",
        "end", "max", "scan", "records", "topics", "partial", "allow_empty", "other_log",
    ),
    DAMAGE: (
        "on_damage", "queue_order", "max_fill", "crc", "extend", "majority", "tombstones", "include_broken", "count_limit",
    ),
    SIZES: (
        "cq_file_size", "batch_cq_file_size", "hash_slots", "index_items", "segment_size", "first_offset", "delay_levels",
        "broker_version",
    ),
    OUTPUT: ("out", "to", "overwrite", "keep", "link", "json", "report", "body", "body_max"),
    RUN: ("dry_run", "engine", "master", "range_size", "threads", "work"),
}  # fmt: skip
"""The options of each group, by the names that the parsers give them, in the order of the groups in ``--help``."""

TITLES: Final = {name: title for title, names in GROUPS.items() for name in names}
"""The group of an option. One without a group here belongs to a group that its parser makes, such as that of Delta tables."""


class About(NamedTuple):
    """What ``--help`` says of a command behind its options."""

    examples: tuple[str, ...]
    statuses: tuple[int, ...] = (0, 1, 2)


STATUSES: Final = {
    0: "done",
    1: "the run did not come to its end; after build and repair nothing is published",
    2: "wrong usage",
    3: "done, but records are lost: damaged, or in no queue",
    4: "found: differences, or what the start of a broker would lose or hide",
    5: "the log or a queue is refused, because the options say so",
}
"""Exit statuses in short; docs/reference/exit-statuses.md has them for each command."""

ABOUT: Final = {
    "info": About(("rmq-reindex info /data/store",)),
    "build": About(
        (
            "rmq-reindex build /data/store --broker-conf broker.conf --out /data/rebuilt",
            "rmq-reindex build /data/store --out /data/rebuilt --only index,checkpoint --engine local",
        ),
        (0, 1, 2, 3, 5),
    ),
    "query": About(
        (
            "rmq-reindex query /data/store --topic Orders --key order-17",
            "rmq-reindex query /data/store --topic Orders --queue 0 --time 2026-11-20T08:00:00Z --max 10",
        )
    ),
    "inspect": About(("rmq-reindex inspect /data/store/checkpoint /data/store/index/*",)),
    "verify": About(
        (
            "rmq-reindex verify /data/store",
            "rmq-reindex verify /data/store --report verified.json",
        ),
        (0, 1, 2, 4),
    ),
    "preflight": About(("rmq-reindex preflight /data/store --broker-version 5.3.3 --broker-conf broker.conf",), (0, 1, 2, 4)),
    "repair": About(
        ("rmq-reindex repair /data/store --replica /backup/store --broker-conf broker.conf --out /data/repaired",),
        (0, 1, 2, 3, 5),
    ),
    "fetch": About(("rmq-reindex fetch /data/rebuilt --to /data/store",)),
    "report": About(("rmq-reindex report /data/rebuilt --out report.html",)),
}


def epilog(command: str) -> str:
    """Return the text behind the options in the ``--help`` of a command."""
    about = ABOUT[command]
    examples = "\n".join(f"  {example}" for example in about.examples)
    statuses = "\n".join(f"  {status}  {STATUSES[status]}" for status in about.statuses)
    name = "example" if len(about.examples) == 1 else "examples"
    more = f"man rmq-reindex-{command}, and docs/reference/{command}.md in the sources"
    return f"{name}:\n{examples}\n\nexit status:\n{statuses}\n\nmore: {more}"
