"""Who is let in: method × route × host × origin × token, 200 cases and more; everything off the list is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_server import Dashboard, row, write_run

from faults.tiers import account
from holdfast.dashboard.gate import RULES
from holdfast.dashboard.runs import identify
from holdfast.queue.open import open_queue

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
OFF_THE_LIST = (
    "/api",
    "/api/",
    "/api/runs",
    "/api/overview/",
    "//api/overview",
    "/API/overview",
    "/api/%6fverview",
    "/assets/../app.py",
    "/assets/%2e%2e/app.py",
    "/assets/index.html",
    "/assets/app.js/",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/api/runs/0000000000000000/delete",
    "/api/queues/zzzzzzzzzzzzzzzz",
    "/api/overview?x=1",
    "/events?token=abc",
    "/\\",
    "/api/runs/0000000000000000/checkpoints?offset=-1",
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    folder = tmp_path_factory.mktemp("places")
    run = write_run(folder / "run", row(1))
    queue = f"sqlite://{folder}/work.db?queue=q"
    opened = open_queue(queue)
    opened.enqueue([("a", '{"x":1}')])
    opened.close()
    return folder, identify(run), queue


@pytest.fixture(scope="module")
def reading(places: tuple[Path, str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with Dashboard(tmp_path_factory.mktemp("reading"), str(places[0]), "--queue", places[2]) as found:
        found.get("/api/overview")
        yield found


@pytest.fixture(scope="module")
def acting(places: tuple[Path, str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with Dashboard(tmp_path_factory.mktemp("acting"), str(places[0]), "--queue", places[2], actions=True) as found:
        found.get("/api/overview")
        yield found


def routes(run: str, queue: str) -> dict[str, str]:
    """Every route, and the one method that it takes."""
    return {
        "/": "GET",
        "/assets/app.js": "GET",
        "/assets/style.css": "GET",
        "/assets/icon.svg": "GET",
        "/api/overview": "GET",
        f"/api/runs/{run}": "GET",
        f"/api/runs/{run}/checkpoints": "GET",
        f"/api/queues/{queue}": "GET",
        f"/api/queues/{queue}/retry": "POST",
        f"/api/runs/{run}/verify": "POST",
    }


def test_every_pair_of_method_and_route(acting: Dashboard, places: tuple[Path, str, str]) -> None:
    """100 pairs; the ten on the list answer (the changing ones refuse an empty body), ninety are refused."""
    count = 0
    for (path, allowed), method in itertools.product(routes(places[1], identify(places[2])).items(), METHODS):
        headers = [("X-Holdfast-Token", acting.token), ("Content-Type", "application/json")]
        answer = acting.ask(method, path, headers)
        count += 1
        if method == allowed:
            assert answer.status == (200 if method == "GET" else 400), (method, path, answer)
        else:
            assert answer.status == 405, (method, path, answer)
            assert answer.headers["allow"] == allowed
    assert count == 100


def test_every_rule_has_a_route_in_the_matrix(places: tuple[Path, str, str]) -> None:
    known = routes(places[1], identify(places[2]))
    for rule in RULES:
        if rule.path.pattern != "/events":
            assert any(rule.path.fullmatch(path) and rule.method == method for path, method in known.items()), rule


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_what_is_not_on_the_list(acting: Dashboard, method: str) -> None:
    for path in OFF_THE_LIST:
        answer = acting.ask(method, path, [("X-Holdfast-Token", acting.token), ("Content-Type", "application/json")])
        assert answer.status in (400, 403, 405), (method, path, answer)
        assert answer.status != 400 or path == "/\\"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "[::1",
        "[::1]evil",
        "[",
        "127.0.0.1:99999",
        "127.0.0.1:port",
        "127.0.0.2",
        "0.0.0.0",
        "localhost.",
        "2130706433",
        "127.1",
        "ſocalhost",
        "",
    ],
)
def test_another_host_is_refused_everywhere(acting: Dashboard, places: tuple[Path, str, str], host: str) -> None:
    """A name on the internet may point to 127.0.0.1: the browser then sends that name."""
    name = host.format(port=acting.port) or " "
    for path, method in [*routes(places[1], identify(places[2])).items(), ("/events", "GET"), ("/nothing", "GET")]:
        answer = acting.ask(method, path, [("X-Holdfast-Token", acting.token)], host=name)
        assert answer.status in (400, 421), (name, path, answer)  # 400: h11 itself will not read such a header


def test_no_host_two_hosts(acting: Dashboard) -> None:
    assert acting.ask("GET", "/", host="-").status in (400, 421)
    assert acting.ask("GET", "/", [("Host", "evil.example")]).status in (400, 421)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:{port}", "[::1]:{port}", "127.0.0.1:9000"])
def test_loopback_under_any_of_its_names(reading: Dashboard, host: str) -> None:
    """Another port is fine: that is what ssh -L looks like."""
    assert reading.ask("GET", "/api/overview", host=host.format(port=reading.port)).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Origin", "http://127.0.0.1:{port}")], 200),
        ([("Origin", "http://evil.example")], 403),
        ([("Origin", "null")], 403),
        ([("Origin", "http://127.0.0.1:{port}"), ("Origin", "http://evil.example")], 403),
        ([("Origin", "http://127.0.0.1:1")], 403),
        ([("Sec-Fetch-Site", "cross-site")], 403),
        ([("Sec-Fetch-Site", "same-site")], 403),
        ([("Sec-Fetch-Site", "same-origin")], 200),
        ([("Sec-Fetch-Site", "none")], 200),
        ([("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")], 200),
        ([("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")], 403),
        ([("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "script")], 403),
    ],
)
def test_requests_from_other_pages(reading: Dashboard, headers: list[tuple[str, str]], status: int) -> None:
    given = [(name, value.format(port=reading.port)) for name, value in headers]
    for path in ("/", "/api/overview", "/assets/app.js"):
        assert reading.ask("GET", path, given).status == status, path


@pytest.mark.parametrize("kind", ["missing", "wrong", "empty", "short", "long", "twice", "in-url", "cookie", "bearer"])
def test_without_the_token_nothing_changes(acting: Dashboard, places: tuple[Path, str, str], kind: str) -> None:
    path = f"/api/queues/{identify(places[2])}/retry"
    token = acting.token
    headers = {
        "missing": [],
        "wrong": [("X-Holdfast-Token", "A" * len(token))],
        "empty": [("X-Holdfast-Token", "")],
        "short": [("X-Holdfast-Token", token[:-1])],
        "long": [("X-Holdfast-Token", token + "A")],
        "twice": [("X-Holdfast-Token", token), ("X-Holdfast-Token", token)],
        "in-url": [],
        "cookie": [("Cookie", f"x-holdfast-token={token}")],
        "bearer": [("Authorization", f"Bearer {token}")],
    }[kind]
    if kind == "in-url":
        path += f"?token={token}"
    answer = acting.ask("POST", path, [*headers, ("Content-Type", "application/json")], b'{"keys":null}')
    assert answer.status == 403
    assert token.encode() not in answer.body


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_of_another_page_cannot_post(acting: Dashboard, places: tuple[Path, str, str], kind: str) -> None:
    headers = [("X-Holdfast-Token", acting.token), *([("Content-Type", kind)] if kind else [])]
    answer = acting.ask("POST", f"/api/queues/{identify(places[2])}/retry", headers, b'{"keys":null}')
    assert answer.status == 403


def test_read_only_by_default(reading: Dashboard, places: tuple[Path, str, str]) -> None:
    for path in (f"/api/queues/{identify(places[2])}/retry", f"/api/runs/{places[1]}/verify"):
        for token in ("", "None", "null", "A" * 22):
            answer = reading.post(path, {"keys": None}, token=token)
            assert answer.status == 403
            assert b"read-only" in answer.body
    assert reading.get("/api/overview")["actions"] is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"keys":1}',
        b'{"keys":[1]}',
        b'{"keys":null,"more":1}',
        b"[" * 100_000,
        b'{"keys":["' + b"a" * 300_000 + b'"]}',
        b"\xff\xfe",
    ],
)
def test_a_body_that_means_nothing(acting: Dashboard, places: tuple[Path, str, str], body: bytes) -> None:
    headers = [("X-Holdfast-Token", acting.token), ("Content-Type", "application/json")]
    assert acting.ask("POST", f"/api/queues/{identify(places[2])}/retry", headers, body).status == 400


def test_unknown_runs_and_queues_are_not_there(acting: Dashboard) -> None:
    for path in (
        "/api/runs/0123456789abcdef",
        "/api/queues/0123456789abcdef",
        "/api/runs/0123456789abcdef/checkpoints",
    ):
        assert acting.ask("GET", path).status == 404
    assert acting.post("/api/queues/0123456789abcdef/retry", {"keys": None}).status == 404
    assert acting.post("/api/runs/0123456789abcdef/verify", {"name": "x"}).status == 404


def test_every_answer_carries_the_headers(acting: Dashboard, places: tuple[Path, str, str]) -> None:
    cases = [("GET", "/", 200), ("GET", "/assets/app.js", 200), ("GET", "/api/overview", 200), ("GET", "/none", 403)]
    cases += [("DELETE", "/", 405), ("GET", "/api/runs/0123456789abcdef", 404)]
    for method, path, status in cases:
        answer = acting.ask(method, path)
        assert answer.status == status
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        for part in ("default-src 'none'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert part in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
        assert "set-cookie" not in answer.headers


def test_a_websocket_is_refused(acting: Dashboard) -> None:
    headers = [
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ]
    answer = acting.ask("GET", "/events/ws", [*headers])
    assert answer.status in (400, 403)


def test_the_token_is_nowhere_but_in_its_file(acting: Dashboard, places: tuple[Path, str, str]) -> None:
    acting.post(f"/api/queues/{identify(places[2])}/retry", {"keys": ["nobody"]})
    assert acting.token not in acting.log.read_text()
    assert acting.token.encode() not in acting.ask("GET", "/").body + acting.ask("GET", "/api/overview").body
    assert len(acting.token) >= 22  # 128 bits in base 64


def test_pages_hold_no_inline_script_or_style_and_nothing_from_elsewhere(acting: Dashboard) -> None:
    text = acting.ask("GET", "/").body.decode()
    assert "<style" not in text
    assert " style=" not in text
    assert "onclick" not in text
    assert "<script>" not in text
    names = ("app.js", "dom.js", "charts.js", "overview.js", "run.js", "queue.js", "actions.js", "style.css")
    for name in names:
        code = acting.ask("GET", f"/assets/{name}").body.decode()
        assert "innerHTML" not in code
        assert "insertAdjacentHTML" not in code
        assert "https://" not in code
        assert "http://" not in code.replace("http://www.w3.org/2000/svg", "")


def test_an_unchanged_file_is_not_sent_again(acting: Dashboard) -> None:
    first = acting.ask("GET", "/assets/app.js")
    again = acting.ask("GET", "/assets/app.js", [("If-None-Match", first.headers["etag"])])
    assert again.status == 304
    assert again.body == b""


def test_a_slow_or_broken_client_disturbs_nobody(acting: Dashboard) -> None:
    import socket

    hanging = [socket.create_connection(("127.0.0.1", acting.port)) for _ in range(20)]
    for number, connection in enumerate(hanging):
        connection.sendall(b"GET / HT" if number % 2 else b"\x16\x03\x01\x00\xff\x00garbage\r\n\r\n")
    assert json.loads(acting.ask("GET", "/api/overview").body)["runs"]
    for connection in hanging:
        connection.close()


@pytest.mark.faults
def test_enough_was_asked(request: pytest.FixtureRequest) -> None:
    """Suite N counts what the tests of this file have asked before."""
    if len(request.session.items) < 20:
        pytest.skip("only some of this file's tests were run")
    account("N", Dashboard.asked)
