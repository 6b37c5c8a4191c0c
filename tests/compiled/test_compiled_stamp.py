"""Compiled code is never stale: a change of any module of the package, however deep it lies, makes it anew."""

from __future__ import annotations

from pathlib import Path

import rocketmq_reindex
from rocketmq_reindex.storage_format.kernels import cache_folder
from tests.tools.compiled_copy import LOOP, TWIN, called, copied, put, step


def test_a_change_deep_in_the_package_makes_compiled_code_anew(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    assert called(copy) == [1, 2, 0, 0]
    assert called(copy) == [1, 2, 1, 1]
    step(copy, "one", 3)
    assert called(copy) == [3, 2, 0, 0]
    old = step(copy, "two", 2)
    old.rename(old.with_name("stride.py"))
    put(copy / TWIN / "two" / "loop.py", LOOP.format(package="two").replace("step import", "stride import"))
    assert called(copy) == [3, 2, 0, 0]


def test_all_modules_are_in_the_stamp() -> None:
    """A folder without ``__init__.py`` can be imported, too, but not be listed: there may be none."""
    package = Path(rocketmq_reindex.__path__[0])
    paths = {path.relative_to(package).with_suffix("") for path in (package / "storage_format").rglob("*.py")}
    found = {".".join(("rocketmq_reindex", *path.parts)).removesuffix(".__init__") for path in paths}
    assert set(cache_folder.names()) == found - {"rocketmq_reindex.storage_format"}
