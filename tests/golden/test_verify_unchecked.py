"""Which fields of a record verify sees: a bit of any other one, in any place, is a difference."""

from __future__ import annotations

import random
import re
from pathlib import Path

from rocketmq_reindex.storage_format.checks.differences import UNCHECKED
from tests.fault.layout import fields_of, flip
from tests.golden.test_verify_mend import built, written
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH
from tests.tools.local_verify import local_verify
from tests.tools.make_log import Message
from tests.tools.seeds import cases

RECORDS = 12


def store_of(place: Path, *, crc: bool = False) -> Path:
    messages = [
        Message(
            topic=f"Topic{number % 2}", flag=1, body=b"body", store_timestamp=EPOCH + 7000 * number, crc_property=crc,
            properties={"KEYS": f"k{number}", "TAGS": "tag", "mine": "of the application"},
        )
        for number in range(RECORDS)
    ]  # fmt: skip
    return built(written(place, *messages))


def test_each_field(seed: int, tmp_path: Path) -> None:
    """Clean is what has a bit turned over in a field of the list alone; where the list says nothing, each bit is clean."""
    rng = random.Random(seed)
    store = store_of(tmp_path / "store")
    segments = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
    # At a queue's end nothing tells whether a queue offset is wrong.
    last = len(next(iter(segments.values())).rstrip(b"\0")) * 3 // 4
    fields = [field for field in fields_of(segments) if field.name.startswith("V1") and field.at < last]
    for name in sorted({field.name for field in fields}):
        of_name = [field for field in fields if field.name == name]
        known = re.sub(r"V1 (hosts 44|property|separator) ?", "", name)
        known = known if known.isupper() and known not in ("KEYS", "TAGS") else "properties"
        for field in rng.choices(of_name, k=cases(2, 1)):
            spoilt = flip(segments, field.segment, field.at + rng.randrange(field.length), rng.randrange(8))
            (store / "commitlog" / field.segment).write_bytes(spoilt[field.segment])
            found = local_verify(store, **SMALL)
            (store / "commitlog" / field.segment).write_bytes(segments[field.segment])
            assert found.exit == 4 or known in UNCHECKED, f"{name} at {field.at}: {found.to_text()}"
            if UNCHECKED.get(known) == "nothing":
                assert found.exit == 0, f"{name} at {field.at}: {found.to_text()}"


def test_clean_says_so(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", crc=True)
    found = local_verify(store, **SMALL)
    assert found.not_checked == list(UNCHECKED)
    assert found.to_text().endswith(f"clean    no differences\n         not checked, as no checksum covers them: "
                                    f"{', '.join(UNCHECKED)}")  # fmt: skip
    assert "not checked, in records without __CRC32#: FLAG, " in local_verify(store, crc="all", **SMALL).to_text()
    # With its checksum a record is covered from its first byte to its last.
    path = min((store / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[16] ^= 1
    path.write_bytes(data)
    assert (local_verify(store, **SMALL).exit, local_verify(store, crc="all", **SMALL).exit) == (0, 4)
