"""Lives of a real controller group: a controller in a name server, and two brokers that copy over the loopback."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.preflight.compare import Comparison, Outcome, compare
from tests.preflight.disk import read_disk
from tests.preflight.log_walk import read_log
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.sweep import end_of, last_bytes
from tests.serving.broker import Broker
from tests.serving.programs import ORACLE, ROOT, Program, StepFailed
from tests.serving.stores import SEGMENT, SIZES
from tests.tools.ports import free_ports

VERSIONS = ("5.3.3", "5.4.0", "5.5.0", "5.5.1")
"""those of whose broker and controller Maven Central has the jars"""
CONF = Conf(
    Sizes(SEGMENT, SIZES["cq_file_size"], SIZES["hash_slots"], SIZES["index_items"]), {"enableControllerMode": "true"}
)  # fmt: skip
QUEUES = [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)]
PATIENCE = 300
"""Seconds in which a role changes, or a log is copied"""


class Controller:
    """A name server with a controller in it; use as a context manager."""

    def __init__(self, version: str, scratch: Path) -> None:
        self.version = version
        self._port, self._names = free_ports(2)
        scratch.mkdir()
        lines = {
            "listenPort": self._names, "enableControllerInNamesrv": "true", "controllerDLegerGroup": "group",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self._port}", "controllerDLegerSelfId": "n0",
            "controllerStorePath": scratch / "controller", "mappedFileSize": 1 << 20, "scanNotActiveBrokerInterval": 500,
            "scanInactiveMasterInterval": 500,
        }  # fmt: skip
        (scratch / "conf").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        java = f"{(ROOT / '.java-home').read_text().strip()}/bin/java" if (ROOT / ".java-home").exists() else "java"
        path = (ORACLE / "target" / version / "classpath").read_text().strip()
        opens = ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
        self._log = scratch / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [java, "-Xmx512m", f"-Duser.home={scratch}", f"-Drocketmq.home.dir={scratch}", *opens, "-cp", path,
                 "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(scratch / "conf")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=scratch,
            )  # fmt: skip
        try:
            for port in (self._port, self._names):
                until(lambda port=port: _is_open(port))  # type: ignore[misc]
        except BaseException:
            self.__exit__()
            raise

    @property
    def words(self) -> list[str]:
        """How a broker finds it."""
        return [f"enableControllerMode=true,controllerAddr=127.0.0.1:{self._port}", f"127.0.0.1:{self._names}"]

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def until(done: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > patience:
            raise TimeoutError("the group does not come to it")
        time.sleep(0.05)


class GroupMember(Program):
    """One broker of the group, on a store. It has a role when the controller has given it one."""

    def __init__(self, store: Path, controller: Controller) -> None:
        self.store, scratch = store, store.with_name(f"{store.name}-scratch")
        scratch.mkdir(exist_ok=True)
        super().__init__(controller.version, "Serve", scratch)
        group, names = controller.words
        periods = "syncBrokerMetadataPeriod=500,checkSyncStateSetPeriod=500,controllerHeartBeatTimeoutMills=2000"
        # A checkpoint is written with a flush of all queues, by default once a minute.
        flushes = "flushConsumeQueueThoroughInterval=100,flushIntervalConsumeQueue=50"
        settings = f"{group},{periods},{flushes},haListenPort={free_ports(1)[0]},haSendHeartbeatInterval=200"
        try:
            self.broker = Broker(self, "group", store, scratch, "--name-server", names, "--set", settings)
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> GroupMember:
        return self

    @property
    def end(self) -> int:
        return int(self.step("state").split(" ")[0])

    def die(self) -> None:
        """kill -9, from any thread."""
        self._process.kill()

    def takes(self, prefix: str, count: int, rng: random.Random) -> bool:
        """Whether it is master, and has taken messages."""
        try:
            self.broker.send(rng.choice(QUEUES), prefix, count)
        except StepFailed:
            return False
        return True


def new_store(path: Path) -> Path:
    (path / "config").mkdir(parents=True)
    table = {
        topic: {"topicName": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for topic, _ in QUEUES
    }
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return path


@dataclass(frozen=True)
class Life:
    """What came of one life: the comparison of each store's start, and the ends of both logs when they are copied again."""

    version: str
    seed: int
    comparisons: dict[str, Comparison]
    ends: tuple[int, int]
    same: bool
    """the bytes of both logs, up to the end"""


def live(real: RealStores, scratch: Path, seed: int) -> Life:
    """The master is killed amid writes, the slave promoted and killed; both start again, the old master as slave."""
    rng = random.Random(seed)
    scratch.mkdir(parents=True)
    a, b = new_store(scratch / "a"), new_store(scratch / "b")
    with Controller(real.release, scratch / "names") as controller, contextlib.ExitStack() as programs:
        master = programs.enter_context(GroupMember(a, controller))
        until(lambda: master.takes("first", 1, rng))
        for number in range(rng.randrange(1, 6)):
            master.takes(f"a-{number}", rng.randrange(20, 120), rng)
        slave = programs.enter_context(GroupMember(b, controller))
        until(lambda: slave.end == master.end)
        master.takes("both", rng.randrange(10, 100), rng)
        _killed_amid_writes(master, rng)
        until(lambda: slave.takes("promoted", 1, rng))
        for number in range(rng.randrange(1, 4)):
            slave.takes(f"b-{number}", rng.randrange(10, 100), rng)
        slave.kill()
        comparisons = {store.name: _judged(real, store, scratch) for store in (a, b)}
        again = programs.enter_context(GroupMember(b, controller))
        until(lambda: again.takes("again", 1, rng))
        joined = programs.enter_context(GroupMember(a, controller))
        until(lambda: joined.end == again.end)
        ends = joined.end, again.end
    logs = [b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[: ends[0]] for store in (a, b)]
    return Life(real.release, seed, comparisons, ends, logs[0] == logs[1])


def _killed_amid_writes(master: GroupMember, rng: random.Random) -> None:
    """Kill it when it has taken some of many messages."""
    end = master.end + rng.randrange(1000, 200_000)
    writing = threading.Thread(target=master.takes, args=("amid", 100_000, rng))
    log = master.store / "commitlog"
    writing.start()
    until(lambda: written(log) > end)
    master.die()
    writing.join()


def written(log: Path) -> int:
    """The end of what stands in the last segment of a log."""
    last = max(log.iterdir(), key=lambda path: int(path.name))
    return int(last.name) + len(last.read_bytes().rstrip(b"\0"))


def _judged(real: RealStores, store: Path, scratch: Path) -> Comparison:
    """A copy of the store: what preflight says, and what its start and the role of a master do."""
    copy = shutil.copytree(store, scratch / f"{store.name}-copy")
    said = predict(copy, real.release, CONF, scratch)
    assert isinstance(said, dict), said
    before, log, last = read_disk(copy, SIZES["hash_slots"]), read_log(copy / "commitlog", real.release, True), last_bytes(copy)
    assert real.start(copy, CONF).loads
    told = real.master(copy, 1000).said
    after, end = read_disk(copy, SIZES["hash_slots"]), end_of(last, told.max_offset)
    found = compare(said, Outcome(real.release, True, told, before, after, log, *end, index_enabled=True, reputs=True))
    real.leave(copy)
    return found
