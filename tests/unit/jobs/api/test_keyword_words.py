"""Errors of the Python API name keywords, not options: each text of the product that names one, and calls that raise."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.api.keywords import _COMMAND, NOT_OPTIONS, in_keywords
from rocketmq_reindex.jobs.command.option_table import OPTIONS
from tests.docs.pages import ROOT

pytestmark = pytest.mark.usefixtures("inline_local")

FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")


def texts(path: Path) -> Iterator[str]:
    """Every text of a module but docstrings and the words of parsers; a value that is put in is ``7``."""
    tree = ast.parse(path.read_text())
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped | parts:
            yield node.value


def test_all_texts_that_name_an_option() -> None:
    known, seen = {keyword.replace("_", "-") for keyword in OPTIONS.keys() - NOT_OPTIONS}, 0
    for folder in ("jobs", "udfs", "files", "storage_format"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name in ("options.py", "help.py", "cli.py") or "dags" in path.parts:
                continue
            for text in texts(path):
                # One word alone is a part of a command that is advised.
                if " " not in text.strip() or not known & set(FLAG.findall(text)):
                    continue
                said = re.sub(_COMMAND, "", in_keywords(text, "build"))
                assert not known & set(FLAG.findall(said)), f"{path}: {said}"
                seen += 1
    assert seen > 100


@pytest.mark.parametrize(
    ("function", "text", "said"),
    [
        ("build", "built: is not empty: give --overwrite", "built: is not empty: give overwrite=True"),
        ("build", "with --on-damage stop, or --on-damage salvage", 'with on_damage="stop", or on_damage="salvage"'),
        ("build", "choose --queue-order logical or broker", 'choose queue_order="logical" or "broker"'),
        ("build", "choose --queue-order logical or leave it", 'choose queue_order="logical" or leave it'),
        ("build", "--hash-slots 0 --index-items 5: take 1", "hash_slots=0 index_items=5: take 1"),
        ("build", "more than --max-fill 100,000 and", "more than max_fill=100000 and"),
        ("build", "--broker-conf my.cnf: cannot be read", 'broker_conf="my.cnf": cannot be read'),
        ("build", "give --broker-version 5.5: it", 'give broker_version="5.5": it'),
        ("build", "take --only index,checkpoint", 'take only="index,checkpoint"'),
        ("build", "name --out DIR for the result", "name out=DIR for the result"),
        ("build", "give --topics-config, or stop", "give topics_config, or stop"),
        ("build", "rmq-reindex build: argument --lmq: invalid: see --help", "build: argument lmq: invalid"),
        ("build", "--sample 2.0: take\n--recheck: goes", "sample=2.0: take\nrecheck=True: goes"),
        ("build", "rmq-reindex build: name a STORE: see --help", "build: name a store"),
        ("fetch", "BUILD: is empty", "build: is empty"),
        ("inspect", "one FILE: see --help", "one file"),
        ("query", "`rmq-reindex build STORE --out DIR`; --scan", "`rmq-reindex build STORE --out DIR`; scan=True"),
        (
            "verify", "first: rmq-reindex repair s --out DIR --engine local (leave --replica out)",
            "first: rmq-reindex repair s --out DIR --engine local (leave replica out)",
        ),
        ("build", "give spark-submit --py-files x.zip --master URL", "give spark-submit --py-files x.zip master=URL"),
    ],
)  # fmt: skip
def test_words(function: str, text: str, said: str) -> None:
    assert in_keywords(text, function) == said


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda rr, here: rr.build(here / "s", out=here / "out", engine="local"), "store is the folder around"),
        (lambda rr, here: rr.build(here, out=""), "out: name a folder"),
        (lambda rr, here: rr.build(here, out=here / "out", messages_table=True), "messages_table=True and build_id go with"),
        (lambda rr, here: rr.repair(here, out=here / "out", extend=True), "extend=True: takes what"),
        (lambda rr, here: rr.verify(here, sample=2), "sample=2.0: take a share"),
        (lambda rr, here: rr.query(here), "query: ask by one of key, tag, queue, id and physical"),
        (lambda rr, here: rr.preflight(here, hash_slots=4), "preflight: hash_slots and index_items go together"),
        (lambda rr, here: rr.fetch(here, to=here, threads=0), "threads=0: take 1 to 256"),
        (lambda rr, here: rr.inspect(here / "x", hash_slots=4), "inspect: hash_slots and index_items go together"),
        (lambda rr, here: rr.report(here / "x"), "or the file of verify report"),
        (lambda rr, here: rr.info(here / "x", commitlog=[5.5, None]), "info: argument commitlog: invalid value: None"),
    ],
)  # fmt: skip
def test_calls(call: Callable[[Any, Path], object], said: str, tmp_path: Path) -> None:
    with pytest.raises(rr.ReindexError) as raised:
        call(rr, tmp_path)
    assert said in str(raised.value)
    assert "--" not in str(raised.value)
