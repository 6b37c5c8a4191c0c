"""Where the real store cuts a log at damage when it starts, and what follows for an index that was built beyond the cut."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.serving.programs import Program
from tests.serving.stores import ask, build_into, keyed_log, keys_of, lost, options, wrong
from tests.tools import spoil
from tests.tools.log_writer import Put

RECORDS = 1400
MORE = 30


def in_segment(store: Path, puts: list[Put], back: int) -> int:
    """The number of a record in a segment counted from the last, 1."""
    base = int(spoil.segment_paths(store)[-back].name)
    return next(number for number, put in enumerate(puts) if put.offset >= base) + 9


@pytest.mark.parametrize(
    ("version", "cut_after_a_stop", "cut_after_a_crash"),
    [("5.5.1", [1], [1]), ("4.9.8", [1, 2, 3], [1])],
    ids=["5.5.1", "4.9.8"],
)
def test_damage_near_the_end_is_cut_with_all_behind_it(
    version: str, cut_after_a_stop: list[int], cut_after_a_crash: list[int], seed: int, tmp_path: Path
) -> None:
    """4.9 reads three segments after a clean stop, but where an ``abort`` file lies only the last, as 5.5 always does."""
    puts = keyed_log(tmp_path / "log", RECORDS, seed)
    whole = puts[-1].offset + puts[-1].size
    with Program(version, "Crash", tmp_path) as program:
        for back in (1, 2, 3, 4):
            stopped, crashed = tmp_path / f"stopped-{back}", tmp_path / f"crashed-{back}"
            shutil.copytree(tmp_path / "log", stopped)
            hit = in_segment(stopped, puts, back)
            spoil.garbage(stopped, hit, seed)
            build_into(stopped, on_damage="salvage", broker_version=version[:3])
            shutil.copytree(stopped, crashed)
            (crashed / "abort").touch()
            for store, cut in ((stopped, cut_after_a_stop), (crashed, cut_after_a_crash)):
                end = int(program.step("open", store.name, store, *options()))
                assert end == (puts[hit].offset if back in cut else whole), store.name


@pytest.mark.parametrize("version", ["5.5.1", "4.9.8"])
def test_an_index_beyond_the_cut_keeps_new_keys_out(version: str, seed: int, tmp_path: Path) -> None:
    """IndexService.buildIndex passes over records below the index's end: so after a cut the index must end there, too.

    ``--on-damage stop``, or ``--until-offset`` the damage with ``salvage``, if there is more of it before.
    """
    puts = keyed_log(tmp_path / "log", RECORDS, seed)
    early, late = 40, in_segment(tmp_path / "log", puts, 1)
    cut = puts[late].offset
    spoil.garbage(tmp_path / "log", late, seed)
    shutil.copytree(tmp_path / "log", tmp_path / "twice")
    spoil.garbage(tmp_path / "twice", early, seed)
    before = puts[:late]
    ways: dict[str, tuple[str, dict[str, Any], list[Put]]] = {
        "beyond": ("twice", {"on_damage": "salvage"}, before[:early] + before[early + 1 :]),
        "until": ("twice", {"on_damage": "salvage", "until_offset": cut}, before[:early] + before[early + 1 :]),
        "stop": ("log", {"on_damage": "stop"}, before),
    }
    with Program(version, "Crash", tmp_path) as program:
        for name, (log, settings, left) in ways.items():
            store = tmp_path / name
            shutil.copytree(tmp_path / log, store)
            build_into(store, broker_version=version[:3], **settings)
            assert int(program.step("open", name, store, *options())) == cut
            offsets = program.step("put", name, "orders-0", "new", MORE).split(",")
            new = {("orders-0", f"new-{number}"): {int(offset)} for number, offset in enumerate(offsets)}
            keys = keys_of(left) | new
            found = ask(program, name, keys, tmp_path)
            if name == "beyond":
                assert new.keys() <= set(lost(keys, found))
            else:
                assert (lost(keys, found), wrong(keys, found)) == ([], [])
