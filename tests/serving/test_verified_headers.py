"""What an IndexFile without items and a checkpoint's offsets do to the real store, and what verify says of them."""

from __future__ import annotations

import dataclasses
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from tests.serving.programs import Program
from tests.serving.stores import SEGMENT, SIZES, ask, build_into, keyed_log, keys_of, lost, options
from tests.tools.encode import EPOCH, Message
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter

OLD, MORE, RECORDS = 40, 12, 300
END_PLACE = 24
"""endPhyOffset, in an IndexFile's header"""


@pytest.mark.parametrize("version", ["5.5.1", "4.9.8"])
def test_the_end_of_an_index_without_items(version: str, tmp_path: Path) -> None:
    """IndexService.buildIndex passes over every record below the last file's endPhyOffset: a wrong one costs all new keys."""
    settings: dict[str, Any] = {"broker_version": version[:3], **SIZES}
    with LogWriter(tmp_path / "sound" / "commitlog", SEGMENT) as writer:
        puts = [writer.append(Message("orders-0", store_timestamp=EPOCH + number, properties={})) for number in range(OLD)]
    build_into(tmp_path / "sound", broker_version=version[:3])
    shutil.copytree(tmp_path / "sound", tmp_path / "spoilt")
    (path,) = (tmp_path / "spoilt" / "index").iterdir()
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, END_PLACE, 1 << 56)
    path.write_bytes(data)
    assert kinds(local_verify(tmp_path / "sound", **settings)) == {}
    summary = local_verify(tmp_path / "spoilt", **settings)
    assert kinds(summary) == {"index-header": 1}
    assert summary.findings[0]["examples"][0]["text"] == f"endPhyOffset {1 << 56} instead of 0"
    with Program(version, "Crash", tmp_path) as program:
        for name in ("sound", "spoilt"):
            program.step("open", name, tmp_path / name, *options())
            offsets = program.step("put", name, "orders-0", "new", MORE).split(",")
            keys = {("orders-0", f"new-{number}"): {int(offset)} for number, offset in enumerate(offsets)}
            assert len(lost(keys, ask(program, name, keys, tmp_path))) == (MORE if name == "spoilt" else 0)
        program.step("close", "sound", "spoilt")
    # Only a start sets confirmPhyOffset, so it falls behind the log's first byte as segments expire: that is no difference.
    confirmed = Checkpoint.from_bytes((tmp_path / "sound" / "checkpoint").read_bytes()).confirm_offset
    assert confirmed == (puts[-1].offset if version == "5.5.1" else 0)
    assert kinds(local_verify(tmp_path / "sound", **settings)) == {}


def test_a_torn_index_that_the_checkpoint_vouches_for(seed: int, tmp_path: Path) -> None:
    """IndexService.load keeps what ends at or before indexMsgTimestamp: all is dispatched again, and passed over as indexed."""
    keys = keys_of(keyed_log(tmp_path / "log", RECORDS, seed))
    with Program("5.3.3", "Crash", tmp_path) as program:
        shutil.copytree(tmp_path / "log", tmp_path / "own")
        program.step("open", "own", tmp_path / "own", *options())
        program.step("close", "own")
        left = Checkpoint.from_bytes((tmp_path / "own" / "checkpoint").read_bytes())
        assert (left.physic, left.index) == (0, 0)
        for name, index in (("as-left", 0), ("ahead", 1 << 50)):
            store = tmp_path / name
            shutil.copytree(tmp_path / "own", store)
            (store / "checkpoint").write_bytes(dataclasses.replace(left, index=index).to_bytes())
            sizes: dict[str, Any] = dict(SIZES)
            assert kinds(local_verify(store, **sizes)) == ({"checkpoint-index-ahead": 1} if index else {})
            (path,) = (store / "index").iterdir()
            kept = 40 + 4 * SIZES["hash_slots"] + 20 * RECORDS
            path.write_bytes(path.read_bytes()[:kept].ljust(path.stat().st_size, b"\0"))
            (store / "abort").touch()
            program.step("open", name, store, *options())
            missing = lost(keys, ask(program, name, keys, tmp_path))
            assert len(missing) > len(keys) / 2 if index else missing == []
