"""The entry point of a wheel task: empty parameters are left out, and only a run that did its work returns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs import task
from tests.golden.stores import GoldenStore


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["build", "/s", "--out=/o", "--json"], ["build", "/s", "--out=/o", "--json"]),
        (["fetch", "/o", "--to="], ["fetch", "/o"]),
        (["build", "options="], ["build"]),
        (["build", "options=--lmq --delay-levels '1s 5s'"], ["build", "--lmq", "--delay-levels", "1s 5s"]),
        # A value that ends so is given as a word of its own.
        (["query", "--topic", "a=", "--key=b="], ["query", "--topic", "a="]),
    ],
)
def test_words(given: list[str], expected: list[str]) -> None:
    assert task.words(given) == expected


def test_what_is_not_done_does_not_return(
    golden_store: Callable[[str], GoldenStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = golden_store("trimmed-head")
    store = str(golden.path)
    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in golden.sizes().items()]
    plan = ["build", store, f"--out={tmp_path / 'out'}", "--dry-run", *sizes]
    for given, status in ((plan, None), ([*plan, "options=--no-such"], 2), (["build", store, "--out="], 2), (["no-such"], 2)):
        monkeypatch.setattr(sys, "argv", ["task", *given])
        if status is None:
            task.task()
        else:
            with pytest.raises(SystemExit) as ended:
                task.task()
            assert ended.value.code == status
