"""The table of options: each is declared here once, for the command line, broker.conf, manifests, advice, docs and Python API.

A command's parser has the options that ``COMMANDS`` names for it, in that order.
"""

from typing import Any, Final, get_args

from rocketmq_reindex.jobs.command import option as o
from rocketmq_reindex.jobs.command.option import Option
from rocketmq_reindex.storage_format import layouts, versions
from rocketmq_reindex.storage_format.checks import differences
from rocketmq_reindex.storage_format.queue.units import FILL_MAX
from rocketmq_reindex.udfs.times import DELAY_LEVELS

# ---------------------------------------------------------------------------------------------------------------------- options
# The options, by the title above them in ``--help``, in the order of the titles. The name of each is its keyword in the Python
# API, too.

INPUT, WHAT, DAMAGE, SIZES, OUTPUT, RUN = "input", "what", "damage", "sizes and version", "output", "run"
URIS, WATCHING, TABLES, AGAIN = "object stores", "watching a run", "Delta tables", "verify again"
GROUPS: Final = ("", INPUT, WHAT, DAMAGE, SIZES, OUTPUT, RUN, URIS, WATCHING, TABLES, AGAIN)
"""the titles in their order; arguments and --help have none"""
NOTES: Final = {WATCHING: "environment variables for these: RMQ_REINDEX_PROGRESS, _LOG_FORMAT, _METRICS, _STORE_NAME"}
"""what ``--help`` says below a title"""
_FILES: Final = "taken from the files"
_OR: Final = f"{_FILES}, or {{}}"
_LOOK: Final = "verify preflight query"
_VERSIONS: Final = f"{', '.join(versions.VERSIONS)}, or a release, such as 5.1.4"
_OUT: Final = "new folder or URI for the result, apart from STORE"
_STORE: Final = "the broker's store (storePathRootDir)"


def _of(title: str, /, **options: Option) -> dict[str, Option]:
    return {name: option._replace(group=title) for name, option in options.items()}


OPTIONS: Final = _of(
    "",
    store=Option("store folder or URI: the segments are in STORE/commitlog", "STORE", nargs="?", conf="storePathRootDir")
    .but("verify", help="folder of the store, or of a build, which needs --commitlog")
    .but("query", help="store folder, with commitlog/, index/ and consumequeue/ in it")
    .but("info consumers", help=f"{_STORE}: a folder or a URI", nargs="1")
    .but("preflight", help=f"{_STORE}, a local folder")
    .but("report", help="folder around commitlog/: the page then shows when messages were stored, by topic", group=INPUT,
         shown="the build's folder, or the store that was verified", nargs="", type=o.on_disk("--store", "folder"))
    .but("trace", help="store folder or URI to look in; of several each has a name (repeatable)", metavar="NAME=STORE",
         group=INPUT, nargs="append", dest="stores", conf="", required=True),
    stores=Option("stores to look into: folders or URIs; of several each has a name", "NAME=STORE", nargs="+"),
    files=Option("files of a store", "FILE", nargs="+",
        text="a segment, ConsumeQueue file, batch ConsumeQueue file, IndexFile, checkpoint or timer file; a path or URI"),
    source=Option("what a build wrote (with its reindex.json), or the file of verify --report", "DIR",
        o.on_disk("", "folder or file"), nargs="1")
    .but("import", help="rows as export writes them: a file of JSON lines (.jsonl), CSV or Parquet, or a folder of Parquet "
        "files", metavar="SOURCE"),
    build=Option("folder or URI that was --out of a build, or one build below it", "BUILD", nargs="1"),
) | _of(
    INPUT,
    commitlog=Option("folder of segments, instead of STORE/commitlog (repeatable)", "DIR", nargs="append", dest="commitlogs",
        conf="storePathCommitLog")
    .but("info query preflight consumers export replay browse", shown="STORE/commitlog",
        help="folder of segments; repeat it for a log spread over several")
    .but("fetch", help="where the broker's log lies, if not in DIR/commitlog of --to; repeat it for more folders"),
    broker_conf=Option("take sizes, folders, delay levels and LMQ from a broker.conf; options given here win", "FILE")
    .but("query", help="take sizes and folders from a broker.conf; options given here win")
    .but("preflight", help="take sizes, folders and settings from a broker.conf; options given here win"),
    topics_config=Option("a broker's config/topics.json: its batch topics (BatchCQ) get batch ConsumeQueues", "FILE")
    .but("verify", text="a broker's config/topics.json, for batch topics. Default: that of STORE"),
    snapshot=Option("the log no longer changes: do not look whether a broker runs on the store"),
    replica=Option("store of a replica, or a backup: lost bytes come from it where both logs are sure to be the same "
        "(repeatable)", "STORE2", nargs="append", dest="replicas"),
    against=Option("compare STORE with this store instead: both logs, and files of the same name", "STORE"),
    sample=Option("read only this share of the segments, always the same ones", "FRACTION", float, 1.0),
    abort=Option("as if the last stop was unclean, or clean", shown="by the store's file abort", choices=get_args(o.Abort)),
    explain=Option("tell what an earlier repair changed: DIR/reindex.json; no other option goes with it", "MANIFEST"),
    consumer_offsets=Option(
        "a backup of config/consumerOffset.json: it is checked against the log, and put into DIR/config", "FILE")
    .but("export replay", help="with --unconsumed-by: a file of consumer offsets, instead of STORE/config (repeatable)",
        nargs="append")
    .but("consumers", help="a file of consumer offsets, such as a replica's or a copy, instead of those in STORE/config "
        "(repeatable)", nargs="append"),
    merge=Option("of several files the offset that counts for a queue of a group: the highest (nothing is read twice), or the "
        "lowest (nothing is missed)", default="highest", choices=get_args(o.Merge)),
    kind=Option("kind of the files", shown="by folder, name and content", choices=get_args(o.FileKind))
    .but("export", help="records of this kind (repeatable)", shown="message, or the kind of the topics", nargs="append",
         dest="kinds", choices=get_args(o.RecordKind), group=WHAT,
         text="records of this kind, or ``all``; one, or a sequence"),
    findings=Option("also show what this file says of a store: that of verify --report, what a build or a repair wrote, or its "
        "folder quarantine (repeatable)", "NAME=FILE", nargs="append"),
    summary=Option("what build --json printed: the page then shows when it ran, and seconds by stage", "FILE",
        o.on_disk("--summary", "file"),
        text="file with the summary of a build as JSON: the page then shows when it ran, and seconds by stage"),
) | _of(
    WHAT,
    only=Option("build only these parts", "PARTS", o.parts_of(o.PARTS), o.PARTS)
    .but("verify", help="compare only these parts", type=o.parts_of(differences.PARTS), default=differences.PARTS),
    index_policy=Option("start a new IndexFile when one is full (capacity), or also at time windows, such as window:1h",
        "POLICY", o.checked(o.parse_window), "capacity"),
    checkpoint=Option("one that is safe at the next crash, or the bytes of the broker's own rebuild", default="safe",
        text="``safe`` keeps the index at the next crash, ``broker`` gives the bytes of the broker's own rebuild",
        choices=get_args(o.CheckpointKind)),
    include_topic=Option("only these topics (repeatable)", "GLOB", nargs="append", dest="include_topics",
        text="only topics that match this glob (repeatable)"),
    exclude_topic=Option("not these topics (repeatable)", "GLOB", nargs="append", dest="exclude_topics",
        text="not topics that match this glob (repeatable)"),
    until_offset=Option("only records that start below this offset", "N", int, layouts.INT64_MAX, "the log's end"),
    until_time=Option("stop at the first record stored later: ms since 1970, or ISO with zone", "T", o.time_for("--until-time"),
        layouts.INT64_MAX, "the log's end"),
    lmq=Option("include light message queues (enableLmq, enableMultiDispatch)"),
    cq_ext=Option("build consumequeue_ext: not, with units alone (enableConsumeQueueExt), or also with the bit maps of the "
        "groups in STORE/config/consumerFilter.json (enableCalcFilterBitMap)", default="none", shown=_OR,
        choices=get_args(o.CqExt)),
    consumequeue_type=Option("write ConsumeQueues as files, into a RocksDB database (storeType=defaultRocksDB), or both "
        "(rocksdbCQDoubleWriteEnable)", default="file", choices=get_args(o.ConsumeQueueType)),
    expired_queues=Option("queues without a record in the log any more: drop, so that they begin again at 0, or keep with the "
        "ends that they have in STORE's ConsumeQueues, in files or RocksDB", default="drop",
        choices=get_args(o.ExpiredQueues)),
    write_topics=Option("also draft DIR/config/topics.json from the log"),
    write_delay=Option(
        "also write config/delayOffset.json and timer files, so that a broker delivers pending messages alone"),
    undecided=Option("with --write-delay: deliver, or drop, messages of which the log does not tell whether they were "
        "delivered", default="deliver", choices=get_args(o.Undecided))
    .but("export", help="half messages that nobody has committed, rolled back or given up", default=None, choices=()),
    topic=Option("topic of the messages", "T", o.as_java_reads, text="topic of the messages: --key, --tag and --queue need it")
    .but("export replay", help="messages of this topic, a name or a glob (repeatable)", nargs="append", dest="topics", text="",
         shown="all topics")
    .but("consumers", help="only groups that read this topic, and their queues of it", text=""),
    group=Option("only this consumer group", "GROUP", o.as_java_reads),
    unconsumed_by=Option("messages that this consumer group has not been given, by its offsets, and those that come again to "
        "it", "GROUP", o.as_java_reads),
    bounds=Option("read the log for what shows how far groups got at least: retries, dead letters, POP and traces"),
    to_time=Option("with --out: set the groups to the first message stored at this time or later: milliseconds since 1970, or "
        "ISO with its zone", "TIME", o.time_for("--to-time"), shown="where they stand"),
    key=Option("all messages of the topic with this key or unique key, by the IndexFiles", "K", o.as_java_reads)
    .but("export replay", help="messages with this key or unique key (repeatable)", nargs="append", dest="keys"),
    tag=Option("all messages of the topic with this tag, by the IndexFiles or the log", "TAG", o.as_java_reads,
        text="all messages of the topic whose tags are this one text, by the tag items of the IndexFiles (RocketMQ 5.4 and "
        "newer) and, where these have none, by reading the log. ``searched`` of the result says which")
    .but("export replay", help="messages whose tags are this one text (repeatable)", nargs="append", dest="tags", text=""),
    queue=Option("messages of this queue of the topic; goes with --offset or --time", "Q", int)
    .but("trace", help="the message of this queue of the topic; goes with --queue-offset")
    .but("export replay", help="messages of this queue; needs --topic"),
    begin_offset=Option("with --queue: messages from this queue offset on", "N", int),
    end_offset=Option("with --queue: messages below this queue offset", "N", int),
    since=Option("messages stored at this time or later: milliseconds since 1970, or ISO with its zone", "TIME",
        o.time_for("--since"), shown="any time"),
    until=Option("messages stored before this time", "TIME", o.time_for("--until"), shown="any time"),
    sql=Option("messages whose properties fulfil this condition of RocketMQ's SQL92, such as a > 5 AND TAGS IS NOT NULL", "SQL",
        o.as_java_reads),
    dlq=Option("dead letters of this group", "GROUP", o.as_java_reads, text="dead letters of this consumer group"),
    text=Option("messages with this text in the body", "TEXT", o.as_java_reads),
    regex=Option("messages with something in the body that this regular expression finds (RE2)", "REGEX", o.as_java_reads),
    count=Option("count the messages that would be exported, and write nothing"),
    offset=Option("messages from this queue offset on", "N", int, shown="one message, or --max"),
    queue_offset=Option("the message at this offset of the queue", "N", int),
    time=Option("messages of the queue stored at this time or later: milliseconds since 1970, or ISO with its zone", "TIME",
        o.time_for("--time"), shown="one message, or --max"),
    id=Option("the message of this id: the broker's offset id, or the client's unique id", "MSGID", o.as_java_reads),
    unique_key=Option("the message with this unique key (UNIQ_KEY), of --topic or of any", "K", o.as_java_reads),
    physical=Option("the message at this offset of the commitlog, in bytes", "N", int),
    begin=Option("with --key or --tag: messages stored at this time or later: milliseconds since 1970, or ISO with its zone",
        "TIME", o.time_for("--begin"), shown="any time"),
    end=Option("with --key or --tag: messages stored at this time or earlier", "TIME", o.time_for("--end"), shown="any time"),
    max=Option("show at most this many messages; with --key or --tag the newest ones", "N", int, shown="all")
    .but("trace", help="trace at most this many messages with the key: the newest ones", default=10, shown=None),
    scan=Option(
        "read the whole log instead of the IndexFiles or the files of a queue; with --time read every unit of the queue")
    .but("trace", help="read the whole log instead of the IndexFiles, and of queues that have no files"),
    records=Option("also list every record, unit or item of the file",
        text="also give every record, unit or item, as ``records`` of the result"),
    topics=Option("put in config/topics.json also where the store has one of its own"),
    partial=Option("take a build that leaves something out, by --only, topics, --until-offset and the like"),
    allow_empty=Option("build where the log, or what topics and limits leave of it, has no record, too")
    .but("fetch", help="take a build without a record also where the store has records")
    .but("export import", help="write an export or a store without a message, too", group=OUTPUT),
    other_log=Option("take a build also if it is not proved to be of the store's log"),
) | _of(
    DAMAGE,
    on_damage=Option("refuse a damaged log (rmq-reindex repair makes a sound one of it), build up to the first damage and lose "
        "what follows, or skip what is damaged", default="fail", choices=get_args(o.OnDamage),
        text="what to do about damage: ``fail`` refuses it (``repair`` makes a sound log of it), ``stop`` builds up to the "
        "first damage and loses what follows, ``salvage`` goes on behind it"),
    queue_order=Option("what to do where the offsets of a queue repeat or have gaps", default="logical",
        choices=get_args(o.QueueOrder)),
    max_fill=Option("fill at most this many missing queue offsets that no lost bytes explain", "N", int, FILL_MAX),
    crc=Option("checksums to verify", default="body", choices=get_args(o.Crc)),
    to_plain=Option("lay a log of DLedger anew as a plain one, for a broker without DLedger: all offsets of the log change"),
    extend=Option(
        "where a replica goes on behind the log's end, take that, too: the log then ends where the replica does"),
    majority=Option("take a sound record from the replicas where most of the logs have other bytes, which no CRC covers"),
    tombstones=Option("put a record with the tag __LOST__ at each queue offset that is known to be lost"),
    include_broken=Option(
        "keep records whose body CRC alone is wrong, for a broker with checkCRCOnRecover=false (see --broker-conf)"),
    count_limit=Option("read at most this much of the log only to count what is lost", "BYTES", int, 4 << 30),
) | _of(
    SIZES,
    segment_size=Option("size of a whole segment", "BYTES", int, 0, _FILES, conf="mappedFileSizeCommitLog")
    .but("inspect", help="size of a whole segment, in bytes", shown="that of the first segment beside the file")
    .but("import", help="size of each segment: mappedFileSizeCommitLog of the broker", default=layouts.DEFAULT_SEGMENT, conf="",
        shown=None),
    cq_file_size=Option("size of a ConsumeQueue file, a multiple of 20", "BYTES", int, layouts.DEFAULT_QUEUE_FILE, _OR,
        conf="mappedFileSizeConsumeQueue")
    .but("preflight", help="size of a ConsumeQueue file", shown=_FILES).but("verify", shown=_FILES),
    batch_cq_file_size=Option("size of a batch ConsumeQueue file, a multiple of 46", "BYTES", int, layouts.DEFAULT_BATCH_FILE,
        _OR, conf="mapperFileSizeBatchConsumeQueue")
    .but("preflight", help="size of a batch ConsumeQueue file", shown=_FILES).but("verify", shown=_FILES),
    cq_ext_file_size=Option("size of a file of consumequeue_ext", "BYTES", int, layouts.DEFAULT_EXT_FILE, _OR,
        conf="mappedFileSizeConsumeQueueExt"),
    hash_slots=Option("number of slots of an IndexFile", "N", int, layouts.DEFAULT_SLOTS, _OR, conf="maxHashSlotNum")
    .but(_LOOK, shown=_FILES).but("inspect", shown="taken from the file"),
    index_items=Option("number of items of an IndexFile, as maxIndexNum", "N", int, layouts.DEFAULT_ITEMS, _OR,
        conf="maxIndexNum")
    .but(_LOOK, shown=_FILES).but("inspect", shown="taken from the file"),
    first_offset=Option("offset of the file's first byte: of a segment in the log, of a ConsumeQueue file in its queue", "N",
        int, shown="by the file's name, or by a segment's records"),
    delay_levels=Option("messageDelayLevel of the broker", "LEVELS", o.checked(o.parse_delay_levels), DELAY_LEVELS,
        conf="messageDelayLevel"),
    broker_version=Option(f"RocketMQ version of the store, where the bytes differ: {_VERSIONS}", "VERSION", o.parse_version,
        versions.NEWEST, _OR)
    .but("verify", shown=_FILES)
    .but("import", help="RocketMQ version that the store is for, where the bytes differ", shown=None)
    .but("preflight", help="release of the broker, such as 5.3.3; a line, such as 5.3, stands for its newest release",
        type=o.checked(o.parse_version), shown=None),
) | _of(
    OUTPUT,
    out=Option(_OUT, "DIR", required=True)
    .but("repair", help=f"{_OUT}; it must not be there yet, or be empty", required=False)
    .but("consumers", help="write a new consumerOffset.json, with each offset within its queue, to FILE, which must not be "
        "there yet", metavar="FILE", required=False, type=o.on_disk("--out", "file"))
    .but("report", help="file for the page; replaced if it is there", metavar="FILE", default="report.html", required=False,
         type=o.on_disk("--out", "file")),
    to=Option(f"{_STORE}; DIR/commitlog is never touched", "DIR", required=True)
    .but("export", help="new file, or with --format parquet, delta, iceberg and store new folder, for the messages",
         metavar="PATH", required=False, type=o.on_disk("--to", "file or folder"))
    .but("import", help="new folder for the store", type=o.on_disk("--to", "folder"))
    .but("replay", help="gRPC endpoint of a RocketMQ 5 proxy of the cluster", metavar="HOST:PORT", required=False,
         type=o.as_java_reads),
    topic_map=Option("send the messages of topic OLD to topic NEW (repeatable)", "OLD=NEW", o.as_java_reads, nargs="append",
        shown="each to the topic of its own name"),
    rate=Option("send at most this many messages a second", "N", float, shown="as fast as the proxy answers"),
    queue_groups=Option("give messages without a message group one for each queue they come from, so that a topic of type FIFO "
        "keeps their order"),
    journal=Option("file that says what was sent: with it a second run sends nothing twice. Needed, but for --dry-run", "FILE",
        o.on_disk("--journal", "file")),
    resend_doubtful=Option("send messages once more of which an earlier run does not know whether they were stored"),
    tls=Option("speak to the proxy by TLS, and check its certificate"),
    credentials=Option("file with accessKey=KEY and secretKey=KEY in lines; or the variables RMQ_REINDEX_ACCESS_KEY "
        "and RMQ_REINDEX_SECRET_KEY", "FILE", o.on_disk("--credentials", "file")),
    format=Option("what is written: a file of JSON lines or CSV, a folder of Parquet files by topic and day, alone or as a "
        "Delta or Iceberg table, or a store that a broker starts on",
        default="jsonl", choices=get_args(o.ExportFormat)),
    resumable=Option("keep what is done when the run is stopped or killed: the same command goes on from there"),
    overwrite=Option("replace what an earlier build wrote to DIR"),
    export_site=Option("write the pages as files into a new folder, instead of showing them", "DIR",
        o.on_disk("--export-site", "folder"),
        text="new folder into which the pages are written as files: nothing is served then"),
    redact=Option("with --export-site: put pseudonyms in the place of bodies, keys, ids, hosts, addresses, paths and values of "
        "properties"),
    keep=Option("of the copies PART.previous that fetches made keep the newest N of each part", "N", int, 1),
    link=Option("let unchanged segments share their bytes with the old ones: reflink where the file system can, hard links for "
        "those before the log's end, or none: copy", default="reflink", choices=get_args(o.Link)),
    json=Option("print the summary on stdout as one JSON object")
    .but("info preflight trace consumers export import replay", help="print the result on stdout as one JSON object")
    .but("query", help="print one JSON object per line, with every field")
    .but("inspect", help="print one JSON object per line"),
    report=Option("also write the summary, as JSON, to FILE", "FILE", o.on_disk("--report", "file")),
    html=Option("also write the timelines as one HTML page to FILE", "FILE", o.on_disk("--html", "file")),
    body=Option("how bodies are shown; a body that is not text is shown as hex", default="text", choices=get_args(o.BodyForm))
    .but("export", help="bodies unpacked, as they are stored, or none", default="unpacked", choices=get_args(o.ExportBody)),
    body_max=Option("read and unpack at most this many bytes of a body", "BYTES", int, 4 << 20)
    .but("export", help="unpack no body into more bytes than these: it is exported as it is stored")
    .but("replay", help="unpack no body into more bytes than these: it is not sent"),
) | _of(
    RUN,
    dry_run=Option("say what would be read and written, and do nothing",
        text="write nothing. The ``text`` of the result says what would be read and written")
    .but("fetch", help="say what would be fetched and swapped, and do nothing",
        text="do nothing. The ``text`` of the result says what would be fetched and swapped")
    .but("replay", help="count the messages that would be sent, and send nothing", text=""),
    engine=Option("what runs the tasks: Spark, or processes of this machine, which need no Java", default="spark",
        shown="{}, where it is installed with a Java",
        choices=get_args(o.Engine))
    .but("export", help="what reads the log: processes of Spark, or threads of this one", default="",
        shown="local, but spark with --master and in spark-submit", choices=get_args(o.Engine),
        text="what reads the log: processes of Spark, or threads of this one. Default: ``local``, but ``spark`` with a session "
        "or a ``master``, and in spark-submit"),
    master=Option("Spark master, where no session is there yet", "URL", default="", shown="local[*]",
        text="Spark master, where no session is there yet; of engine ``local``, how many processes")
    .but("export", help="Spark master, where no session is there yet", metavar="URL", default="", shown="local[*]", text=""),
    range_size=Option("one task reads at most this many bytes of a segment", "BYTES", int, 0, "by the plan"),
    threads=Option("number of files fetched at once", "N", int, 8),
    port=Option("port of 127.0.0.1 on which the pages are; 0 takes one that is free", "N", int, 8380),
    work=Option("folder for index items during the run; on a cluster one that all executors share", "DIR",
        shown="a temporary one"),
) | _of(
    URIS,
    keep_zeros=Option("store files behind a URI with the zeros at their end, which fetch restores"),
) | _of(
    WATCHING,
    progress=Option("how progress is shown on stderr: lines (a bar on a terminal), or JSON for schedulers", default="lines",
        choices=get_args(o.Progress),
        text="show progress and warnings on stderr: True or ``lines``, or ``json``. Default: False, nothing"),
    log_format=Option("format of messages on stderr; json also replaces the lines of progress", default="text",
        choices=get_args(o.LogFormat)),
    metrics=Option("write figures of the run to FILE, for Prometheus' node_exporter", "FILE", o.on_disk("--metrics", "file")),
    store_name=Option("name of the store in logs and metrics", "NAME", shown="STORE"),
) | _of(
    TABLES,
    tables=Option("record the run in Delta tables below URI, a folder or what Spark can reach; with --engine local only what "
        "--incremental knows is kept there", "URI", shown="none",
        text="folder or URI below which Delta tables record the run; of engine ``local`` it keeps what --incremental knows")
    .but("verify", text="", help="with --incremental: folder or URI below which it keeps what it found in the log", shown="",
        group=AGAIN),
    messages_table=Option("with --tables: also write a row for each message, without its body"),
    incremental=Option("read only what is new since the build in DIR, and rewrite what changes",
        text="read only what is new since the build in DIR, and rewrite what changes; needs --tables")
    .but("verify", text="", help="read only what is new in the log since the last verify of STORE", group=AGAIN),
    recheck=Option("with --incremental: read all that is known again, and compare digests").but("verify", group=AGAIN),
    build_id=Option("with --tables: the run's name; a retry with the same one replaces its rows", "ID", shown="random"),
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------------------- commands
# Which options a command has, and what else an option is there for.

_RUN: Final = (
    "commitlog broker_conf cq_file_size batch_cq_file_size hash_slots index_items segment_size crc lmq delay_levels "
    "broker_version topics_config max_fill snapshot range_size master engine json"
)
_WATCH: Final = "progress log_format metrics store_name"
_BESIDES: Final = "cq_ext cq_ext_file_size consumequeue_type expired_queues write_topics write_delay undecided consumer_offsets"
COMMANDS: Final = {
    "info": "store commitlog json",
    "build": f"store out only index_policy on_damage queue_order checkpoint include_topic exclude_topic until_offset "
    f"until_time {_BESIDES} overwrite allow_empty dry_run {_RUN} keep_zeros {_WATCH} tables messages_table incremental recheck "
    "build_id",
    "query": "store topic key tag queue offset time id physical begin end max json body body_max scan commitlog hash_slots "
    "index_items delay_levels broker_conf",
    "trace": "store topic key id unique_key queue queue_offset physical max json html scan commitlog delay_levels",
    "consumers": "store topic group consumer_offsets merge bounds to_time out json commitlog",
    "export": "store to format topic queue begin_offset end_offset since until key tag sql text regex dlq unconsumed_by "
    "consumer_offsets undecided kind count body body_max allow_empty resumable commitlog delay_levels engine master json",
    "import": "source to segment_size broker_version allow_empty json",
    "replay": "store to journal topic queue begin_offset end_offset since until key tag sql text regex dlq unconsumed_by "
    "consumer_offsets topic_map queue_groups rate resend_doubtful dry_run body_max credentials tls commitlog delay_levels json",
    "inspect": "files kind records json hash_slots index_items first_offset segment_size delay_levels",
    "verify": f"store only sample against report work {_RUN} {_WATCH} incremental tables recheck",
    "preflight": "store broker_version abort broker_conf commitlog segment_size cq_file_size batch_cq_file_size hash_slots "
    "index_items count_limit json",
    "repair": f"store out to_plain replica extend majority link tombstones include_broken explain {_BESIDES} {_RUN} {_WATCH}",
    "fetch": "build to topics threads keep commitlog partial allow_empty other_log dry_run json",
    "report": "source out store summary",
    "browse": "stores port export_site redact commitlog findings delay_levels",
}
"""the options of each command, in the order of ``--help``"""
TIMERS: Final = {
    "timer_precision": "timerPrecisionMs",
    "timer_roll_window": "timerRollWindowSlot",
    "timer_log_size": "mappedFileSizeTimerLog",
    "file_reserved_hours": "fileReservedTime",
}
"""numbers of a broker.conf that timer files depend on: settings without an option"""
BLOOM: Final = {"bloom_error_rate": "maxErrorRateOfBloomFilter", "bloom_consumers": "expectConsumerNumUseFilter"}
"""likewise those that the bit maps of consumequeue_ext depend on"""
EXTENDED: Final = ("cq_ext", "cq_ext_file_size")
"""the settings that a manifest has where a build writes consumequeue_ext"""
DATABASE: Final = ("consumequeue_type", "rocksdb_separate", "rocksdb_light", "rocksdb_lmq")
"""likewise those that it has where a build makes a RocksDB database"""
MANIFEST: Final = (
    "only", "cq_file_size", "batch_cq_file_size", "hash_slots", "index_items", "segment_size", "index_policy", "on_damage",
    "queue_order", "crc", "checkpoint", "lmq", "delay_levels", "broker_version", "include_topics", "exclude_topics",
    "until_offset", "until_time", "max_fill", "write_topics", "write_delay", "undecided", "consumer_offsets", *TIMERS,
    "batch_topics",
)  # fmt: skip
"""the settings that decide what is written, in the order of a build's manifest"""
ADVISED: Final = (
    "cq_file_size", "batch_cq_file_size", "hash_slots", "index_items", "delay_levels", "broker_version", "segment_size", "crc",
    "max_fill", "engine", "master",
)  # fmt: skip
"""options that an advised command repeats, where they are not the defaults or where the user gave them, in their order"""


def options_of(command: str) -> dict[str, Option]:
    """Return the options of a command by their names, as the command has them."""
    return {name: OPTIONS[name].of(command) for name in COMMANDS[command].split()}


def default_of(name: str, command: str = "") -> Any:
    """Return what the setting of an option is where it is left out."""
    return OPTIONS[name].of(command).default
