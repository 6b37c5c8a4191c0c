"""``make demo`` sees any difference between what it built and what RocketMQ wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import demo
from tests.golden.stores import GoldenStore


@pytest.mark.parametrize("kind", ["consumequeue", "index", "checkpoint"])
@pytest.mark.parametrize("harm", ["change", "remove", "add"])
def test_the_demo_sees_any_difference(
    kind: str, harm: str, golden_store: Callable[[str], GoldenStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuilt = golden_store(demo.NAME).path / "rebuilt"
    built = tmp_path / "built"
    shutil.copytree(rebuilt, built)
    path = built / demo.tree(built, kind)[-1]
    if harm == "change":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    elif harm == "remove":
        path.unlink()
    elif kind == "checkpoint":
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        path.with_name("9" * 20).write_bytes(b"")
    assert demo.show(demo.compare(rebuilt, built)) == 1
    assert "files equal, byte for byte" in capsys.readouterr().out.splitlines()[-1]


def test_the_demo_unpacks_what_it_compares(golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    store, whole = demo.unpack(tmp_path), golden_store(demo.NAME).path
    for part in ("commitlog", *(f"rebuilt/{kind}" for kind in demo.TITLES)):
        names = demo.tree(store, part)
        assert names == demo.tree(whole, part)
        assert names
        assert all((store / name).read_bytes() == (whole / name).read_bytes() for name in names)
    assert (store / "scenario.json").read_bytes() == (whole / "scenario.json").read_bytes()
