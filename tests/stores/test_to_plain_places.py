"""``repair --to-plain`` of logs of DLedger behind URIs: the data folder is named, its checkpoint lies beside it.

The new store is the one that the same log gives on a disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rocketmq_reindex import files
from tests.golden.test_dledger import SIZES, store
from tests.stores.test_repair_places import read_all
from tests.stores.whole import published
from tests.tools.local_engine import InlineEngine, local_repair
from tests.tools.upload import upload

__all__ = ["store"]


def test_the_log_of_a_node_behind_a_uri(store: Path, tmp_path: Path, s3_place: str) -> None:
    """As STORE and as --replica a data folder in a bucket, beside its checkpoint; DIR is in the bucket, too."""
    settings = {"broker_version": "5.3", "to_plain": True, **SIZES}
    shutil.copytree(store / "dledger-n0", tmp_path / "other" / "dledger-n1")
    truth = local_repair(store, tmp_path / "truth", InlineEngine(5, 3), **settings)
    assert (truth.exit, truth.error) == (0, None)
    aside = files.join(s3_place, "aside")
    upload(store / "dledger-n0", files.join(s3_place, "dledger-n0"), aside)
    upload(tmp_path / "other" / "dledger-n1", files.join(s3_place, "dledger-n1"), aside)
    logs, out = (files.join(s3_place, node, "data") for node in ("dledger-n0", "dledger-n1")), files.join(s3_place, "out")
    own, other = logs
    told = local_repair("", out, InlineEngine(5, 3), commitlogs=(own,), replicas=(other,), **settings)
    assert (told.exit, told.error) == (0, None)
    assert [text for text in told.warnings if "--replica" in text or "committed" in text] == []
    # The names of IndexFiles are those of attempts in a bucket, and times on a disk.
    found, same = read_all(published(out)), read_all(str(tmp_path / "truth"))
    assert sorted(data for name, data in found.items() if name.startswith("index/")) == sorted(
        data for name, data in same.items() if name.startswith("index/")
    )
    assert {name: data for name, data in found.items() if not name.startswith("index/")} == {
        name: data for name, data in same.items() if not name.startswith("index/")
    }


def test_a_store_behind_a_uri_is_told_what_to_name(store: Path, tmp_path: Path, s3_place: str) -> None:
    settings = {"broker_version": "5.3", "to_plain": True, **SIZES}
    place = files.join(s3_place, "store")
    upload(store / "dledger-n0", files.join(place, "dledger-n0"), files.join(s3_place, "aside"))
    for named, replicas in ((place, ()), (str(store), (place,))):
        told = local_repair(named, tmp_path / "out", InlineEngine(5, 3), replicas=replicas, **settings)
        assert told.exit == 1
        assert "holds no log of DLedger" in str(told.error)
        assert ("its data folder" if replicas else "--commitlog .../dledger-<dLegerSelfId>/data") in str(told.error)
        assert not (tmp_path / "out").exists()
