"""The Databricks bundle: it uses what it declares, and its tasks' words are those of the command line."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.task import words
from rocketmq_reindex.jobs.verifying.options import parse_verify
from tests import ROOT

BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "databricks" / "databricks.yml").read_text(encoding="utf-8"))
JOB: dict[str, Any] = BUNDLE["resources"]["jobs"]["rocketmq_reindex"]
TASKS = {task["task_key"]: task for task in JOB["tasks"]}


def told(part: object) -> list[str]:
    """Every text below a part of the bundle."""
    if isinstance(part, dict):
        return [text for value in part.values() for text in told(value)]
    if isinstance(part, list):
        return [text for value in part for text in told(value)]
    return [part] if isinstance(part, str) else []


def test_variables_and_parameters_are_declared_and_used() -> None:
    texts = " ".join(told(BUNDLE["resources"]) + told(BUNDLE["targets"]))
    assert set(re.findall(r"\$\{var\.(\w+)\}", texts)) == set(BUNDLE["variables"])
    assert all(set(variable) == {"description", "default"} for variable in BUNDLE["variables"].values())
    declared = {parameter["name"] for parameter in JOB["parameters"]}
    assert set(re.findall(r"\{\{job\.parameters\.(\w+)\}\}", " ".join(told(JOB["tasks"])))) == declared


def test_tasks_follow_each_other() -> None:
    after = {key: [one["task_key"] for one in task.get("depends_on", [])] for key, task in TASKS.items()}
    assert after == {"build": [], "verify": ["build"], "wanted": ["verify"], "publish": ["wanted"]}
    assert JOB["max_concurrent_runs"] == 1
    clusters = {cluster["job_cluster_key"] for cluster in JOB["job_clusters"]}
    assert {task["job_cluster_key"] for task in TASKS.values() if "python_wheel_task" in task} == clusters


@pytest.mark.parametrize("tables", ["", "--incremental --tables /Volumes/m/r/tables"])
def test_words_of_the_tasks_are_understood(tables: str) -> None:
    given = {"store": "/s", "out": "/o", "publish_to": "/b", "build_options": tables, "verify_options": "--sample 0.5"}
    found = {}
    for key, task in TASKS.items():
        if "python_wheel_task" in task:
            asked = task["python_wheel_task"]["parameters"]
            found[key] = words([re.sub(r"\{\{job\.parameters\.(\w+)\}\}", lambda name: given[name[1]], word) for word in asked])
    assert [words[0] for words in found.values()] == ["build", "verify", "fetch"]
    if "--tables" not in tables:
        settings = parse_settings(found["build"][1:])
        assert (settings.store, settings.out, settings.overwrite) == ("/s", "/o", True)
    verify = parse_verify(found["verify"][1:])
    assert (verify.store, verify.commitlogs, verify.sample, verify.work) == ("/o", ("/s/commitlog",), 0.5, "/o/..")
    assert found["publish"][1:] == ["/o", "--to=/b", "--json"]
