"""What a replay makes of answers that no real proxy gives on demand: nothing is sent twice in silence, and it gets on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_reindex.jobs.replaying import run as replaying_run, sending
from rocketmq_reindex.jobs.replaying.journal import Journal
from rocketmq_reindex.jobs.replaying.options import FAILURES_MAX, Credentials, ReplayResult, replay_settings
from rocketmq_reindex.jobs.replaying.sending import Answer
from rocketmq_reindex.jobs.replaying.sources import Outgoing, flaw
from rocketmq_reindex.storage_format.errors import InputError


class Answering:
    """Answers as it is told, where a proxy would."""

    def __init__(self, answer: Callable[[Outgoing], Answer], route: frozenset[int] | str = frozenset({1})) -> None:
        self.sent = list[str]()
        self._answer, self._route = answer, route

    def types_of(self, _topic: str) -> frozenset[int] | str:
        return self._route

    def send(self, message: Outgoing, _kind: int, done: Callable[[Answer], None]) -> None:
        self.sent.append(message.id)
        done(self._answer(message))


def stored(message: Outgoing) -> Answer:
    return Answer("sent", message.id)


def row(number: int, **changed: Any) -> dict[str, Any]:
    known = {
        "topic": "A", "queueId": 0, "consumeQueueOffset": number, "realTopic": "A", "realQueueId": 0, "deliverTimestamp": None,
        "storeTimestamp": 5, "storeHost": "h:1", "bornTimestamp": 4, "uniqKey": None, "keys": None, "tags": None,
        "batchSize": 1, "sysFlag": 0, "commitLogOffset": 100 * number, "properties": [], "bodyCompression": None, "body": b"x",
        "kind": "message",
    }  # fmt: skip
    return known | changed


def run(rows: list[dict[str, Any]], proxy: Any, journal: Path, **given: Any) -> ReplayResult:
    settings = replay_settings({"store": "/x", "to": "h:1", "journal": str(journal), **given})
    result, opened = ReplayResult(), Journal(str(journal), {"log": 1})
    sender = replaying_run.Sender(settings, result, opened, proxy)
    try:
        for each in rows:
            sender._offer(each)
        sender.finish()
    except InputError:
        sender.abandon()
    finally:
        sender.close()
        opened.close()
    return result


@pytest.mark.parametrize("refusal", ["route", "busy", "refused"])
def test_a_doubtful_message_that_is_refused_stays_doubtful(
    refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been stored the first time: no run sends it but one with --resend-doubtful."""
    monkeypatch.setattr(replaying_run, "_PAUSE", 0.001)
    monkeypatch.setattr(replaying_run, "_TRIES", 3)
    journal = tmp_path / "j"
    assert run([row(0)], Answering(lambda _: Answer("unknown", "UNAVAILABLE: cut")), journal).doubtful == 1
    refusing: Any = Answering(stored, "TOPIC_NOT_FOUND: A")
    if refusal != "route":
        refusing = Answering(lambda _: Answer(refusal, "TOO_MANY_REQUESTS"))
    again = run([row(0)], refusing, journal, resend_doubtful=True)
    assert (again.sent, again.refused, again.doubtful) == (0, 0, 1)
    plain = Answering(stored)
    assert run([row(0)], plain, journal).doubtful == 1
    assert plain.sent == [], "not in silence"
    assert run([row(0)], plain, journal, resend_doubtful=True).sent == 1
    last = run([row(0)], plain, journal)
    assert (last.sent_before, last.doubtful, len(plain.sent)) == (1, 0, 1)


def test_refused_messages_do_not_keep_those_behind_them(tmp_path: Path) -> None:
    rows = [row(number, bodyCompression="zlib") for number in range(FAILURES_MAX + 500)] + [row(9999)]
    proxy = Answering(stored)
    assert run(rows, proxy, tmp_path / "j").sent == 0
    second = run(rows, proxy, tmp_path / "j")
    assert (second.sent, second.refused) == (1, FAILURES_MAX + 500)
    settings, counted = replay_settings({"store": "/x", "dry_run": True}), ReplayResult()
    dry = replaying_run.Sender(settings, counted, Journal("", {}, write=False), None)
    for each in rows:
        dry._offer(each)
    dry.finish()
    assert (counted.sent, counted.refused) == (1, FAILURES_MAX + 500), "a dry run counts all"


def test_a_busy_proxy_leaves_no_doubt(tmp_path: Path) -> None:
    """The run ends while a message waits to be sent once more: it is not stored, for sure."""
    settings = replay_settings({"store": "/x", "to": "h:1", "journal": str(tmp_path / "j")})
    journal = Journal(str(tmp_path / "j"), {"log": 1})
    proxy: Any = Answering(lambda _: Answer("busy", "TOO_MANY_REQUESTS"))
    sender = replaying_run.Sender(settings, ReplayResult(), journal, proxy)
    sender._offer(row(0))
    sender._turn()
    sender.abandon()
    sender.close()
    journal.close()
    assert run([row(0)], Answering(stored), tmp_path / "j").sent == 1


def test_a_batch_of_one_message_is_a_batch() -> None:
    assert "batch" in flaw(row(0, sysFlag=0xC0))
    assert flaw(row(0)) == ""


def test_a_choice_that_is_too_long_for_a_journal(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the choice is too long to be kept in it"):
        Journal(str(tmp_path / "j"), {"keys": ["x" * 100] * 20_000})


@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\x01b", "a\tb"])
def test_an_access_key_that_no_header_takes(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told before a proxy is asked, which would be blamed; the key itself is not shown."""
    monkeypatch.setenv("RMQ_REINDEX_ACCESS_KEY", key)
    monkeypatch.setenv("RMQ_REINDEX_SECRET_KEY", "gehei\u00dfm")
    given = {"store": "/x", "to": "h:1", "journal": str(tmp_path / "j")}
    with pytest.raises(InputError, match=r"^RMQ_REINDEX_ACCESS_KEY: has a character that is no printable ASCII one") as error:
        replay_settings(given).keys()
    assert key not in str(error.value)
    (tmp_path / "keys").write_text(f"accessKey={key}\nsecretKey=s\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^--credentials .*/keys: accessKey: has a character"):
        replay_settings({**given, "credentials": str(tmp_path / "keys")}).keys()
    monkeypatch.setenv("RMQ_REINDEX_ACCESS_KEY", "plain")
    assert replay_settings(given).keys().secret_key == "gehei\u00dfm"


class Heard:
    """Stands where gRPC's calls are, and keeps which thread made each."""

    def __init__(self, api: Any) -> None:
        self._api, self.threads = api, list[threading.Thread]()
        self.SendMessage = self

    def QueryRoute(self, *_: object, **__: object) -> Any:
        self.threads.append(threading.current_thread())
        return SimpleNamespace(status=SimpleNamespace(code=self._api.Code.Value("OK")), message_queues=[])

    def future(self, *_: object, **__: object) -> Any:
        self.threads.append(threading.current_thread())
        return self

    def add_done_callback(self, _: object) -> None:
        self.threads.append(threading.current_thread())


def test_no_call_is_made_where_an_interrupt_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is raised inside of gRPC leaves a lock held, and the run waits for it for ever."""
    grpc, api = sending._client()
    heard = Heard(api)
    monkeypatch.setattr(sending, "_client", lambda: (grpc, api))
    monkeypatch.setattr(api, "MessagingServiceStub", lambda _: heard)
    with sending.Proxy("127.0.0.1:1", Credentials(), tls=False) as proxy:
        proxy.types_of("T")
        sent = Outgoing("T", "id", b"", None, None, {}, None, None, 0, ("T", 0))
        proxy.send(sent, 1, lambda _: None)
    assert len(heard.threads) == 4
    assert threading.main_thread() not in heard.threads
