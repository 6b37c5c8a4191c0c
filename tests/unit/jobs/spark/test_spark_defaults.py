"""conf/spark-defaults.conf: a reason for each setting, and the same settings wherever else they are given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rocketmq_reindex.jobs.spark import jars, session
from tests.tools.faulty_processes import ROOT

CONF = ROOT / "conf" / "spark-defaults.conf"


def settings() -> dict[str, str]:
    lines = [line for line in CONF.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"(spark\.[\w.]+)  (\S+)", line) for line in lines]
    assert all(found), "two blanks between name and value"
    return {match[1]: match[2] for match in found if match}


def test_each_setting_has_its_reason_above_it() -> None:
    above = ""
    names = []
    for line in CONF.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            assert above.startswith("# "), line
            assert not above.startswith("# ----"), line
            names.append(line.split()[0])
        above = line
    assert len(names) == len(set(names)) == len(settings())


def test_a_session_of_our_own_has_all_of_them_and_contradicts_none() -> None:
    given = settings()
    for master in ("local[2]", "spark://host:7077"):
        own = session.configuration(master)
        assert {name: own[name] for name in given} == given
        added = set(own) - set(given)
        assert added <= {
            "spark.driver.extraClassPath",
            "spark.driver.extraJavaOptions",
            "spark.python.daemon.module",
            "spark.driver.bindAddress",
            "spark.driver.host",
            *session._LOCAL,
        }
    assert {name: given[name] for name in session.RUN_SETTINGS} == session.RUN_SETTINGS


def test_the_bundle_has_the_same() -> None:
    bundle = yaml.safe_load((ROOT / "conf" / "databricks" / "databricks.yml").read_text(encoding="utf-8"))
    (cluster,) = bundle["resources"]["jobs"]["rocketmq_reindex"]["job_clusters"]
    given = settings()
    assert cluster["new_cluster"]["spark_conf"] == {name: given[name] for name in cluster["new_cluster"]["spark_conf"]}


@pytest.mark.parametrize(("name", "there", "taken"), [("a.jsa", True, True), ("a.jsa", False, False), ("a:b.jsa", True, False)])
def test_the_archive_of_classes(name: str, there: bool, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon would part the paths of two archives."""
    archive = tmp_path / name
    if there:
        archive.touch()
    monkeypatch.setattr(jars, "class_archive", lambda: archive)
    for master in ("local[2]", "spark://host:7077"):
        words = session.configuration(master)["spark.driver.extraJavaOptions"].split()
        assert (f"-XX:SharedArchiveFile={archive}" in words) == (taken and master == "local[2]")
