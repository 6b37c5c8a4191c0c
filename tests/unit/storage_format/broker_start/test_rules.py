"""Every release whose start is modelled can be started, so that the model is held against it."""

from __future__ import annotations

import re

from rocketmq_reindex.storage_format.versions import RELEASES, VERSIONS, line_of
from tests import ROOT
from tests.oracle import scenarios


def test_the_real_store_of_every_release_can_be_run() -> None:
    assert RELEASES[::-1] == scenarios.VERSIONS
    run, make = ((ROOT / name).read_text(encoding="utf-8") for name in ("tests/oracle/run", "Makefile"))
    made = re.search(r"^RELEASES = (.+)$", make, re.MULTILINE)
    also = re.search(r"^\t@for version in \$\(RELEASES\) ([^;]*);.*tests/oracle/run \$\$version build", make, re.MULTILINE)
    assert made is not None
    assert also is not None
    assert {*made[1].split(), *also[1].split()} >= set(RELEASES)
    for release in RELEASES:
        assert re.search(rf"^ +[^)\n]*\b{re.escape(release)}\b[^)\n]*\) profile=", run, re.MULTILINE), release


def test_every_line_has_a_release() -> None:
    assert {line_of(release) for release in RELEASES} == set(VERSIONS)
