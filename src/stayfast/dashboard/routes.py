"""The routes behind the gate: pages, JSON, the event stream, and the two things that can be done."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from stayfast.dashboard.access_policy import RULES, AccessPolicy, App, RequestFilter
from stayfast.dashboard.event_stream import EventStream
from stayfast.dashboard.fleet_cache import FleetCache
from stayfast.dashboard.run_cache import RunCache, to_json
from stayfast.dashboard.thread_pool import DaemonThreadPool
from stayfast.errors import StayfastError
from stayfast.extras import check_dashboard

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger("stayfast.dashboard")

_MOST_BYTES = 256 << 10
_MOST_DRAINED = 8 << 20
_ANSWERING = 32
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def load_pages() -> dict[str, tuple[bytes, str, str]]:
    """Content, type and tag of every file that is served; nothing else can be asked for."""
    found = {}
    for item in files("stayfast.dashboard").joinpath("pages").iterdir():
        kind = _TYPES.get(item.name.rpartition(".")[2])
        if kind is not None:
            data = item.read_bytes()
            found[item.name] = (data, f"{kind}; charset=utf-8", f'"{hashlib.sha256(data).hexdigest()[:20]}"')
    return found


def make_app(
    watch: RunCache,
    door: AccessPolicy,
    stream: EventStream,
    ready: Callable[[], None] = lambda: None,
    *,
    lookout: FleetCache | None = None,
) -> App:
    """The whole server as one ASGI application; ``ready`` is called when it starts to answer."""
    check_dashboard()
    from starlette.applications import Starlette
    from starlette.routing import Route

    desk = Handlers(watch, door, stream, lookout)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        first = asyncio.create_task(desk.stream.look())  # so that the first page finds everything read
        ready()
        yield
        await asyncio.gather(first, return_exceptions=True)
        await desk.stream.close()
        watch.close()
        if lookout is not None:
            lookout.close()

    routes = [Route(rule.route, getattr(desk, rule.handler), methods=[rule.method]) for rule in RULES]
    return RequestFilter(Starlette(routes=routes, lifespan=lifespan), door)


class Handlers:
    """Answers what the gate lets through."""

    def __init__(self, watch: RunCache, door: AccessPolicy, stream: EventStream, lookout: FleetCache | None) -> None:
        self._watch, self._door, self._lookout = watch, door, lookout
        self.stream = stream
        self._pages = load_pages()
        self._threads = DaemonThreadPool(_ANSWERING, "stayfast-answer")

    async def page(self, request: Request) -> Response:
        from starlette.responses import Response

        found = self._pages.get(request.path_params.get("name", "index.html"))
        if found is None:
            return _error(404, "there is no such file")
        data, kind, tag = found
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers | {"content-type": kind})

    async def overview(self, _: Request) -> Response:
        await self.stream.look()
        more = {"actions": self._door.token is not None, "fleet": self._lookout is not None}
        return await self._tell(lambda: {**self._watch.overview(), **more})

    async def run(self, request: Request) -> Response:
        return await self._tell(lambda: self._watch.run(request.path_params["id"]))

    async def checkpoints(self, request: Request) -> Response:
        offset = int(request.query_params.get("offset", "0"))
        return await self._tell(lambda: self._watch.checkpoints(request.path_params["id"], offset))

    async def queue(self, request: Request) -> Response:
        return await self._tell(lambda: self._watch.queue(request.path_params["id"]))

    async def fleet(self, _: Request) -> Response:
        from starlette.responses import Response

        if self._lookout is None:
            return _error(404, "no cluster was named; start the dashboard with --cluster")
        return Response(to_json(await self._lookout.latest()), media_type="application/json")

    async def retry(self, request: Request) -> Response:
        asked = await _body(request)
        keys = asked.get("keys") if asked is not None else None
        if asked is None or set(asked) != {"keys"} or not (keys is None or _is_texts(keys)):
            return _error(400, 'send {"keys": null} for all, or {"keys": ["a", "b"]}')
        identity = request.path_params["id"]

        def act() -> dict[str, Any] | None:
            count = self._watch.retry(identity, keys)
            return None if count is None else {"retried": count}

        answer = await self._tell(act)
        _log_action(
            request, "retry", queue=identity, keys="all" if keys is None else len(keys), status=answer.status_code
        )
        return answer

    async def verify(self, request: Request) -> Response:
        asked = await _body(request)
        if asked is None or set(asked) != {"name"} or not isinstance(asked["name"], str):
            return _error(400, 'send {"name": "000000000100-000001"}')
        identity = request.path_params["id"]
        answer = await self._tell(lambda: {"begun": True} if self._watch.verify(identity, asked["name"]) else None)
        _log_action(request, "verify", run=identity, status=answer.status_code)
        return answer

    async def events(self, _: Request) -> Response:
        from starlette.responses import StreamingResponse

        if self.stream.full:
            return _error(503, "too many viewers")
        return StreamingResponse(self.stream.events(), media_type="text/event-stream")

    async def _tell(self, ask: Callable[[], dict[str, Any] | None]) -> Response:
        """JSON from a thread; an error of a store or queue is one sentence, never a traceback."""
        from starlette.responses import Response

        try:
            answer = await asyncio.wrap_future(self._threads.submit(lambda: (found := ask()) and to_json(found)))
        except StayfastError as error:
            return _error(502, str(error))
        if answer is None:
            return _error(404, "there is no such run or queue")
        return Response(answer, media_type="application/json")


async def _body(request: Request) -> dict[str, Any] | None:
    data, size = b"", 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MOST_DRAINED:
            return None
        if size <= _MOST_BYTES:  # the rest is read and dropped: whoever is still sending does not hear an answer
            data += chunk
    if size > _MOST_BYTES:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _error(status: int, why: str) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(why + "\n", status)


def _log_action(request: Request, action: str, **values: Any) -> None:
    """Who did what goes to the log; the token does not."""
    who = request.client.host if request.client else "?"
    log.warning(
        "%s by %s: %s",
        action,
        who,
        ", ".join(f"{name} {value}" for name, value in values.items()),
        extra={"action": f"dashboard_{action}"},
    )
