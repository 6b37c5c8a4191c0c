"""An IAM policy as a page of the documentation has it, and a door to an S3 server that holds requests to it."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from tests import ROOT
from tests.tools.s3_door import Sought, s3_door

Need = tuple[str, str]
"""(an action, the ARN that it is done to)"""


def policies(page: str) -> list[dict[str, Any]]:
    """The policies of a page of docs/, in their order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def moved(policy: dict[str, Any], places: dict[str, str]) -> dict[str, Any]:
    """A policy with other places (BUCKET/PATH) in its ARNs."""
    text = json.dumps(policy)
    for old, new in places.items():
        text = text.replace(f"arn:aws:s3:::{old}", json.dumps(f"arn:aws:s3:::{new}")[1:-1])
    found: dict[str, Any] = json.loads(text)
    return found


def needs(sought: Sought) -> list[Need]:
    """What AWS asks a policy for before it does what was sought, by its table of S3 actions. Others have names of ours."""
    bucket, _, key = sought.path.lstrip("/").partition("/")
    of_bucket, of_key = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    kind, query = sought.kind, sought.query.keys() - {"x-id"}
    if kind == "LIST" or (kind == "HEAD" and not key):
        return [("s3:ListBucket", of_bucket)]
    if kind == "REMOVE":
        return [("s3:DeleteObject", f"{of_bucket}/{one}") for one in sought.keys]
    if kind == "COPY":
        source = unquote(sought.headers["x-amz-copy-source"]).lstrip("/")
        return [("s3:GetObject", f"arn:aws:s3:::{source}"), ("s3:PutObject", of_key)]
    if kind == "DELETE" and key:
        return [("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", of_key)]
    if kind in ("GET", "HEAD") and key and not query:
        return [("s3:GetObject", of_key)]
    if (kind == "PUT" and key and query <= {"partNumber", "uploadId"}) or (kind == "POST" and query & {"uploads", "uploadId"}):
        return [("s3:PutObject", of_key)]
    return [(f"{kind} {sorted(query)}", of_key if key else of_bucket)]


class Held:
    """What of a policy was used, and what was refused."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self._allowed = [
            (action, resource)
            for statement in policy["Statement"]
            for action in statement["Action"]
            for resource in statement["Resource"]
        ]
        self._lock = threading.Lock()
        self._used = set[Need]()
        self.refused = set[Need]()

    def refuses(self, sought: Sought) -> int:
        with self._lock:
            for action, arn in needs(sought):
                fit = {one for one in self._allowed if one[0] == action and fnmatch.fnmatchcase(arn, one[1])}
                self._used |= fit
                if not fit:
                    self.refused.add((action, arn))
                    return 403
        return 0

    @property
    def unused(self) -> set[Need]:
        """What the policy allows and nobody asked for."""
        return set(self._allowed) - self._used


@contextlib.contextmanager
def guarded_s3(endpoint: str, policy: dict[str, Any]) -> Iterator[tuple[str, Held]]:
    """(HOST:PORT, what was used and refused). Whatever the policy does not allow gets 403."""
    held = Held(policy)
    with s3_door(endpoint, held.refuses) as (door, _):
        yield door, held
