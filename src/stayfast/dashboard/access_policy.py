"""The gate in front of every request: what is not on the list is refused.

The list is (method, path). Every other pair is refused, whatever a later version of the framework would do with it; so
is every request for another host (a page on the internet can make its own name point to 127.0.0.1), from another
origin, or with anything odd in its path. What changes something also needs the token, in a header: a browser sends no
such header across origins without asking first, and we never answer that question.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_HEADER = "x-stayfast-token"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?)(?::([0-9]{1,5}))?")

CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"manifest-src 'none'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class AllowedRequest(NamedTuple):
    """One pair that is let through, and what answers it."""

    method: str
    path: re.Pattern[str]
    route: str
    """The path as the framework writes it, with the names of its parts."""
    handler: str
    """Of ``Handlers``."""
    changes: bool = False
    query: re.Pattern[str] = re.compile("")


_PARTS = {"{id}": "[0-9a-f]{16}", "{name}": r"[a-z-]{1,30}\.(?:css|js|svg)"}


def _rule(method: str, route: str, handler: str, *, changes: bool = False, query: str = "") -> AllowedRequest:
    pattern = re.sub(r"\{[a-z]+\}", lambda part: _PARTS[part[0]], route)
    return AllowedRequest(method, re.compile(pattern), route, handler, changes, re.compile(query))


RULES = (
    _rule("GET", "/", "page"),
    _rule("GET", "/assets/{name}", "page"),
    _rule("GET", "/api/overview", "overview"),
    _rule("GET", "/api/runs/{id}", "run"),
    _rule("GET", "/api/runs/{id}/checkpoints", "checkpoints", query=r"(?:offset=[0-9]{1,7})?"),
    _rule("GET", "/api/queues/{id}", "queue"),
    _rule("GET", "/api/fleet", "fleet"),
    _rule("GET", "/events", "events"),
    _rule("POST", "/api/queues/{id}/retry", "retry", changes=True),
    _rule("POST", "/api/runs/{id}/verify", "verify", changes=True),
)
"""One row per request: it is the permission and the route at once, so that neither is there without the other."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who may come in."""

    hosts: tuple[str, ...] = LOOPBACK
    token: str | None = None
    """None: read-only, and nothing that changes anything is let through."""


class RequestFilter:
    """ASGI in, ASGI out."""

    def __init__(self, app: App, door: AccessPolicy) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through, or answer with a refusal."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket: nothing here speaks it
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                names = {name.lower() for name, _ in given}
                if b"cache-control" not in names:
                    given.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*given, *HEADERS]}
            await send(message)

        refusal = self.refusal_for(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        status, why, allow = refusal
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        if allow:
            headers.append((b"allow", ", ".join(allow).encode()))
        await send_with_headers({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": (why + "\n").encode()})

    def refusal_for(self, scope: Scope) -> tuple[int, str, list[str]] | None:
        """Status, sentence and allowed methods of a refusal; None lets it through."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        host = self._host(headers.get("host", []))
        if host is None:
            return 421, "this server does not answer for that host", []
        if self._is_foreign(headers, host):
            return 403, "requests from other pages are refused", []
        path = scope["path"]
        raw = scope.get("raw_path") or path.encode("utf-8", "replace")
        fitting = [rule for rule in RULES if rule.path.fullmatch(path)]
        if not fitting or raw.partition(b"?")[0] != path.encode("utf-8", "surrogatepass"):
            return 403, "there is nothing here by that name", []
        rule = next((item for item in fitting if item.method == scope["method"]), None)
        if rule is None:
            return 405, "that is not allowed here", sorted({item.method for item in fitting})
        if not rule.query.fullmatch(scope.get("query_string", b"").decode("latin-1")):
            return 403, "that query is not understood", []
        return self._check_token(headers) if rule.changes else None

    def _host(self, given: list[str]) -> str | None:
        """The host, with its port, if it is one of ours."""
        if len(given) != 1:
            return None
        match = _HOST.fullmatch(given[0].lower())
        if match is None or match[1] not in self._door.hosts or int(match[2] or 0) > 65535:
            return None
        return given[0].lower()

    def _is_foreign(self, headers: dict[str, list[str]], host: str) -> bool:
        origins = headers.get("origin", [])
        if any(origin.lower() not in (f"http://{host}", f"https://{host}") for origin in origins):
            return True
        sites = headers.get("sec-fetch-site", [])
        if all(site in ("same-origin", "none") for site in sites):
            return False
        # Following a link to the page is fine; anything that another page asks for by itself is not.
        return headers.get("sec-fetch-mode") != ["navigate"] or headers.get("sec-fetch-dest") != ["document"]

    def _check_token(self, headers: dict[str, list[str]]) -> tuple[int, str, list[str]] | None:
        if self._door.token is None:
            return 403, "this dashboard is read-only; start it with --allow-actions", []
        given = headers.get(TOKEN_HEADER, [])
        if len(given) != 1 or not hmac.compare_digest(given[0].encode("latin-1"), self._door.token.encode()):
            return 403, "the token is missing or wrong; it stands in the terminal of the dashboard", []
        if headers.get("content-type") != ["application/json"]:
            return 403, "send application/json", []
        return None
