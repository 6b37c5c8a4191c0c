"""The Delta tables of ``--tables``: their columns, constraints and clustering. docs/reference/delta-tables.md is made from it.

The driver makes the tables from this definition, and the executors their rows. Columns have the names of the SQL data sources.
Times from the log are in milliseconds, as the records have them, whatever they are.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rocketmq_reindex.storage_format import layouts

DIGEST_CHARACTERS: Final = 32

_DECISIONS: Final = "ARRAY<STRUCT<kind: STRING, topic: STRING, queue: INT, offset: BIGINT, count: BIGINT>>"
_TYPES: Final[dict[str, pa.DataType]] = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "ARRAY<INT>": pa.list_(pa.int32()),
    "ARRAY<BIGINT>": pa.list_(pa.int64()),
    _DECISIONS: pa.list_(
        pa.struct(
            [
                ("kind", pa.string()),
                ("topic", pa.string()),
                ("queue", pa.int32()),
                ("offset", pa.int64()),
                ("count", pa.int64()),
            ]
        )
    ),
}


@dataclass(frozen=True)
class Column:
    """One column: its type for Spark, ``sql``, a comment, and ``required``, which makes it NOT NULL."""

    name: str
    sql: str
    comment: str
    required: bool = True


@dataclass(frozen=True)
class Table:
    """One table: ``checks`` are its CHECK constraints by name, ``clustered`` the columns of CLUSTER BY."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    checks: dict[str, str]
    clustered: tuple[str, ...] = ()

    @property
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.schema([pa.field(column.name, _TYPES[column.sql]) for column in self.columns])

    @property
    def ddl(self) -> str:
        """The columns as the schema text that ``mapInArrow`` takes."""
        return ", ".join(f"{column.name} {column.sql}" for column in self.columns)


_BUILD: Final = Column("build", "STRING", "the run that wrote this row: builds.build")

BUILDS: Final = Table(
    "builds",
    "One row a run of rmq-reindex build",
    (
        Column("build", "STRING", "--build-id, or a random one"),
        Column("attempt", "INT", "1, or one more for each run that had the same id before"),
        Column("state", "STRING", "started, published, failed or refused; a run that was killed or interrupted stays started"),
        Column("exit", "INT", "exit status", required=False),
        Column("error", "STRING", "the line of a run that failed or was refused", required=False),
        Column("version", "STRING", "of rmq-reindex"),
        Column("startedAt", "TIMESTAMP", "when Spark was up"),
        Column("endedAt", "TIMESTAMP", "when its rows were written", required=False),
        Column("sessionSeconds", "DOUBLE", "until Spark was up"),
        Column("buildSeconds", "DOUBLE", "from then until published, or until the end", required=False),
        Column("inputs", "ARRAY<STRING>", "folders of segments"),
        Column("out", "STRING", "DIR"),
        Column("settings", "STRING", "what decides the bytes written, as JSON: as in the manifest"),
        Column("segments", "INT", "segments listed"),
        Column("bytes", "BIGINT", "of them that were read"),
        Column("records", "BIGINT", "good records"),
        Column("units", "BIGINT", "ConsumeQueue units written"),
        Column("items", "BIGINT", "index items written"),
        Column("queueFiles", "BIGINT", "ConsumeQueue files written"),
        Column("indexFiles", "BIGINT", "IndexFiles written"),
        Column("damagedPlaces", "BIGINT", "rows in quarantine"),
        Column("decisions", _DECISIONS, "what was done to queues out of order: as in the summary"),
        Column("warnings", "ARRAY<STRING>", "as in the summary"),
        # Later than the others. Tables of older versions get them, and null in the rows that they hold.
        Column("store", "STRING", "--store-name, or STORE", required=False),
        Column("host", "STRING", "where the driver runs", required=False),
        Column("user", "STRING", "whose process it is", required=False),
        Column("pid", "INT", "its process, on host", required=False),
        Column("updatedAt", "TIMESTAMP", "when this row was written; each minute or so while the run goes on", required=False),
        Column("stage", "STRING", "where a run is that goes on: scan, write, ...", required=False),
        Column("stageBytes", "BIGINT", "bytes of the stage that are done, 0 where it does not tell", required=False),
        Column("stageTotalBytes", "BIGINT", "bytes of the stage in all, 0 where it does not tell", required=False),
        Column("run", "STRING", "a random word of the attempt that may write rows of this build", required=False),
        Column("digestKind", "STRING", "of the digests in segments and files: xxh3-128; null: murmur3-128", required=False),
    ),
    {
        "state_known": "state IN ('started', 'published', 'failed', 'refused')",
        "ended_or_not": "(state = 'started') = (endedAt IS NULL) AND (state = 'started') = (exit IS NULL)",
        "exit_fits": "state = 'started' OR (state = 'published') = (exit IN (0, 3))",
        "attempt_counts": "attempt >= 1",
        "counts_rise": "segments >= 0 AND bytes >= 0 AND records >= 0 AND units >= 0 AND items >= 0",
    },
)

SEGMENTS: Final = Table(
    "segments",
    "One row a segment of the log that a published build was made from",
    (
        _BUILD,
        Column("segment", "STRING", "name of the file"),
        Column("path", "STRING", "where it was read"),
        Column("startOffset", "BIGINT", "its first byte, as an offset of the commitlog"),
        Column("size", "BIGINT", "bytes"),
        Column("digest", "STRING", "of chunkDigests (builds.digestKind); null where not all was read", required=False),
        Column("chunkDigests", "ARRAY<STRING>", "of each 64 MiB (builds.digestKind); null where not all of it was read"),
        Column("records", "BIGINT", "good records that start in it"),
        Column("units", "BIGINT", "ConsumeQueue units from it"),
        Column("items", "BIGINT", "index items from it"),
        Column("minStoreTimestamp", "BIGINT", "milliseconds", required=False),
        Column("maxStoreTimestamp", "BIGINT", "milliseconds", required=False),
        Column("damagedPlaces", "BIGINT", "of quarantine that begin in it"),
        Column("damagedBytes", "BIGINT", "bytes of these"),
    ),
    {
        "offsets": "startOffset >= 0 AND size >= 0",
        "counts": "records >= 0 AND units >= 0 AND items >= 0 AND damagedPlaces >= 0 AND damagedBytes >= 0",
        "digest_length": f"digest IS NULL OR length(digest) = {DIGEST_CHARACTERS}",
        "times_rise": "minStoreTimestamp IS NULL OR minStoreTimestamp <= maxStoreTimestamp",
    },
)

KINDS: Final = (layouts.QUEUES, layouts.BATCH_QUEUES, layouts.INDEX, layouts.CHECKPOINT, layouts.CONFIG)
"""The kinds of files: the first part of a path."""

FILES: Final = Table(
    "files",
    "One row a file that a published build wrote",
    (
        _BUILD,
        Column("path", "STRING", "below DIR"),
        Column("kind", "STRING", ", ".join(KINDS)),
        Column("size", "BIGINT", "bytes"),
        Column("used", "BIGINT", "bytes in use"),
        Column("digest", "STRING", "of the bytes in use (builds.digestKind): as in the manifest"),
    ),
    {
        "kind_known": f"kind IN ({', '.join(repr(kind) for kind in KINDS)})",
        "sizes": "used >= 0 AND used <= size",
        "digest_length": f"length(digest) = {DIGEST_CHARACTERS}",
    },
)

FIRST_BYTES: Final = 64

QUARANTINE: Final = Table(
    "quarantine",
    "One row a damaged place, of refused builds as well",
    (
        _BUILD,
        Column("segment", "STRING", "name of the segment, also of a missing one"),
        Column("path", "STRING", "where it was read; null for a missing one", required=False),
        Column("offset", "BIGINT", "of the commitlog"),
        Column("length", "BIGINT", "bytes"),
        Column("reason", "STRING", "what is wrong; torn and stale tails are listed, too"),
        Column("firstBytes", "STRING", f"up to {FIRST_BYTES} bytes from offset on, in hex", required=False),
    ),
    {
        "place": "offset >= 0 AND length >= 0",
        "bytes_bounded": f"firstBytes IS NULL OR length(firstBytes) <= {2 * FIRST_BYTES}",
    },
)

MESSAGES: Final = Table(
    "messages",
    "One row a message of a published build, without its body (--messages-table)",
    (
        _BUILD,
        Column("topic", "STRING", "as stored"),
        Column("queueId", "INT", "as stored"),
        Column("consumeQueueOffset", "BIGINT", "QUEUEOFFSET of the record"),
        Column("commitLogOffset", "BIGINT", "physical offset"),
        Column("msgSize", "INT", "bytes of the record"),
        Column("storeTimestamp", "BIGINT", "milliseconds"),
        Column("bornTimestamp", "BIGINT", "milliseconds"),
        Column("sysFlag", "INT", "as stored: compression, transaction, hosts"),
        Column("tagsCode", "BIGINT", "of its unit"),
        Column("tags", "STRING", "as stored", required=False),
        Column("uniqKey", "STRING", "UNIQ_KEY", required=False),
        Column("keys", "STRING", "KEYS, separated by spaces", required=False),
        Column("keyHashes", "ARRAY<INT>", "index_hash of uniqKey, then of each key: one for each index item"),
        Column("keyFingerprints", "ARRAY<BIGINT>", "murmur3, the first 64 bits, of topic#key, in the same order"),
        Column("uniqFingerprint", "BIGINT", "that of uniqKey: files are skipped by it", required=False),
        Column("keyFingerprint", "BIGINT", "that of the first of keys: files are skipped by it", required=False),
    ),
    {
        "place": "commitLogOffset >= 0 AND msgSize > 0",
        "one_a_key": "size(keyHashes) = size(keyFingerprints)",
    },
    clustered=("storeTimestamp", "keyFingerprint", "uniqFingerprint"),
)

TABLES: Final = (BUILDS, SEGMENTS, FILES, QUARANTINE, MESSAGES)
