"""A log in a bucket: builds by both engines, beside reading it with pyarrow alone. ``python -m tests.bench.bucket``.

The server is on loopback, in a process of its own, and sends what lies in files: it costs little beside those who read. All
sides take turns, in as many processes as there are cores. Prints a table and writes the figures to a JSON file.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from pyarrow import fs

from tests.bench.logs import BENCH, GIB, ROOT, first_segments, log_bytes, log_folder, make_log, segments, warm_page_cache
from tests.bench.machine import describe_machine
from tests.bench.remote import remote
from tests.bench.sides import run_command
from tests.tools.s3_server import environment

BUCKET: Final = "logs"
TARGET: Final = 1.2
"""times what pyarrow takes to read the log, at most"""
READ: Final = 8 << 20
"""bytes of one request of the plain reader, of which it makes so many at once as the product does"""
AT_ONCE: Final = 4


class Files(BaseHTTPRequestHandler):
    """What reading clients ask of an S3 server: a listing, an object's size, and ranges of its bytes."""

    protocol_version = "HTTP/1.1"
    root = Path()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _path(self) -> Path:
        _, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        # Any user of the machine may ask: none leaves the root.
        return self.root / os.path.normpath(f"/{key}").lstrip("/")

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _found(self, path: Path, size: int, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns:x}"')
        self.send_header("Content-Length", str(size))

    def do_HEAD(self) -> None:
        path = self._path()
        if path == self.root or path.is_file():
            self._found(path, path.stat().st_size if path.is_file() else 0)
        else:
            self.send_response(404)
            self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, self._listing(query).encode(), Content_Type="application/xml")
            return
        path = self._path()
        if not path.is_file():
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", Content_Type="application/xml")
            return
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        low = int(asked[1]) if asked else 0
        high = min(int(asked[2]) + 1 if asked and asked[2] else size, size)
        self._found(path, high - low, 206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {low}-{high - 1}/{size}")
        self.end_headers()
        self.wfile.flush()
        with path.open("rb") as file, contextlib.suppress(ConnectionError):
            while low < high:
                low += os.sendfile(self.connection.fileno(), file.fileno(), low, high - low)

    def _listing(self, query: dict[str, list[str]]) -> str:
        prefix = query.get("prefix", [""])[0]
        deep = "delimiter" not in query
        keys, folders = [], set()
        # Not of the whole root, where others write.
        for path in sorted((self.root / prefix.rpartition("/")[0]).rglob("*")):
            key = path.relative_to(self.root).as_posix()
            if not path.is_file() or not key.startswith(prefix):
                continue
            below, slash, _ = key.removeprefix(prefix).partition("/")
            if slash and not deep:
                folders.add(prefix + below + "/")
            else:
                made = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(path.stat().st_mtime))
                keys.append(
                    f"<Contents><Key>{html.escape(key)}</Key><LastModified>{made}</LastModified>"
                    f"<ETag>&quot;{path.stat().st_mtime_ns:x}&quot;</ETag><Size>{path.stat().st_size}</Size></Contents>"
                )
        common = "".join(f"<CommonPrefixes><Prefix>{html.escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
        return (
            f"<?xml version='1.0'?><ListBucketResult><Name>{BUCKET}</Name><Prefix>{html.escape(prefix)}</Prefix>"
            f"<KeyCount>{len(keys) + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>{''.join(keys)}{common}"
            "</ListBucketResult>"
        )


@contextlib.contextmanager
def served(root: Path) -> Iterator[str]:
    """A bucket with the files below ``root``: the options of its URIs. This process's environment leads to it meanwhile."""
    Files.root = root
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.daemon_threads = True
    port = server.server_address[1]
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            server.serve_forever()
        finally:
            os._exit(0)
    server.socket.close()
    before = dict(os.environ)
    os.environ.update(environment(port))
    try:
        yield urlencode({"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "region": "us-east-1"})
    finally:
        for name in environment(port):
            os.environ.pop(name)
        os.environ.update(before)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def read_all(uri: str, names: list[str]) -> None:
    """Wait for a line, then read segments whole, as code that wants nothing but their bytes: print the seconds."""
    system, root = fs.FileSystem.from_uri(uri)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    for name in names:
        with system.open_input_file(f"{root}/commitlog/{name}") as file, ThreadPoolExecutor(AT_ONCE) as pool:
            for got in pool.map(lambda at, file=file: len(file.read_at(READ, at)), range(0, file.size(), READ)):
                assert got
    print(time.monotonic() - begin, flush=True)


def run_readers(uri: str, names: list[str], count: int) -> float:
    """Seconds until the last of ``count`` processes, which share the segments, has read its own."""
    words = [sys.executable, "-m", "tests.bench.bucket", "--read", uri]
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(
                subprocess.Popen([*words, *names[k::count]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            )
            for k in range(min(count, len(names)))
        ]
        pipes = [(reader.stdin, reader.stdout) for reader in readers]
        for _, told in pipes:
            assert told is not None
            if told.readline() != "ready\n":
                raise SystemExit("a reader does not start")
        for asks, _ in pipes:
            assert asks is not None
            print("go", file=asks, flush=True)
        return max(float(told.readline()) for _, told in pipes if told is not None)


def race(store: Path, rounds: int, out: Path) -> dict[str, Any]:
    """All sides in turn, after one round that is not counted. Of builds the start is not counted."""
    names, cores = [path.name for path in segments(store)], len(os.sched_getaffinity(0))
    master = f"local[{cores}]"
    warm_page_cache(store)
    with served(store.parent) as options:
        uri = f"s3://{BUCKET}/{store.name}?{options}"
        with remote(master, {}) as session:
            turns: dict[str, Callable[[], float]] = {
                "pyarrow alone": lambda: run_readers(uri, names, cores),
                "local": lambda: run_command(uri, out, master, "local").build,
                "spark": lambda: session.run(uri, out).build,
            }
            seconds: dict[str, list[float]] = {name: [] for name in turns}
            for number in range(-1, rounds):
                for name, turn in turns.items():
                    took = turn()
                    if number >= 0:
                        seconds[name].append(took)
    shutil.rmtree(out, ignore_errors=True)
    plain = median(seconds["pyarrow alone"])
    ratios = {name: median(seconds[name]) / plain for name in ("local", "spark")}
    print(f"{log_bytes(store) / GIB:.3g} GiB from a bucket" + " " * 9 + "      min   median      max")
    for name, values in seconds.items():
        print(f"  {name:<28} {min(values):8.2f} {median(values):8.2f} {max(values):8.2f} s")
    for name, ratio in ratios.items():
        print(f"  {name}: {ratio:.2f} times pyarrow alone, at most {TARGET}", flush=True)
    return {"bytes": log_bytes(store), "seconds": seconds, "ratios": ratios, "target": TARGET}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=8, help="of orders, 1 GiB each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, default=BENCH / "bucket.json")
    parser.add_argument("--read", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read_all(given.read[0], given.read[1:])
        return 0
    whole = log_folder("orders", 8 * GIB, given.seed)
    store = whole if whole.exists() else make_log("orders", given.segments * GIB, given.seed)
    if given.segments < len(segments(store)):
        store = first_segments(store, given.segments)
    found = {"machine": describe_machine(), "rounds": given.rounds, **race(store, given.rounds, BENCH / "bucket-out")}
    given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
