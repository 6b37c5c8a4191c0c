"""A stand-in on loopback for a Databricks workspace's Jobs API, as far as the operator asks it: its answers are made up."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB_ID, RUN_ID = 71, 4711
NAME = "rocketmq-reindex"


@dataclass
class Workspace:
    port: int = 0
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    """(method, path without its query, the JSON of a POST)"""


@contextlib.contextmanager
def workspace() -> Iterator[Workspace]:
    """One job of the bundle's name, each run of which ends at once."""
    told = Workspace()
    page = {"run_id": RUN_ID, "run_page_url": "http://127.0.0.1/run"}
    answers = {
        "/api/2.2/jobs/list": {"jobs": [{"job_id": JOB_ID, "settings": {"name": NAME}}]},
        "/api/2.2/jobs/run-now": {"run_id": RUN_ID},
        "/api/2.2/jobs/runs/get": page | {"state": {"life_cycle_state": "TERMINATED", "result_state": "SUCCESS"}},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, given: Any) -> None:
            path = self.path.partition("?")[0]
            told.asked.append((self.command, path, given))
            body = json.dumps(answers.get(path, {})).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
