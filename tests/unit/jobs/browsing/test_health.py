"""The page of a store's health: checks that forms start, what they say, and who may start and stop them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import checks
from rocketmq_reindex.jobs.browsing.guard import FORM_MAX, HEADERS, Guard
from rocketmq_reindex.jobs.browsing.opened import known_damage
from rocketmq_reindex.jobs.browsing.options import url
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Pages, TestClient, check
from tests.tools.derived_store import write_store
from tests.tools.encode import Message

Stores = Callable[[str], GoldenStore]
PATIENCE = 300
BASE = "http://127.0.0.1:8380"
TIMES = ("seconds", "beside", "started")
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which each check has its own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@contextlib.contextmanager
def opened(*stores: str | Path) -> Iterator[Pages]:
    pages = Pages(*stores)
    try:
        yield pages
    finally:
        pages.application.state.checks.close()


def post(pages: Pages, page: str, status: int = 303, **form: Any) -> str:
    answer = pages.client.post(f"/{page}", data=form, follow_redirects=False)
    assert answer.status_code == status, answer.text
    if status == 303:
        return str(answer.headers["location"])
    check(answer.text)
    return str(answer.text)


def run(pages: Pages, **form: Any) -> dict[str, Any]:
    """The result of a check once it has ended."""
    assert post(pages, "check", **form) == url("health", store=form["store"])
    assert pages.application.state.checks.wait(PATIENCE)
    found = pages.json("health", store=form["store"])
    assert found["running"] is None
    return dict(found["results"][form["kind"]])


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in TIMES}


def as_json(result: rr.Result) -> dict[str, Any]:
    return dict(json.loads(result.to_json()))


def state_of(store: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(store.rglob("*"))}


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("inline_local")
def test_a_verify_and_a_comparison_say_what_the_command_says(damaged: Path, golden_store: Stores, temporary: Path) -> None:
    sound = golden_store("basic-5.3").path
    before = state_of(damaged), state_of(sound)
    with opened(f"a={damaged}", f"b={sound}") as pages:
        assert pages.json("health", store="a") == {
            "store": "a", "running": None, "results": {"verify": None, "against": None, "preflight": None}
        }  # fmt: skip
        told = run(pages, kind="verify", store="a")
        page = pages.html("health", store="a")
        expected = rr.verify(damaged, engine="local")
        assert without_times(told["result"]) == without_times(as_json(expected))
        lines = [line for line in expected.text.split("\n") if not line.startswith("took ")]
        assert [line for line in told["lines"] if not line.startswith("took ")] == lines
        assert (told["command"], told["error"], told["cut"]) == (f"rmq-reindex verify {damaged} --engine local", None, {})
        found = told["found"]
        assert [(each["kind"], each["count"], each["text"], each["mend"]) for each in found["findings"]] == [
            (each["kind"], each["count"], each["text"], each["mend"]) for each in expected.findings
        ]
        assert found["steps"][0]["command"] == expected.mend
        links = [link for each in found["findings"] for example in each["examples"] for link in example["links"]]
        assert {link["what"] for link in links} == {"record", "queue", "index file", "store"}
        for link in links:
            assert pages.client.get(link["href"]).status_code == 200, link
            assert link["href"].replace("&", "&amp;") in page
        told = run(pages, kind="against", store="a", against="b")
        assert without_times(told["result"]) == without_times(as_json(rr.verify(damaged, against=sound, engine="local")))
        (only,) = told["found"]["findings"]
        assert [link["href"] for link in only["examples"][0]["links"]] == [
            f"/message?store={name}&physical=1782" for name in ("a", "b")
        ]
        assert pages.json("health", store="a")["results"]["verify"]["found"] == found
        assert pages.json("health", store="b")["results"]["against"] is None
    assert (state_of(damaged), state_of(sound)) == before
    assert list(temporary.iterdir()) == []


def test_damage_that_is_known(damaged: Path) -> None:
    pages = Pages(f"a={damaged}")
    stores = pages.stores
    assert known_damage(stores, stores.by_name["a"]) == []
    ended = checks.EndedCheck(
        "id", checks.CheckOrder("verify", stores.by_name["a"]), "", 0.0,
        {"damage": [{"offset": 1782, "length": 1863, "reason": "x"}, {"offset": 5, "length": 1, "reason": "y"}]}, {}, 0, "",
    )  # fmt: skip
    pages.application.state.checks._ended["verify", "a"] = ended
    assert known_damage(stores, stores.by_name["a"]) == [(5, 6, "y"), (1782, 3645, "x")]


def test_a_preflight_of_a_version_and_of_many_queues(
    golden_store: Stores, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long list so much is kept as there is room for, and its length is told; the oldest results go first."""
    sound = golden_store("basic-5.3").path
    with opened(f"a={sound}", f"b={damaged}") as pages:
        told = run(pages, kind="preflight", store="a", version="5.3.3")
        expected = rr.preflight(sound, broker_version="5.3.3")
        assert without_times(told["result"]) == without_times(as_json(expected))
        assert told["lines"] == expected.text.split("\n")
        assert told["command"] == f"rmq-reindex preflight {sound} --broker-version 5.3.3"
        assert "RocketMQ 5.3.3" in pages.html("health", store="a")
        monkeypatch.setattr(checks, "ENTRIES_MAX", 3)
        monkeypatch.setattr(checks, "KEPT_MAX", 10)
        told = run(pages, kind="preflight", store="b")
        expected = rr.preflight(damaged)
        assert told["cut"] == {"queues": len(expected.queues)}
        assert told["result"]["queues"] == as_json(expected)["queues"][:3]
        assert told["lines"] == [expected.text.split("\n")[0], *expected.text[expected.text.index("\n\n") + 1 :].split("\n")]
        assert f"queues: {len(expected.queues)} entries, of which the first 3 are kept here" in pages.html(
            "health", store="b"
        ).replace("\n", " ")
        assert pages.json("health", store="a")["results"]["preflight"] is None


def test_one_check_at_a_time_and_its_stop(golden_store: Stores, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_ENDS_IN", 0.2)
    store = golden_store("basic-5.3").path
    with opened(f"a={store}", f"b={golden_store('basic-5.5').path}") as pages:
        held = pages.application.state.checks
        post(pages, "check", kind="verify", store="a")
        first = held.running
        # It can neither go on nor clear up.
        os.kill(first.pid, signal.SIGSTOP)
        assert os.getpgid(first.pid) == os.getsid(first.pid) == first.pid
        assert os.getpriority(os.PRIO_PROCESS, first.pid) >= 10
        assert [path.name.startswith("rmq-reindex-check-") for path in temporary.iterdir()] == [True]
        for form in ({"kind": "verify", "store": "a"}, {"kind": "preflight", "store": "b"}):
            assert "a verify of store a runs since" in post(pages, "check", 409, **form)
        page, found = pages.both("health", store="b")
        assert (found["running"]["id"], found["running"]["store"], found["running"]["stopping"]) == (first.id, "a", False)
        assert check(page).all("button") == [{}]
        assert "ended" in post(pages, "stop", 404, check="x", store="a")
        assert held.running is first
        assert post(pages, "stop", check=first.id, store="a") == "/health?store=a"
        assert held.wait(PATIENCE)
        assert not is_there(first.pid)
        result = pages.json("health", store="a")["results"]["verify"]
        assert (result["result"], result["error"][:13]) == (None, "stopped after")
        pages.html("health", store="a")
        assert "ended" in post(pages, "stop", 404, check=first.id, store="a")
        # The end of the pages is the end of a check.
        post(pages, "check", kind="preflight", store="b")
        second = held.running
        os.kill(second.pid, signal.SIGSTOP)
        assert "ended" in post(pages, "stop", 404, check=first.id, store="a")
        held.close(0.2)
        assert not is_there(second.pid)
        assert held.running is None
        assert "the pages are being closed" in post(pages, "check", 422, kind="preflight", store="b")
    assert list(temporary.iterdir()) == []


def test_a_stop_amid_the_work(golden_store: Stores, temporary: Path) -> None:
    """The check ends itself, with all of its processes. It may have ended before."""
    with opened(f"a={golden_store('basic-5.3').path}") as pages:
        held = pages.application.state.checks
        post(pages, "check", kind="verify", store="a")
        started = held.running
        while held.running is started and not started.stages:
            started._reader.join(0.05)
        answer = pages.client.post("/stop", data={"check": started.id, "store": "a"}, follow_redirects=False)
        assert answer.status_code in (303, 404)
        assert held.wait(PATIENCE)
        assert not is_there(started.pid)
        told = pages.json("health", store="a")["results"]["verify"]
        assert (told["result"] is None) == started.stopping
    assert list(temporary.iterdir()) == []


def test_a_page_that_loads_itself_again(golden_store: Stores) -> None:
    with opened(f"a={golden_store('basic-5.3').path}") as pages:
        assert "refresh" not in pages.client.get("/health?store=a").headers
        post(pages, "check", kind="preflight", store="a")
        os.kill(pages.application.state.checks.running.pid, signal.SIGSTOP)
        assert pages.client.get("/health?store=a").headers["refresh"] == "2"
        assert '<a autofocus href="/health?store=a&amp;still=1">Keep it still' in pages.client.get("/health?store=a").text
        assert "refresh" not in pages.client.get("/health?store=a&still=1").headers
        assert pages.client.get("/health?store=a").headers["referrer-policy"] == "same-origin"


def test_what_ends_without_a_result(golden_store: Stores, tmp_path: Path) -> None:
    """A check that is killed, and one of a store that is none any more."""
    store = tmp_path / "store"
    shutil.copytree(golden_store("basic-5.3").path, store)
    with opened(store) as pages:
        post(pages, "check", kind="preflight", store="store")
        os.killpg(pages.application.state.checks.running.pid, signal.SIGKILL)
        assert pages.application.state.checks.wait(PATIENCE)
        told = pages.both("health", store="store")[1]["results"]["preflight"]
        assert told["error"].startswith("ended by signal 9, and without a result")
        shutil.rmtree(store)
        told = run(pages, kind="preflight", store="store")
        assert (told["result"]["exit"], told["error"]) == (1, told["result"]["error"])
        assert "is not a folder" in told["error"]
        assert told["error"] in unescape(pages.html("health", store="store"))


@pytest.mark.parametrize(
    ("page", "form", "status", "told"),
    [
        ("check", {"store": "a"}, 400, "kind: is missing"),
        ("check", {"kind": "repair", "store": "a"}, 400, "kind: repair is none: take verify, against, preflight"),
        ("check", {"kind": "verify", "store": "x"}, 404, "was not named"),
        ("check", {"kind": "verify", "store": "/etc"}, 404, "was not named"),
        ("check", {"kind": "verify", "store": "a", "against": "b"}, 400, "against: goes with the kind against"),
        ("check", {"kind": "against", "store": "a"}, 400, "which needs it"),
        ("check", {"kind": "against", "store": "a", "against": "a"}, 400, "name another one of the stores"),
        ("check", {"kind": "against", "store": "a", "against": "/etc"}, 400, "name another one of the stores"),
        ("check", {"kind": "verify", "store": "a", "version": "5.5.0"}, 400, "version: 5.5.0 is none"),
        ("check", {"kind": "preflight", "store": "a", "version": "9 --json"}, 400, "version: 9 --json is none"),
        ("check", {"kind": "verify", "store": "a", "report": "/tmp/x"}, 400, "report: is no field of this page"),
        ("stop", {"store": "a"}, 400, "check: is missing"),
        ("stop", {"check": "x"}, 404, "has ended"),
        ("stop", {"check": "x", "store": "a"}, 404, "has ended"),
    ],
)
def test_wrong_forms(page: str, form: dict[str, str], status: int, told: str, golden_store: Stores) -> None:
    with opened(f"a={golden_store('basic-5.3').path}") as pages:
        assert told in post(pages, page, status, **form)
        answer = pages.client.post(f"/{page}?format=json", data=form)
        assert (answer.status_code, told in answer.json()["error"]) == (status, True)
        assert pages.client.post(f"/{page}", content=b"store=a&store=a&kind=verify").status_code == 400
        assert pages.application.state.checks.running is None


def test_no_question_starts_anything(golden_store: Stores) -> None:
    pages = Pages(f"a={golden_store('basic-5.3').path}")
    for method in ("GET", "HEAD"):
        for page in ("check", "stop"):
            answer = pages.client.request(method, f"/{page}?kind=verify&store=a&check=x")
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    for page in ("health?store=a", "health?store=a&still=1", "health?store=a&kind=verify", "findings"):
        pages.client.get(f"/{page}")
    assert pages.client.get("/health?store=a&kind=verify").status_code == 400
    assert pages.client.post("/health?store=a", data={"kind": "verify", "store": "a"}).status_code == 405
    assert pages.application.state.checks.running is None
    assert pages.application.state.checks._ended == {}


# ------------------------------------------------------------------------------------------------------------------------ guard


@pytest.fixture
def outside(tmp_path: Path) -> TestClient:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    made = Pages(tmp_path / "store").application
    return TestClient(Guard(made, "the-token", 8380), base_url=BASE, follow_redirects=False)


@pytest.fixture
def inside(outside: TestClient) -> TestClient:
    assert outside.get("/?token=the-token").status_code == 303
    return outside


def test_who_may_send_a_form(inside: TestClient) -> None:
    """A wrong form comes to the page, which says what is wrong with it: nobody else does."""
    ours = {"origin": BASE, "content-type": FORM}
    body = "kind=none&store=store"
    assert inside.post("/check", content=body, headers=ours).status_code == 400
    assert inside.post("/stop", content="check=x&store=store", headers=ours).status_code == 404
    assert inside.post("/check", content=body, headers=ours | {"sec-fetch-site": "same-origin"}).status_code == 400
    for origin in (
        "http://evil.example",
        "null",
        "https://127.0.0.1:8380",
        "http://127.0.0.1:3000",
        "http://localhost:8380",
        "",
    ):
        assert inside.post("/check", content=body, headers=ours | {"origin": origin}).status_code == 403, origin
    without = {name: value for name, value in ours.items() if name != "origin"}
    answer = inside.post("/check", content=body, headers=without)
    assert (answer.status_code, answer.text) == (403, "refused: a form says which page it comes from\n")
    for site in ("cross-site", "same-site", "none"):
        headers = ours | {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
        assert inside.post("/check", content=body, headers=headers).status_code == 403, site
    assert inside.post("/check", content=body, headers=ours | {"host": "evil.example"}).status_code == 403
    answer = inside.post("/check", content=body, headers=ours)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


def test_a_form_without_the_cookie(outside: TestClient) -> None:
    ours = {"origin": BASE, "content-type": FORM}
    assert outside.post("/check", content="kind=none&store=store", headers=ours).status_code == 403
    assert outside.post("/check?token=the-token", content="kind=none&store=store", headers=ours).status_code == 403
    bearer = {"authorization": "Bearer the-token", "content-type": FORM}
    assert outside.post("/check", content="kind=none&store=store", headers=bearer).status_code == 400
    assert outside.post("/check", content="kind=none&store=store", headers=bearer | {"origin": BASE}).status_code == 400
    assert outside.post("/check", content="kind=none&store=store", headers=bearer | {"origin": "null"}).status_code == 403
    assert outside.post("/check", content="kind=x", headers=bearer | {"authorization": "Bearer x"}).status_code == 403


def test_what_a_form_is(inside: TestClient) -> None:
    ours = {"origin": BASE, "content-type": FORM}
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", "", f"{FORM}x"):
        assert inside.post("/check", content="kind=x", headers=ours | {"content-type": kind}).status_code == 415, kind
    assert inside.post("/check", content="kind=x", headers=ours | {"content-type": f"{FORM}; charset=UTF-8"}).status_code == 400
    assert inside.post("/check", content="k" * FORM_MAX, headers=ours).status_code == 400
    assert inside.post("/check", content="k" * (FORM_MAX + 1), headers=ours).status_code == 413
    assert inside.post("/check", content=iter([b"kind=x"]), headers=ours).status_code == 413
    assert inside.post("/check", content="x", headers=ours | {"content-length": "+1"}).status_code == 413
    for method in ("PUT", "DELETE", "PATCH"):
        assert inside.request(method, "/check", content="kind=x", headers=ours).status_code == 405
    for page in ("/", "/health", "/check/", "/checks", "/message"):
        assert inside.post(page, content="kind=x", headers=ours).status_code == 405, page
    assert inside.get("/check").status_code == 405


# ------------------------------------------------------------------------------------------------------------------------- JSON


def test_a_result_of_any_length(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    whole = {
        "a": 1,
        "list": [{"k": [k, "]}"]} for k in range(50_000)],
        "b": 'x\\"],',
        "empty": [],
        "c": {"d": [1, 2]},
        "e": -1.5,
    }
    for indent in (None, 1):
        path.write_text(json.dumps(whole, indent=indent))
        found, cut, size = checks.bounded_json(str(path), 1 << 20, 10)
        assert found == whole | {"list": whole["list"][:10]}  # type: ignore[index]
        assert (cut, size < 1000) == ({"list": 50_000}, True)
        found, cut, size = checks.bounded_json(str(path), 10_000, 100_000)
        assert 0 < len(found["list"]) < 1000
        assert (cut, size < 11_000) == ({"list": 50_000}, True)
    assert checks.bounded_json(str(path), 1 << 30, 1 << 30)[:2] == (whole, {})
    path.write_text(" {}\n")
    assert checks.bounded_json(str(path), 1, 1) == ({}, {}, 0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "{ is missing"), ("[]", "{ is missing"), ('{"a": 1', ", is missing"), ('{"a": [1, 2', ", is missing"),
        ('{"a" 1}', ": is missing"), ('{"a": x}', "it is no JSON"), ('{"a": [1 2]}', ", is missing"),
        ('{"a": "' + "x" * 200_000 + '"}', "more than 100,000 bytes"), ('{"a": ' + "[" * 99 + "{" * 99, "no JSON"),
        ('{"a": {"b": ' + "[" * 99_000 + "]" * 99_000 + "}}", "too deeply|more than"),
        ("{" + ", ".join(f'"a{k}": "{"x" * 1000}"' for k in range(200)) + "}", "more than 100,000 bytes beside its lists"),
    ],
)  # fmt: skip
def test_what_is_no_result(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        checks.bounded_json(str(path), 100_000, 10)


def test_a_hostile_store_in_the_checks(tmp_path: Path) -> None:
    """Names of a store, and what a check says of them, are text."""
    store = write_store(tmp_path / "store", [Message("T")], 1 << 16)
    odd = store / "consumequeue" / "<script>\u202e{{7*7}}" / "0"
    odd.mkdir(parents=True)
    shutil.copy(next((store / "consumequeue" / "T" / "0").iterdir()), odd)
    with opened(f"<i>={store}") as pages:
        told = run(pages, kind="verify", store="<i>")
        kinds = {each["kind"]: each for each in told["found"]["findings"]}
        assert "script" in json.dumps(kinds["queue-unit-extra"])
        assert "&lt;script&gt;" in pages.html("health", store="<i>")
        for each in kinds["queue-unit-extra"]["examples"]:
            for link in each["links"]:
                assert pages.client.get(link["href"]).status_code == 200
