"""Public servers, started on real sockets: ``moto`` for S3 and ``gcp-storage-emulator`` for Cloud Storage."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest


def absent(what: str, error: Exception) -> None:
    """A server that cannot start is a failure in CI and a skip on a laptop."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        raise error
    pytest.skip(f"{what} cannot be started here ({error})")


@contextlib.contextmanager
def moto_server(bucket: str = "bucket") -> Iterator[str]:
    """The address of an S3 server that has this bucket."""
    try:
        from moto.s3.responses import S3Response
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        absent("moto", error)
        return
    _compare_and_put_at_once(S3Response)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        request = urllib.request.Request(f"{url}/{bucket}", method="PUT")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
        yield url
    finally:
        server.stop()


def _compare_and_put_at_once(responses: Any) -> None:
    """S3 compares ``If-Match`` and stores in one step; moto in two, and another thread's object in between is lost."""
    put, lock = responses.put_object, threading.Lock()
    if getattr(put, "at_once", False):
        return

    def put_object(self: Any) -> Any:
        with lock:
            return put(self)

    put_object.at_once = True  # type: ignore[attr-defined]
    responses.put_object = put_object


@contextlib.contextmanager
def gcs_emulator(bucket: str = "bucket") -> Iterator[str]:
    """The address of a Cloud Storage emulator (JSON API; it ignores preconditions) that has this bucket."""
    try:
        from gcp_storage_emulator.server import create_server
    except ImportError as error:
        absent("gcp-storage-emulator", error)
        return
    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket=bucket)
    server.start()
    try:
        yield f"http://127.0.0.1:{server._api._httpd.server_address[1]}"
    finally:
        server.stop()
