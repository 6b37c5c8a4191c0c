"""The journal of a swap: what is none is refused in one line, whatever somebody wrote there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.fetching.swap import FOLDER, JOURNAL, Swap
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.layouts import EARLIER_KIND, KIND

AWAY: dict[str, Any] = {"part": "index", "name": "index.previous.2", "inode": 5, "modified": 7}
SOUND: dict[str, Any] = {"build": "b", "parts": ["index"], "files": {"index": "d"}, "digest": KIND, "away": [AWAY]}


def pending(store: Path, text: str) -> dict[str, Any] | None:
    (store / FOLDER).mkdir()
    (store / FOLDER / JOURNAL).write_text(text)
    return Swap(str(store)).pending()


def test_a_journal(tmp_path: Path) -> None:
    assert Swap(str(tmp_path)).pending() is None
    assert pending(tmp_path, json.dumps(SOUND)) == SOUND


def test_one_of_an_older_version(tmp_path: Path) -> None:
    found = {"build": "b", "parts": ["index"]}
    assert pending(tmp_path, json.dumps(found)) == found | {"files": {}, "digest": EARLIER_KIND, "away": []}


AWAYS: list[dict[str, Any]] = [
    {"part": "../x"},
    {"part": "commitlog"},
    {"name": "../index.previous"},
    {"name": "index\x1b[2J.previous"},
    {"name": "consumequeue.previous"},
    {"name": 5},
    {"inode": "5"},
    {"modified": None},
    {"inode": 1e400},
]
FIELDS: list[dict[str, Any]] = [
    {"parts": ["commitlog"]},
    {"parts": 5},
    {"build": 5},
    {"files": []},
    {"files": {"index": 5}},
    {"files": {"../x": "d"}},
    {"digest": 5},
    {"away": 5},
    {"away": [5]},
    {"away": {"x": 5}},
    *({"away": [AWAY | away]} for away in AWAYS),
]


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "null", '"text"', "[" * 100_000, "{}", *(json.dumps(SOUND | fields) for fields in FIELDS)]
)
def test_what_is_no_journal(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no journal of a fetch: look at what lies there, and remove it"):
        pending(tmp_path, text)


def test_one_without_end(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    with (tmp_path / FOLDER / JOURNAL).open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="is no journal of a fetch"):
        Swap(str(tmp_path)).pending()
