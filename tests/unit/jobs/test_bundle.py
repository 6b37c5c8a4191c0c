"""The Databricks bundle: it uses what it declares, and its tasks' words are those of the command line."""

from __future__ import annotations

import pytest

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.task import VERIFY, words
from rocketmq_reindex.jobs.verifying.options import parse_verify
from tests.tools.bundle import BUNDLE, JOB, TASKS, deployed, named, wheel_tasks

REQUIRED = {"run_as", "managers"}


def test_variables_and_parameters_are_declared_and_used() -> None:
    assert named("var", [BUNDLE["resources"], BUNDLE["targets"]]) == set(BUNDLE["variables"])
    for name, variable in BUNDLE["variables"].items():
        assert set(variable) - {"type"} == ({"description"} if name in REQUIRED else {"description", "default"})
        assert (variable.get("type") == "complex") == isinstance(variable.get("default"), list)
    assert named("job.parameters", JOB["tasks"]) == {parameter["name"] for parameter in JOB["parameters"]}


def test_tasks_follow_each_other() -> None:
    after = {key: [one["task_key"] for one in task.get("depends_on", [])] for key, task in TASKS.items()}
    assert after == {"build": [], "verify": ["build"], "wanted": ["verify"], "publish": ["wanted"]}
    assert JOB["max_concurrent_runs"] == 1
    clusters = {cluster["job_cluster_key"] for cluster in JOB["job_clusters"]}
    assert {task["job_cluster_key"] for task in TASKS.values() if "python_wheel_task" in task} == clusters


@pytest.mark.parametrize("tables", ["", "--incremental --tables /Volumes/m/r/tables"])
def test_words_of_the_tasks_are_understood(tables: str) -> None:
    given = {"publish_to": "/b", "build_options": tables, "verify_options": "--sample 0.5", "fetch_options": "--partial"}
    tasks = wheel_tasks({"store": "/s", "out": "/o"}, **given)
    assert [word.removeprefix(VERIFY) for word in tasks["build"] if word.startswith(VERIFY)] == [
        word for word in tasks["verify"] if word.startswith(("--work=", "options="))
    ]
    found = {key: words([word for word in task if not word.startswith(VERIFY)]) for key, task in tasks.items()}
    assert [words[0] for words in found.values()] == ["build", "verify", "fetch"]
    if "--tables" not in tables:
        settings = parse_settings(found["build"][1:])
        assert (settings.store, settings.out, settings.overwrite) == ("/s", "/o", True)
    assert found["verify"].index("--work=/o/work") < found["verify"].index("--sample"), "later options count"
    parsed = parse_verify([word for word in found["verify"][1:] if not word.startswith("--work")])
    assert (parsed.store, parsed.commitlogs, parsed.sample) == ("/o", ("/s/commitlog",), 0.5)
    assert found["publish"][1:] == ["/o", "--to=/b", "--json", "--partial"]


def test_only_managers_may_replace_what_runs() -> None:
    prod = deployed(BUNDLE["targets"]["prod"], {"run_as": "principal", "managers": "operators"})
    assert prod["run_as"] == {"service_principal_name": "principal"}
    assert "Shared" not in prod["workspace"]["root_path"]
    assert prod["permissions"] == [
        {"group_name": "operators", "level": "CAN_MANAGE"},
        {"service_principal_name": "principal", "level": "CAN_VIEW"},
    ]
    # A deployment without them is refused; to try it, none has to be named.
    assert set(BUNDLE["targets"]["dev"]["variables"]) == REQUIRED
    assert not {"run_as", "permissions"} & set(BUNDLE["targets"]["dev"])


def test_a_run_ends_and_failures_are_told() -> None:
    told = {"notify_emails": ["a@example.com"], "notify_webhooks": [{"id": "71"}], "timeout_seconds": 60}
    job = deployed(JOB, told)
    assert job["timeout_seconds"] == 60
    assert job["email_notifications"] == {"on_failure": ["a@example.com"]}
    assert job["webhook_notifications"] == {"on_failure": [{"id": "71"}]}
    assert 0 < deployed(JOB, {})["timeout_seconds"] <= 86400
    assert deployed(JOB, {})["email_notifications"] == {"on_failure": []}
