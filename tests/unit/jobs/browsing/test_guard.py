"""Who gets the pages of ``browse``, and with what headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.browsing.guard import HEADERS, TARGET_MAX, Guard
from rocketmq_reindex.jobs.browsing.options import browse_settings
from rocketmq_reindex.jobs.browsing.pages import application
from tests.tools.browsing import TestClient as TestClient

TOKEN = "the-token"
BASE = "http://127.0.0.1:8380"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A browser that has never been here."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    pages = application(browse_settings({"stores": [str(tmp_path / "store")]}))
    return TestClient(Guard(pages, TOKEN, 8380), base_url=BASE, follow_redirects=False)


@pytest.fixture
def inside(client: TestClient) -> TestClient:
    """One that has opened the address."""
    assert client.get(f"/?token={TOKEN}").status_code == 303
    return client


def test_the_token_gives_a_cookie_and_leaves_the_address(client: TestClient) -> None:
    assert client.get("/").status_code == 403
    answer = client.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("rmq-reindex-8380=")
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert client.get("/").status_code == 200
    assert client.get("/style.css").status_code == 200


@pytest.mark.parametrize(
    "query", ["token=", "token=x", "token=the-token&token=the-token", "token=the-toke%C3%A9", "tok=the-token"]
)
def test_wrong_tokens(query: str, client: TestClient) -> None:
    answer = client.get(f"/?{query}")
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert client.get(f"/store?{query}").status_code == 403


@pytest.mark.parametrize("path", ["/", "/store?store=store", "/body?store=store&physical=0", "/style.css", "/nowhere"])
def test_without_the_cookie_nothing_is_told(path: str, client: TestClient) -> None:
    answer = client.get(path)
    assert answer.status_code == 403
    assert answer.text == "refused: open the address that rmq-reindex browse has printed: it has the token\n"
    assert client.get(path, headers={"cookie": "rmq-reindex-8380=x"}).status_code == 403
    assert client.get(path, headers={"authorization": "Bearer x"}).status_code == 403


def test_a_program_gives_the_token_itself(client: TestClient) -> None:
    answer = client.get("/?format=json", headers={"authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.json()["stores"][0]["store"]) == (200, "store")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8380", "127.0.0.1.evil.example", "127.0.0.2:8380", "0.0.0.0:8380", "", "localhost:8380:1",
        "user@127.0.0.1:8380",
    ],
)  # fmt: skip
def test_hosts_of_a_rebound_name(host: str, inside: TestClient) -> None:
    assert inside.get("/", headers={"host": host}).status_code == 403
    assert inside.get(f"/?token={TOKEN}", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "localhost:8380", "LOCALHOST", "[::1]:8380"])
def test_hosts_of_this_machine(host: str, client: TestClient) -> None:
    assert client.get("/", headers={"host": host, "authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_other_origins(inside: TestClient) -> None:
    assert inside.get("/", headers={"origin": BASE}).status_code == 200
    for origin in ("http://evil.example", "null", "https://127.0.0.1:8380", "http://127.0.0.1:3000", ""):
        assert inside.get("/", headers={"origin": origin}).status_code == 403, origin
    assert inside.get("/", headers=[("origin", BASE), ("origin", "http://evil.example")]).status_code == 403
    assert inside.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}).status_code == 403
    assert inside.get("/", headers={"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}).status_code == 403
    assert inside.get("/", headers={"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "whatever"])
def test_links_elsewhere_lead_in_with_the_token_alone(site: str, inside: TestClient) -> None:
    """A browser that has the cookie is not sent to a page that takes long."""
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    for path in ("/", "/store?store=store", "/search?topic=T&key=k", f"/store?token={TOKEN}", "/?x_token=1"):
        assert inside.get(path, headers=link).status_code == 403, path
    assert inside.get("/?token=x", headers=link).status_code == 403
    assert inside.get(f"/?token={TOKEN}", headers=link | {"sec-fetch-mode": "no-cors"}).status_code == 403
    # A redirect would be this site's navigation still, to which the browser adds no cookie.
    answer = inside.get(f"/?token={TOKEN}", headers=link)
    assert (answer.status_code, answer.headers["refresh"]) == (200, "0; url=/")
    assert answer.headers["set-cookie"].startswith("rmq-reindex-8380=")
    assert 'href="/"' in answer.text
    assert TOKEN not in answer.text
    for own in ("same-origin", "none"):
        assert inside.get("/", headers=link | {"sec-fetch-site": own}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_get_and_head(method: str, inside: TestClient) -> None:
    answer = inside.request(method, "/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert inside.head("/").status_code == 200


def test_sizes(inside: TestClient) -> None:
    assert inside.get("/search?key=" + "k" * TARGET_MAX).status_code == 414
    assert inside.request("GET", "/", content=b"x").status_code == 413
    assert inside.request("GET", "/", headers={"transfer-encoding": "chunked"}, content=iter([b"x"])).status_code == 413


def test_every_answer_has_the_headers(inside: TestClient) -> None:
    answers = [
        inside.get("/"), inside.get("/?format=json"), inside.get("/style.css"), inside.get("/nowhere"), inside.post("/"),
        inside.get("/store"), inside.get("/", headers={"host": "evil.example"}), inside.get(f"/?token={TOKEN}"),
    ]  # fmt: skip
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, answer.url
        assert "access-control-allow-origin" not in answer.headers
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert inside.get("/body?store=store&physical=0").status_code == 422


def test_no_socket_and_no_lifespan(inside: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), inside.websocket_connect("/"):
        pass
