"""The GCE metadata server: what a machine on Google Cloud is asked about itself."""

from __future__ import annotations

import http.client
from typing import NamedTuple

DEFAULT_HOST = "metadata.google.internal"
LONGEST_RESPONSE_BYTES = 1 << 16


class MetadataResponse(NamedTuple):
    """What the server said."""

    status: int
    body: bytes
    etag: str | None
    is_google: bool
    """Whether the response carries the header that only a metadata server sends."""


def read_metadata(host: str, path: str, *, timeout_seconds: float) -> MetadataResponse:
    """The value under ``/computeMetadata/v1/``; never through a proxy. ``OSError`` or ``HTTPException`` without one."""
    connection = http.client.HTTPConnection(host, timeout=timeout_seconds)
    try:
        connection.request("GET", f"/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"})
        response = connection.getresponse()
        headers = response.headers
        body = response.read(LONGEST_RESPONSE_BYTES)
        return MetadataResponse(response.status, body, headers.get("ETag"), headers.get("Metadata-Flavor") == "Google")
    finally:
        connection.close()
