"""The command ``browse`` as a process: its address, who gets in, ctrl-C, and what stands in its way."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from tests.golden.stores import GoldenStore

Stores = Callable[[str], GoldenStore]
COMMAND = [sys.executable, "-m", "rocketmq_reindex", "browse"]
PATIENCE = 60


@contextlib.contextmanager
def running(*words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Give the process, and the address that it has printed."""
    command, pipe, variables = [*COMMAND, *words], subprocess.PIPE, os.environ | environment
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"browse   (http://127\.0\.0\.1:\d+/\?token=[\w-]{43})\n", line)
            assert match, (line, process.communicate(timeout=PATIENCE))
            yield process, match[1]
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_from_its_address_to_its_end(number: signal.Signals, status: int, golden_store: Stores) -> None:
    store = golden_store("basic-5.3").path
    with running(f"a={store}", "--port", "0") as (process, url):
        place = url.partition("?")[0]
        with pytest.raises(HTTPError, match="403"):
            urlopen(place, timeout=PATIENCE)
        browser = build_opener(HTTPCookieProcessor())
        with browser.open(url, timeout=PATIENCE) as answer:
            assert answer.url == place, "the token is out of the address"
            assert 'href="/store?store=a"' in answer.read().decode()
        with browser.open(f"{place}store?store=a&format=json", timeout=PATIENCE) as answer:
            assert b'"segments"' in answer.read()
        with pytest.raises(HTTPError, match="403"):
            browser.open(Request(place, headers={"Host": "evil.example"}), timeout=PATIENCE)
        ports = [line.split() for line in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]]
        hexed = f"0100007F:{int(place.rpartition(':')[2].strip('/')):04X}"
        assert [row[1] for row in ports if row[1].endswith(hexed[-5:]) and row[3] == "0A"] == [hexed], "loopback alone"
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE)[1] == "error: interrupted\n"
        assert process.returncode == status


def test_it_brings_no_spark_and_no_plots(golden_store: Stores) -> None:
    """Neither the start nor a page imports what takes long."""
    script = (
        "import sys, urllib.request, rocketmq_reindex as rr\n"
        "with rr.browse(sys.argv[1], port=0) as pages:\n"
        "    token = pages.url.partition('token=')[2]\n"
        "    asked = urllib.request.Request(pages.url.partition('?')[0], headers={'Authorization': 'Bearer ' + token})\n"
        "    print(urllib.request.urlopen(asked).status, pages.stores)\n"
        "print(sorted({'pyspark', 'py4j', 'matplotlib', 'pandas', 'numba', 'numpy'} & set(sys.modules)))"
    )
    store = golden_store("basic-5.3").path
    done = subprocess.run([sys.executable, "-c", script, store], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("200 ['basic-5.3']\n[]\n", "")


def test_a_port_that_is_taken(golden_store: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(golden_store("basic-5.3").path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["browse", store, "--port", str(port)]) == 1
        assert capsys.readouterr() == ("", f"error: --port {port}: is taken on 127.0.0.1: name another, or 0 for a free one\n")
        with pytest.raises(rr.InputError, match="is taken"):
            rr.browse(store, port=port)


def test_stop_frees_the_port(golden_store: Stores) -> None:
    store = golden_store("basic-5.3").path
    with rr.browse(store, port=0) as pages:
        port = pages.port
        assert pages.exit_status == 0
    pages.stop()
    with rr.browse(store, port=port) as again:
        assert (again.port, again.url == pages.url) == (port, False)


def test_without_the_extra(golden_store: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["browse", str(golden_store("basic-5.3").path), "--port", "0"]) == 1
    told = (
        "pages are served with starlette, jinja2 and uvicorn, "
        "and uvicorn is not installed: pip install 'rocketmq-reindex[browse]'"
    )
    assert capsys.readouterr() == ("", f"error: {told}\n")


def children_of(process: int) -> set[int]:
    """The processes that threads of a process have begun: a thread may end meanwhile."""
    found = set[int]()
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            found |= set(map(int, (task / "children").read_text().split()))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_its_end_ends_a_check(number: signal.Signals, golden_store: Stores, tmp_path: Path) -> None:
    """The check cannot clear up: its processes are gone all the same, and so is its folder."""
    with running(f"a={golden_store('basic-5.3').path}", "--port", "0", TMPDIR=str(tmp_path)) as (process, url):
        place, _, token = url.partition("?token=")
        asked = Request(f"{place}check", b"kind=verify&store=a", {"Authorization": f"Bearer {token}"})
        check = 0
        # On a busy machine a check may end before it is stopped here: then another one is begun.
        while not check:
            with urlopen(asked, timeout=PATIENCE) as answer:
                assert answer.status == 200, "that of the page to which it leads"
            for child in children_of(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGSTOP)
                    check = child
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + number
    with pytest.raises(ProcessLookupError):
        os.killpg(check, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_server_leaves_no_check(golden_store: Stores, tmp_path: Path) -> None:
    """It can do nothing itself: the check and its folder are gone all the same."""
    with running(f"a={golden_store('basic-5.3').path}", "--port", "0", TMPDIR=str(tmp_path)) as (process, url):
        place, _, token = url.partition("?token=")
        asked = Request(f"{place}check", b"kind=verify&store=a", {"Authorization": f"Bearer {token}"})
        with urlopen(asked, timeout=PATIENCE) as answer:
            assert answer.status == 200
        begun = children_of(process.pid)
        process.kill()
        process.communicate(timeout=PATIENCE)
    until = time.monotonic() + PATIENCE
    while list(tmp_path.iterdir()) or any(map(is_there, begun)):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_there(process: int) -> bool:
    """Whether it runs: who takes its place as a parent may never ask how it ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_site(
    golden_store: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages as files: what is printed, and that no server is needed, nor what serves."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    store, site = str(golden_store("dledger-5.3").path), str(tmp_path / "site")
    assert main(["browse", store, "--export-site", site]) == 0
    pages = len(list(Path(site).glob("*.html")))
    told = f"wrote    {pages} pages of dledger-5.3 to {site}\nnext     open {site}/index.html; it says what is left out\n"
    assert capsys.readouterr() == (told, "")
    assert main(["browse", store, "--export-site", site]) == 1
    assert capsys.readouterr().err == f"error: {site}: is not empty: name another folder\n"
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["browse", store, "--export-site", f"{site}-2"]) == 1
    assert "jinja2 is not installed: pip install 'rocketmq-reindex[browse]'" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_site_that_is_ended_halfway(number: signal.Signals, status: int, golden_store: Stores, tmp_path: Path) -> None:
    """Nothing is at DIR then, and the next run clears what is left."""
    site = tmp_path / "site"
    words = [*COMMAND, str(golden_store("transactions-delay").path), "--export-site", str(site)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + PATIENCE
        # The lock is taken before the first file is written.
        while not list(tmp_path.glob(".site.rmq-reindex-*/tree/*.html")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.002)
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (status, "")
    assert error == ("" if number == signal.SIGKILL else "error: interrupted: nothing was published\n")
    assert not site.exists()
    rr.browse(golden_store("dledger-5.3").path, export_site=site)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
