"""verify of a store of RocketMQ 5.5.0, which indexes TAGS and has a sixth field in its checkpoint: it advises no build."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.golden.test_verify_mend import mended, written, zero_unit
from tests.oracle.scenarios import FOLDER, java_home
from tests.tools.compare import SMALL
from tests.tools.local_verify import kinds, local_verify
from tests.tools.make_log import Message


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the real 5.5.0 makes of a log with keys and TAGS."""
    store = tmp_path_factory.mktemp("newer") / "store"
    written(store, *(
        Message(topic="T", properties={"KEYS": f"key-{number}", "TAGS": f"tag-{number % 3}"}) for number in range(60)
    ))  # fmt: skip
    sizes = ["--cq-file-size", 400, "--hash-slots", 50, "--index-items", 60, "--segment-size", 1 << 12]
    words = [FOLDER / "run", "5.5.0", "Rebuild", store, "--in-place", *sizes]
    subprocess.run([str(word) for word in words], env=java_home(), check=True, capture_output=True)
    return store


def test_a_newer_store_keeps_its_index(newer: Path, tmp_path: Path) -> None:
    """A build for 5.3 has no items of TAGS, and no sixth field in its checkpoint."""
    store = tmp_path / "store"
    shutil.copytree(newer, store)
    summary = local_verify(store)
    assert "index-item-extra" in kinds(summary)
    assert summary.mend is None
    (reason,) = summary.not_mended
    assert "(rocksdbstore/, a sixth field of the checkpoint, items of TAGS)" in reason
    assert f"mend     no build is advised: {reason}" in summary.to_text()
    (extra,) = (finding for finding in summary.findings if finding["kind"] == "index-item-extra")
    assert extra["mend"] == f"no build is advised: {reason}"

    zero_unit(store, "T/0")
    again = local_verify(store)
    assert again.mend is not None
    assert "--only consumequeue " in again.mend
    assert again.not_mended == [reason]
    assert kinds(mended(again, store)) == kinds(summary)


@pytest.mark.parametrize("sign", ["rocksdbstore/", "a sixth field of the checkpoint", "items of TAGS"])
def test_each_sign_is_enough(sign: str, newer: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(newer, store)
    if sign != "rocksdbstore/":
        shutil.rmtree(store / "rocksdbstore")
    if not sign.startswith("a sixth"):
        (store / "checkpoint").write_bytes((store / "checkpoint").read_bytes()[:40].ljust(4096, b"\0"))
    if not sign.startswith("items"):
        shutil.rmtree(store / "index")
    summary = local_verify(store, **SMALL)
    assert summary.mend is None
    assert [f"({sign})" in reason for reason in summary.not_mended] == [True]
