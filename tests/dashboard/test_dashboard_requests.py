"""Who is let in: method × route × host × origin × token, 200 cases and more; everything off the list is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from dashboard_server import SOURCE, Dashboard, row, write_run
from fleet_world import write_kubeconfig

from faults.tiers import account
from stayfast.batch.queue.open_queue import open_queue
from stayfast.dashboard.access_policy import RULES
from stayfast.dashboard.run_view import identify

PAGES = SOURCE / "stayfast" / "dashboard" / "pages"
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
    folder = tmp_path_factory.mktemp("acting")
    away = str(write_kubeconfig(folder, "http://127.0.0.1:9"))
    given = [str(places[0]), "--queue", places[2], "--kubeconfig", away]
    with Dashboard(folder, *given, actions=True) as found:
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
        "/api/fleet": "GET",
        f"/api/runs/{run}": "GET",
        f"/api/runs/{run}/checkpoints": "GET",
        f"/api/queues/{queue}": "GET",
        f"/api/queues/{queue}/retry": "POST",
        f"/api/runs/{run}/verify": "POST",
    }


OTHER_HOSTS = (
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
    " ",
)
ORIGINS: tuple[tuple[list[tuple[str, str]], int], ...] = (
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
)


class Case(NamedTuple):
    """One request, and what may come back."""

    method: str
    path: str
    statuses: tuple[int, ...]
    headers: tuple[tuple[str, str], ...] = ()
    host: str = ""
    body: bytes = b""


def pairs(known: dict[str, str], token: str) -> Iterator[Case]:
    """Every method on every route: one each is on the list (those that change something refuse an empty body)."""
    given = (("X-Stayfast-Token", token), ("Content-Type", "application/json"))
    for (path, allowed), method in itertools.product(known.items(), METHODS):
        yield Case(method, path, (405,) if method != allowed else (200,) if method == "GET" else (400,), given)
    for path, method in itertools.product(OFF_THE_LIST, ("GET", "POST", "DELETE")):
        yield Case(method, path, (400, 403) if path == "/\\" else (403, 405), given)


def strangers(known: dict[str, str], token: str, port: int) -> Iterator[Case]:
    """A name on the internet may point to 127.0.0.1: the browser then sends that name. 400: h11 will not read it."""
    everywhere = [*known.items(), ("/events", "GET"), ("/nothing", "GET")]
    for host, (path, method) in itertools.product(OTHER_HOSTS, everywhere):
        yield Case(method, path, (400, 421), (("X-Stayfast-Token", token),), host.format(port=port))


def visitors(port: int) -> Iterator[Case]:
    """Requests that other pages make, or that say where they come from."""
    for (headers, status), path in itertools.product(ORIGINS, ("/", "/api/overview", "/assets/app.js")):
        yield Case("GET", path, (status,), tuple((name, value.format(port=port)) for name, value in headers))


def tokens(queue: str, token: str) -> Iterator[Case]:
    """Everything that is not the token, in its header, once."""
    path = f"/api/queues/{queue}/retry"
    kinds: dict[str, list[tuple[str, str]]] = {
        "missing": [],
        "wrong": [("X-Stayfast-Token", "A" * len(token))],
        "empty": [("X-Stayfast-Token", "")],
        "short": [("X-Stayfast-Token", token[:-1])],
        "long": [("X-Stayfast-Token", token + "A")],
        "twice": [("X-Stayfast-Token", token), ("X-Stayfast-Token", token)],
        "in-url": [],
        "cookie": [("Cookie", f"x-stayfast-token={token}")],
        "bearer": [("Authorization", f"Bearer {token}")],
    }
    for kind, headers in kinds.items():
        where = f"{path}?token={token}" if kind == "in-url" else path
        yield Case("POST", where, (403,), (*headers, ("Content-Type", "application/json")), body=b'{"keys":null}')


@pytest.mark.faults
def test_the_request_matrix(acting: Dashboard, places: tuple[Path, str, str]) -> None:
    known = routes(places[1], identify(places[2]))
    queue = identify(places[2])
    cases = [*pairs(known, acting.token), *strangers(known, acting.token, acting.port), *visitors(acting.port)]
    cases += tokens(queue, acting.token)
    wrong = []
    for case in cases:
        answer = acting.ask(case.method, case.path, list(case.headers), case.body, case.host)
        if answer.status not in case.statuses:
            wrong.append((case, answer.status))
        elif answer.status == 405 and case.path in known and answer.headers["allow"] != known[case.path]:
            wrong.append((case, answer.headers))
        assert acting.token.encode() not in answer.body
    assert wrong == []
    account("N", len(set(cases)))


def test_every_rule_has_a_route_in_the_matrix(places: tuple[Path, str, str]) -> None:
    known = routes(places[1], identify(places[2]))
    for rule in RULES:
        if rule.path.pattern != "/events":
            assert any(rule.path.fullmatch(path) and rule.method == method for path, method in known.items()), rule


def test_no_host_two_hosts(acting: Dashboard) -> None:
    assert acting.ask("GET", "/", host="-").status in (400, 421)
    assert acting.ask("GET", "/", [("Host", "evil.example")]).status in (400, 421)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:{port}", "[::1]:{port}", "127.0.0.1:9000"])
def test_loopback_under_any_of_its_names(reading: Dashboard, host: str) -> None:
    """Another port is fine: that is what ssh -L looks like."""
    assert reading.ask("GET", "/api/overview", host=host.format(port=reading.port)).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_of_another_page_cannot_post(acting: Dashboard, places: tuple[Path, str, str], kind: str) -> None:
    headers = [("X-Stayfast-Token", acting.token), *([("Content-Type", kind)] if kind else [])]
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
    headers = [("X-Stayfast-Token", acting.token), ("Content-Type", "application/json")]
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
    names = [path.name for path in PAGES.iterdir() if path.suffix in (".js", ".css")]
    assert len(names) >= 9
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
