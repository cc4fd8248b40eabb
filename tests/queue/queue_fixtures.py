"""Servers and queues for the batch tests; what is absent skips on a laptop and fails in CI."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from postgres_server import PostgresServer, find_binaries  # noqa: E402
from pubsub_server import PubsubServer, find_jar  # noqa: E402


def absent(what: str) -> None:
    """Not installed: a gap in CI, a shrug on a laptop."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed, and CI must have it")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg") if not os.environ.get("CI") else __import__("psycopg")
    if find_binaries() is None:
        absent("PostgreSQL")
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres_base(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("STAYFAST_TEST_POSTGRES")
    if given:
        return given
    url: str = request.getfixturevalue("postgres_server").url
    return url


@pytest.fixture(scope="session")
def pubsub_server() -> Iterator[PubsubServer]:
    pytest.importorskip("google.cloud.pubsub_v1") if not os.environ.get("CI") else __import__("google.cloud.pubsub_v1")
    if find_jar() is None:
        absent("Google's Pub/Sub emulator")
    # It lives for minutes: what the second compiler and the parallel collectors cost, they never earn.
    server = PubsubServer("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    before = os.environ.get("PUBSUB_EMULATOR_HOST")
    os.environ["PUBSUB_EMULATOR_HOST"] = server.host
    try:
        yield server
    finally:
        os.environ.pop("PUBSUB_EMULATOR_HOST")
        if before is not None:
            os.environ["PUBSUB_EMULATOR_HOST"] = before
        server.close()


class Place:
    """URLs of a fresh queue and a fresh sink on one backend."""

    def __init__(self, kind: str, queue: str, sink: str, other_sink: str) -> None:
        self.kind, self.queue, self.sink, self.other_sink = kind, queue, sink, other_sink


@pytest.fixture
def make_place(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Place]:
    def make(kind: str) -> Place:
        name = "t" + uuid.uuid4().hex[:12]
        other = f"sqlite://{tmp_path}/{name}-results.db?table=r"
        if kind == "sqlite":
            base = f"sqlite://{tmp_path}/{name}.db"
            return Place(kind, f"{base}?queue={name}", f"{base}?table=r", other)
        if kind == "postgres":
            base = request.getfixturevalue("postgres_base")
            return Place(kind, f"{base}?queue={name}", f"{base}?table={name}", other)
        request.getfixturevalue("pubsub_server")
        url = f"pubsub://lab/{name}-sub?topic={name}&deadline=10&dead={name}-dead"
        return Place(kind, url, other, other)

    return make


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, make_place: Callable[[str], Place]) -> Place:
    """Backends with transactions."""
    return make_place(request.param)
