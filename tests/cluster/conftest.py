"""The pretended API server, clients and kubeconfigs for it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servers.api_server import ApiServer
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import Endpoint


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(Endpoint(server.url, context="test"), silence_seconds=10.0) as opened:
        yield opened


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a kubeconfig for the server and make it the environment's."""

    def write(*, user: str = "{}", cluster: str = "", namespace: str = "default", name: str = "config") -> Path:
        path = tmp_path / name
        path.write_text(
            textwrap.dedent(
                f"""\
                apiVersion: v1
                kind: Config
                current-context: test
                contexts:
                - name: test
                  context: {{cluster: c, user: u, namespace: {namespace}}}
                clusters:
                - name: c
                  cluster: {{server: "{server.url}"{cluster}}}
                users:
                - name: u
                  user: {user}
                """
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return write
