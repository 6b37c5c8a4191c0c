"""The Databricks bundle as a deployment and a run make it: its variables and the job's parameters filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tests import ROOT

BUNDLE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "conf" / "databricks" / "databricks.yml").read_text(encoding="utf-8"))
JOB: Final[dict[str, Any]] = BUNDLE["resources"]["jobs"]["rocketmq_reindex"]
TASKS: Final[dict[str, dict[str, Any]]] = {task["task_key"]: task for task in JOB["tasks"]}
_VARIABLE: Final = re.compile(r"\$\{var\.(\w+)\}")
_PARAMETER: Final = re.compile(r"\{\{job\.parameters\.(\w+)\}\}")


def told(part: object) -> list[str]:
    """Every text below a part of the bundle."""
    if isinstance(part, dict):
        return [text for value in part.values() for text in told(value)]
    if isinstance(part, list):
        return [text for value in part for text in told(value)]
    return [part] if isinstance(part, str) else []


def named(pattern: str, part: object) -> set[str]:
    """What ``part`` refers to: ``pattern`` is ``var`` or ``job.parameters``."""
    return set((_VARIABLE if pattern == "var" else _PARAMETER).findall(" ".join(told(part))))


def deployed(part: Any, given: Mapping[str, Any]) -> Any:
    """A part of the bundle with the variables ``given``, else their defaults. A text that is one variable becomes its value."""
    values = {name: given.get(name, variable.get("default")) for name, variable in BUNDLE["variables"].items()}
    if isinstance(part, dict):
        return {name: deployed(value, given) for name, value in part.items()}
    if isinstance(part, list):
        return [deployed(value, given) for value in part]
    if not isinstance(part, str):
        return part
    whole = _VARIABLE.fullmatch(part)
    return values[whole[1]] if whole else _VARIABLE.sub(lambda found: str(values[found[1]]), part)


def wheel_tasks(variables: Mapping[str, Any], **parameters: str) -> dict[str, list[str]]:
    """{task: its words}, of a run of the job with other ``parameters`` than those it was deployed with."""
    job = deployed(JOB, variables)
    values = {parameter["name"]: parameter["default"] for parameter in job["parameters"]} | parameters
    assert set(values) == {parameter["name"] for parameter in job["parameters"]}
    return {
        task["task_key"]: [_PARAMETER.sub(lambda found: values[found[1]], word) for word in wanted["parameters"]]
        for task in job["tasks"]
        if (wanted := task.get("python_wheel_task"))
    }
