"""A link with the token, on a page of another site: a real browser comes in by it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from tests.tools.browser import PATIENCE, ROOT


class Elsewhere(ThreadingHTTPServer):
    """A page that goes to ``address`` at once."""

    address = ""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Elsewhere)
        page = f'<!doctype html><script>location.href = "{self.server.address}"</script>'.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_by_a_link_with_the_token(host: str, elsewhere: Elsewhere, tmp_path: Path) -> None:
    """To the browser one name is another site, the other is another port of the same one."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    command = subprocess.run([ROOT / "scripts" / "browser"], capture_output=True, text=True, check=True).stdout.strip()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'p'}"]
    with rr.browse(f"s={tmp_path / 'store'}", port=0) as pages:
        for address, title in ((pages.url, "<title>1 store"), (pages.url.partition("?")[0], "refused: another site")):
            elsewhere.address = address
            done = subprocess.run(
                [command, *options, "--virtual-time-budget=20000", "--dump-dom", f"http://{host}:{elsewhere.server_port}/"],
                capture_output=True, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            assert title in done.stdout, (done.stdout, done.stderr[-2000:])
