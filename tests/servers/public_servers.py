"""Public servers, started on real sockets: ``moto`` for S3 and ``gcp-storage-emulator`` for Cloud Storage."""

from __future__ import annotations

import contextlib
import logging
import os
import urllib.request
from collections.abc import Iterator

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
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        absent("moto", error)
        return
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
