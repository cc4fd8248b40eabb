"""Shared by all tests: the import path of ``servers`` and ``faults.counts``, and stores on real servers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).resolve().parent))

from faults.counts import counts_file
from servers.bucket_server import BucketServer
from servers.public_servers import gcs_emulator, moto_server
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import Store

# How fast examples are drawn says how busy the machine is, nothing about the product.
settings.register_profile("stayfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stayfast")


class Unpickling(BaseException):
    """Product code reads a pickle: whoever can write the bucket could run code in every trainer.

    Not an ``Exception``, so that no ``except Exception`` on the way can hide it.
    """


SOURCE = str(Path(__file__).resolve().parent.parent / "src" / "stayfast")
# What may unpickle below our code, each for a reason: multiprocessing and its executors talk between our own processes,
# torch reads its checkpoint metadata, which dcp_read lets it do only after the sha256 of the commit record matched.
MAY_UNPICKLE = (
    "multiprocessing",
    "concurrent",
    "torch",
    "lightning",
    "transformers",
    "accelerate",
    "copy.py",
    "copyreg.py",
)


def _watch_pickles(event: str, arguments: tuple[object, ...]) -> None:
    if event != "pickle.find_class":
        return
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(
        ("/pickle.py", "/_pickle.py", "/_weights_only_unpickler.py")
    ):
        frame = frame.f_back  # type: ignore[assignment]
    nearest = frame.f_code.co_filename if frame is not None else ""
    while frame is not None and not frame.f_code.co_filename.startswith(SOURCE):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None and not any(f"/{name}" in nearest for name in MAY_UNPICKLE):
        raise Unpickling(f"{arguments} at {frame.f_code.co_filename}:{frame.f_lineno}, asked for by {nearest}")


sys.addaudithook(_watch_pickles)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started with & in a script: our children would be deaf too
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Counts are those of this run: what an earlier one injected must not fill up this one's."""
    if not hasattr(session.config, "workerinput") and "STAYFAST_COUNTS_FILE" not in os.environ:
        counts_file().unlink(missing_ok=True)


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """An S3 server (moto) with a bucket named ``bucket``."""
    with moto_server() as url:
        yield url


@pytest.fixture(scope="session")
def gcs_emulator_url() -> Iterator[str]:
    """A Cloud Storage emulator with a bucket named ``bucket``; it ignores preconditions."""
    with gcs_emulator() as url:
        yield url


@pytest.fixture
def bucket_server() -> Iterator[BucketServer]:
    """Our own server: S3 and Cloud Storage, preconditions enforced, faults on demand."""
    with BucketServer() as server:
        yield server


@pytest.fixture
def cloud_environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Point the usual variables of ``gs`` or ``s3`` at a server."""

    def point(scheme: str, url: str) -> None:
        if scheme == "gs":
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        else:
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
            monkeypatch.setenv("AWS_REGION", "us-east-1")

    return point


@pytest.fixture
def open_on(cloud_environment: Callable[[str, str], None]) -> Callable[[str, str, str], Store]:
    """Open ``scheme://bucket/prefix`` on a server: ``open_on("gs", server.url, "run")``."""

    def open_there(scheme: str, url: str, prefix: str) -> Store:
        cloud_environment(scheme, url)
        return open_store(f"{scheme}://bucket/{prefix}")

    return open_there
