"""Suite N without a server: every method on every route, foreign hosts, and tokens in the wrong place, at the gate."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

from faults.tiers import Lost
from stayfast.dashboard.access_policy import AccessPolicy, RequestFilter

TOKEN = "t" * 32
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
RUN = "/api/runs/0123456789abcdef"
ROUTES = {
    "/": "GET",
    "/assets/app.js": "GET",
    "/api/overview": "GET",
    RUN: "GET",
    f"{RUN}/checkpoints": "GET",
    "/api/queues/0123456789abcdef": "GET",
    "/events": "GET",
    "/api/queues/0123456789abcdef/retry": "POST",
    f"{RUN}/verify": "POST",
    "/metrics": "",
    "/assets/../app.py": "",
    "/api/overview/": "",
}
OURS = ("127.0.0.1:8080", "localhost", "[::1]:8080")
FOREIGN = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "0.0.0.0", "127.0.0.2", "[", "")
TOKENS = ("in its header", "in the URL", "in a cookie", "nowhere", "wrong")


def ask(gate: RequestFilter, method: str, path: str, host: str, token: str) -> int:
    """The status of a refusal, or 0 for a request that was let through."""
    headers = [(b"host", host.encode()), (b"content-type", b"application/json")]
    if token in ("in its header", "wrong"):
        headers.append((b"x-stayfast-token", (TOKEN if token != "wrong" else TOKEN[::-1] + "x").encode()))
    if token == "in a cookie":
        headers.append((b"cookie", f"x-stayfast-token={TOKEN}".encode()))
    query = f"token={TOKEN}".encode() if token == "in the URL" else b""
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": query}
    refusal = gate.refusal_for({**scope, "raw_path": path.encode()})
    return 0 if refusal is None else refusal[0]


def expected(method: str, path: str, host: str, token: str) -> tuple[int, ...]:
    """What the answer has to be, from the promise and not from the code."""
    if host not in OURS:
        return (421,)
    if not ROUTES[path]:
        return (403,)
    if method != ROUTES[path]:
        return (405,)
    if token == "in the URL":
        return (403,)
    return (0,) if method == "GET" or token == "in its header" else (403,)


def run(seed: int, seconds: float) -> int:
    """All of them in a seeded order, once at least; how many."""
    gate = RequestFilter(lambda *_: None, AccessPolicy(token=TOKEN))  # type: ignore[arg-type, return-value]
    cases = list(itertools.product(METHODS, ROUTES, OURS + FOREIGN, TOKENS))
    random.Random(seed).shuffle(cases)
    until = time.monotonic() + seconds
    for number, case in enumerate(cases, start=1):
        status = ask(gate, *case)
        if status not in expected(*case):
            raise Lost(f"seed {seed}, request {number}: {case} was answered {status or 'as if it were allowed'}")
        if time.monotonic() > until:
            break
    return len(cases)
