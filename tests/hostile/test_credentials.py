"""Credentials in a URI that is mistyped, or stands where none belongs: nothing that a command says shows them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.showing import redacted
from tests.fault.disk import tiny_store
from tests.tools.local_engine import local_build
from tests.tools.local_verify import local_verify

SIZES = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}
SECRET = "wJalrXUtnFEMI"
PAIR = f"AKIAEXAMPLE:{SECRET}"
MISTYPED = (
    f"s3:/{PAIR}@b/x", f"s3://{PAIR}%40b/x", f"s3:{PAIR}@b", f"s3//{PAIR}@b/x", f"s3:///{PAIR}@b", f"s3://{PAIR}/b/x",
    f"s3://{PAIR}", f"s4://{PAIR}@b", f"s3a://k:a/{SECRET}@b", f"//{PAIR}@b", f"S3:/{PAIR}@b/x", f"s3://{PAIR}@b/../x",
    f"s3://{PAIR}@b/x#y", f"abfss:/{PAIR}@account/x", f"dbfs:/{PAIR}@b",
)  # fmt: skip
COMMANDS = (
    "build {} --out out", "build store --out {}", "build --commitlog {} --out out", "build store --out out --metrics {}/m",
    "build store --out out --dry-run --broker-conf {}", "build store --out out --tables {}", "build --out {} {}",
    "build {} --out out --store-name {}", "build store --out out --tables {} --incremental",
    "build store --out out --dry-run --topics-config {}", "verify {}", "verify out --commitlog {}", "verify store --against {}",
    "verify store --work {}", "verify {} --log-format json", "query {} --physical 0", "query store --commitlog {} --physical 0",
    "inspect {}", "fetch {} --to store", "fetch out --to {}", "report {}", "report out --store {}", "report store --out {}",
    "build {} --no-such-option {}", "{} store",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_error_shows_them(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of these ends before Spark starts; the metrics of the run are looked at as well."""
    monkeypatch.chdir(tmp_path)
    # A log that no build takes: whatever gets as far ends there.
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / "notes.txt").write_text("no segment")
    for uri in MISTYPED:
        words = [uri if word == "{}" else word.format(uri) for word in command.split()]
        more = ["--metrics", "figures.prom"] if words[0] in ("build", "verify") and "--metrics" not in words else []
        status = main([*words, *more])
        told = capfd.readouterr()
        assert SECRET not in told.out + told.err, uri
        assert "Traceback" not in told.err
        assert status or "--dry-run" in words or words[0] == "report" or "inspect" in words or "query" in words
        if (tmp_path / "figures.prom").exists():
            assert SECRET not in (tmp_path / "figures.prom").read_text()


def test_what_is_built_and_verified_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``./s3:/KEY:SECRET@b`` is a path like any other, and may be there."""
    store = tiny_store(tmp_path / "s3:" / f"k:{SECRET}@b")
    monkeypatch.chdir(tmp_path)
    summary = local_build(f"./s3:/k:{SECRET}@b", tmp_path / "out", None, **SIZES)
    assert summary.exit == 0, summary.error
    assert SECRET not in summary.to_json() + (tmp_path / "out" / "reindex.json").read_text()
    for part in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "out" / part).rename(store / part)
    verified = local_verify(f"./s3:/k:{SECRET}@b", None, **SIZES)
    assert verified.exit == 0, verified.error
    next((store / "index").iterdir()).unlink()
    verified = local_verify(f"./s3:/k:{SECRET}@b", None, **SIZES)
    assert verified.exit == 4
    assert SECRET not in verified.to_json() + verified.to_text()


def test_random_slips(seed: int) -> None:
    """What stands before key and secret is mistyped in any way, as long as something of it is left."""
    rng = random.Random(seed)
    for _ in range(2000):
        kind = rng.choice(("s3", "S3", "s", "s33", "s3a", "3", "gs", "hdfs", "webhdf", ""))
        between = rng.choice(("://", ":/", ":///", "//", "/", ";//", "://:", ".//", " ://", ": //", ":////"))
        text = (
            f"{kind}{between}{rng.choice('kA')}ey:{rng.choice(('', 'a/', '+', '=/'))}{SECRET}{rng.choice(('@', '%40'))}bucket/x"
        )
        assert SECRET not in redacted(text), text
        assert SECRET not in redacted(f"cannot read '{text}': is not there"), text
