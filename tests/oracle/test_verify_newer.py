"""verify of stores on which RocketMQ was upgraded in place, and went back: what an older version left is no difference."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.golden.test_verify_mend import written, zero_unit
from tests.oracle.scenarios import FOLDER, java_home
from tests.tools.local_verify import kinds, local_verify
from tests.tools.make_log import Message

SIZES = ("--cq-file-size", 400, "--hash-slots", 50, "--index-items", 60, "--segment-size", 1 << 12)
RECORDS = 90


def dispatched(version: str, store: Path) -> None:
    """A start of the real store, which dispatches what is new in the log, and a clean stop."""
    words = [FOLDER / "run", version, "Rebuild", store, "--in-place", *SIZES]
    subprocess.run([str(word) for word in words], env=java_home(), check=True, capture_output=True)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    messages = (
        Message(topic="T", properties={"KEYS": f"key-{number}", "TAGS": f"tag-{number % 3}"}) for number in range(RECORDS)
    )  # fmt: skip
    return written(tmp_path_factory.mktemp("newer") / "store", *messages)


@pytest.mark.parametrize(
    ("versions", "fits"),
    [
        (("5.3.3", "5.5.0"), "5.5"),
        pytest.param(("5.3.3", "5.4.0"), "5.4", marks=pytest.mark.slow),
        pytest.param(("5.5.0", "5.3.3"), "5.5", marks=pytest.mark.slow),
    ],
)
def test_stores_of_several_versions(versions: tuple[str, ...], fits: str, log: Path, tmp_path: Path) -> None:
    """Each version gets its share of the segments, and dispatches them."""
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    segments = sorted((log / "commitlog").iterdir())
    for number, version in enumerate(versions):
        low, high = number * len(segments) // len(versions), (number + 1) * len(segments) // len(versions)
        for segment in segments[low:high]:
            shutil.copyfile(segment, store / "commitlog" / segment.name)
        dispatched(version, store)
    summary = local_verify(store)
    assert (summary.findings, summary.fits) == ([], [fits])
    assert summary.records == RECORDS
    assert any(note.startswith("no items of TAGS for") for note in summary.notes)
    assert 0 < summary.tag_items == summary.tag_items_there < RECORDS

    zero_unit(store, "T/0")
    again = local_verify(store)
    assert kinds(again) == {"queue-unit-missing": 1}
    assert f"--broker-version {fits}" in (again.mend or "") or fits == "5.5"
