"""From a socket to a running server that ends well on Ctrl-C and SIGTERM."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Callable
from types import FrameType

from stayfast.dashboard.access_policy import LOOPBACK, AccessPolicy
from stayfast.dashboard.event_stream import EventStream
from stayfast.dashboard.fleet_cache import Fleet, FleetCache
from stayfast.dashboard.http_timeouts import make_protocol
from stayfast.dashboard.routes import make_app
from stayfast.dashboard.run_cache import RunCache, Sources
from stayfast.errors import SettingError, UsageError
from stayfast.extras import check_dashboard

TOKEN_BYTES = 16


def new_token() -> str:
    """128 bits, fresh at every start."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def write_token(path: str, token: str) -> None:
    """For programs: a new file that only this user can read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists already", help="remove it, or name another --token-file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", help="name another --token-file") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")


def hosts_for(bind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names under which the server answers: loopback's, the address it listens on, and those given."""
    address = f"[{bind}]" if ":" in bind else bind
    own = () if address in ("0.0.0.0", "[::]") else (address,)
    return tuple(dict.fromkeys((*LOOPBACK, *own, *(name.lower() for name in names))))


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def listen(bind: str, port: int) -> socket.socket:
    """The listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bind, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise SettingError(
            f"cannot listen on {bind} port {port}: {error.strerror or error}", help="choose another --port or --bind"
        ) from error
    return listener


def serve(
    sources: Sources,
    door: AccessPolicy,
    listener: socket.socket,
    ready: Callable[[], None],
    *,
    fleet: Fleet | None = None,
) -> None:
    """Until a signal; ``ready`` is called when requests are answered."""
    check_dashboard()
    import uvicorn

    watch = RunCache(sources)
    stream = EventStream(watch)
    app = make_app(watch, door, stream, ready, lookout=FleetCache(fleet) if fleet is not None else None)
    config = uvicorn.Config(
        app,
        http=make_protocol(),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        limit_concurrency=1000,
        h11_max_incomplete_event_size=16 << 10,
    )

    server = uvicorn.Server(config)
    leave = server.handle_exit

    def end(number: int, frame: FrameType | None) -> None:
        stream.close_streams()
        leave(number, frame)

    server.handle_exit = end
    try:
        server.run([listener])
    except KeyboardInterrupt:  # uvicorn hands the signal on when it is done; for a server that is a good end
        pass
