"""The Spark session a job runs in: an active one (Databricks, spark-submit) as it is, else a local one of our own."""

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.spark import gateway, jars, java
from rocketmq_reindex.jobs.spark.daemon import name_daemon

# The JVM of a local session moves packed cells for seconds or minutes: what its second compiler costs, on the same cores as
# the workers, does not come back. Half of its processor time, and two thirds of its warming up, went there.
# A JVM with one compiler keeps 48 MB of code, which Spark and Delta Lake more than fill: it then drops and compiles for ever.
# Nor do G1's threads and regions, in a heap of 1 GiB in which cells of 1 MiB are large objects that are soon garbage.
_LOCAL_JAVA, _COLLECTOR = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"], "-XX:+UseSerialGC"
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# Packed cells hardly shrink, and what Spark keeps or shuffles stays on this host's disks, or in its page cache: to compress it
# and to compute checksums of it took half of what the JVM does for a unit.
_LOCAL = {
    "spark.rdd.compress": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
}
_DAEMON = "spark.python.daemon.module"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A table's state is a few rows here: not the 50 partitions of its default.
    "spark.databricks.delta.snapshotPartitions": "2",
}
_SUBMITTED = {
    # For executors elsewhere, from Python 3.11 on: they do not import from their working folder.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
RUN_SETTINGS = {
    # A row may be a cell of 1 MiB: batches are counted in rows first.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
}
FEW_ROWS = {
    # Each plan of an engine runs once, over few large rows: to make and compile code for it takes longer than to run without,
    # and nothing is learned from its first stage. Delta's own queries need both.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""for a session of our own in which nothing runs but the engine"""


def configuration(master: str, hadoop_user: str = "") -> dict[str, str]:
    """Return the settings of a session of our own: conf/spark-defaults.conf, and what ``master`` asks for."""
    settings: dict[str, str] = {}
    # Hadoop takes this property where the environment has no such variable.
    options = [f"-DHADOOP_USER_NAME={hadoop_user}"] if hadoop_user else []
    if master.startswith("local"):
        options += _LOCAL_JAVA
        # A JVM that is told of two collectors does not start.
        if not any(re.search(r"-XX:\+Use\w*GC\b", os.environ.get(name, "")) for name in _JAVA_VARIABLES):
            options.append(_COLLECTOR)
        if delta := jars.delta_jars():
            # On the class path for every session, since the archive holds their classes and asks for the same class path.
            settings["spark.driver.extraClassPath"] = os.pathsep.join(delta)
        archive = jars.class_archive()
        # A colon would part the paths of two archives.
        if archive is not None and archive.exists() and ":" not in str(archive):
            # Its JVM may be another by now: then the classes are loaded one by one, without a word.
            options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
            # Another Python may not have this package where its daemon starts.
            settings[_DAEMON] = "rocketmq_reindex.udfs.worker.daemon"
        # Nobody else calls. A cluster's executors must reach the driver, or the run would wait for them for ever.
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"} | _LOCAL
    if (folder := java.settings_folder()) is not None:
        for line in (folder / "spark-defaults.conf").read_text().splitlines():
            name, _, value = line.strip().partition(" ")
            if name and not name.startswith("#"):
                settings[name] = value.strip()
        options.append(f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}")
    return settings | {"spark.driver.extraJavaOptions": " ".join(map(java.java_option, options))}


def _quiet_about_pandas() -> None:
    """Keep off stderr what Spark from 4.2 on says of pandas 3: an engine has Arrow batches alone."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def _is_there() -> bool:
    """Return whether somebody else's session is there."""
    # getActiveSession() knows only this thread's; a context of any thread means the same.
    return SparkSession.getActiveSession() is not None or SparkContext._active_spark_context is not None


def _with_delta() -> dict[str, str]:
    """Return the settings for Delta Lake.

    Its jars are named once more: a cluster's executors need them, and a class path of the user's own comes before ours.
    """
    delta = jars.delta_jars()
    return _DELTA | ({"spark.jars": ",".join(delta)} if delta else jars.delta_by_maven())


def _own(master: str, delta: bool = False, hadoop_user: str = "") -> dict[str, str]:
    """Return all settings of a session that this process starts. Delta Lake costs it a second: only where asked."""
    gateway.absolute_paths()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java.choose_java()
    java.check_java()
    master = master or "local[*]"
    if master.startswith("local"):
        gateway.check(os.environ["PYSPARK_PYTHON"], (gateway.PACKAGE, *gateway.THIRD_PARTY))
    # Spark's catalogs make the default database's folder, which nothing is ever written to: one that is there already.
    own = {"spark.master": master, "spark.sql.warehouse.dir": tempfile.gettempdir()}
    return own | configuration(master, hadoop_user) | (_with_delta() if delta else {})


class _Start(threading.Thread):
    """A session of our own that starts in the background. It takes seconds, in which Python has imports to do."""

    def __init__(self, own: Mapping[str, str], delta: bool) -> None:
        super().__init__(name="start-session", daemon=True)
        self._own, self._delta = own, delta
        self._spark: SparkSession | None = None
        self._error: Exception | None = None
        # Not join(): before Python 3.13 one that a signal cuts short takes the thread for ended (bpo-45274).
        self._over = threading.Event()

    def run(self) -> None:
        try:
            self._spark = _new(self._own, own=True, delta=self._delta)
        except Exception as error:  # noqa: BLE001  raised again where the session is asked for
            self._error = error
        finally:
            self._over.set()

    def session(self) -> SparkSession:
        """Wait for the session and return it. Raises what kept it from starting."""
        self._over.wait()
        if self._error is not None:
            raise self._error
        assert self._spark is not None
        return self._spark

    def give_up(self) -> None:
        """Stop a session that nobody asked for. A JVM killed in the middle of its start would leave its temporary folder."""
        if self.is_alive():
            self._over.wait()
        if self._spark is not None:
            stop(self._spark)


_starts: list[_Start] = []
"""at most one: the session that get_session() is to give"""


@contextlib.contextmanager
def starting(master: str, delta: bool = False, hadoop_user: str = "") -> Iterator[None]:
    """Start a session of our own in the background, unless there is one; ``get_session`` returns it."""
    if _is_there() or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield
        return
    _quiet_about_pandas()
    own = _own(master, delta, hadoop_user)
    # Only a local session asks for our daemon; a cluster's workers start elsewhere.
    with name_daemon() if _DAEMON in own else contextlib.nullcontext():
        start = _Start(own, delta)
        _starts.append(start)
        start.start()
        try:
            with contextlib.suppress(ImportError):
                # It brings pandas, which takes a second, and pyspark imports it before its first word to the JVM.
                import pyspark.testing.utils  # noqa: F401
            yield
        finally:
            if start in _starts:
                _starts.remove(start)
                start.give_up()


def _new(settings: Mapping[str, str], own: bool, delta: bool = False) -> SparkSession:
    """Return a new session. ``own``: in a JVM that this process starts; otherwise in that of spark-submit.

    Raises InputError where it does not start, where ``delta`` asks for a Delta Lake that it has not, and for a wrong Python.
    """
    if own:
        gateway.launch(settings)
    builder = SparkSession.builder.appName("rocketmq-reindex")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise gateway.does_not_start(error) from error
    try:
        if delta:
            jars.check_delta(spark, own)
        if not own:
            gateway.wrap_python(spark.sparkContext)
    except BaseException:
        stop(spark)
        raise
    return spark


def get_session(master: str, delta: bool = False, hadoop_user: str = "") -> tuple[SparkSession, bool]:
    """Return the session to work in, and whether this process started it and has to stop it.

    ``delta`` and ``hadoop_user`` (of an HDFS) count for a session of our own. Raises InputError when none comes up.
    """
    if _starts:
        spark = _starts[-1].session()
        # Not before: a signal while it starts has to find it, to be stopped.
        _starts.clear()
        return spark, True
    if _is_there():
        return SparkSession.builder.getOrCreate(), False
    _quiet_about_pandas()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        settings, own = _own(master, delta, hadoop_user), True
    else:
        # Under spark-submit, which brings its own settings.
        settings, own = ({"spark.master": master} if master else {}) | _SUBMITTED, False
    on_main = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT) if on_main else None
    spark = _new(settings, own, delta)
    if on_main:
        # SparkContext puts a handler of its own there.
        signal.signal(signal.SIGINT, interrupt)
    return spark, True


@dataclass(eq=False)
class _HeldSetting:
    """A setting of a session that runs have changed: its value before them, and theirs, the newest last."""

    spark: SparkSession
    name: str
    before: str | None
    values: list[list[str]] = field(default_factory=list)
    """a list of one value for each run, so that each finds its own"""

    def is_of(self, spark: SparkSession, name: str) -> bool:
        """Return whether it is this setting: a session of the JVM may have several Python objects."""
        mine, other = (getattr(each, "_jsparkSession", each) for each in (self.spark, spark))
        return self.name == name and bool(mine == other)

    def apply(self) -> None:
        """Set the value of the newest run; where no run is left what was there before the first."""
        value = self.values[-1][0] if self.values else self.before
        if value is None:
            self.spark.conf.unset(self.name)
        else:
            self.spark.conf.set(self.name, value)


_held: list[_HeldSetting] = []
_held_lock = threading.Lock()


@contextlib.contextmanager
def _hold(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    own = [value]
    with _held_lock:
        setting = next((each for each in _held if each.is_of(spark, name)), None)
        if setting is None:
            setting = _HeldSetting(spark, name, spark.conf.get(name, None))
            _held.append(setting)
        setting.values.append(own)
    try:
        with _held_lock:
            setting.apply()
        yield
    finally:
        with _held_lock:
            setting.values = [each for each in setting.values if each is not own]
            if not setting.values:
                _held.remove(setting)
            setting.apply()


@contextlib.contextmanager
def run_settings(spark: SparkSession, settings: Mapping[str, str] = RUN_SETTINGS) -> Iterator[None]:
    """Set these settings of the session, by default those that a run needs, and restore the old ones afterwards.

    Several runs may be in one session at once: the one that ends last restores what was there before the first.
    """
    with contextlib.ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(_hold(spark, name, value))
        yield


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at once; 8 where the session does not tell."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # noqa: BLE001  a session without a SparkContext (Spark Connect, serverless) does not say
        return 8


def is_here() -> bool:
    """Return whether the executors are on this machine, as far as a session says."""
    context = SparkContext._active_spark_context
    return context is None or str(context.master).startswith("local")


def stop(spark: Any) -> None:
    """Stop a session, whatever state it is in."""
    with contextlib.suppress(Exception):
        # Its thread looks once a second whether it is to end (AccumulatorServer): nothing has to wait for that.
        server, spark.sparkContext._accumulatorServer = spark.sparkContext._accumulatorServer, None
        threading.Thread(target=server.shutdown, name="stop-accumulators", daemon=True).start()
    with contextlib.suppress(Exception):
        spark.stop()
