"""Credentials from a program (``gke-gcloud-auth-plugin``, say), by the ``client.authentication.k8s.io`` contract.

The program is started without a shell, gets ``KUBERNETES_EXEC_INFO``, and prints an ``ExecCredential``. Its answer is
kept until it expires or the server says 401.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stayfast.clock import Clock, SystemClock, seconds_at
from stayfast.cluster.kubernetes.credentials import ClientCertificate, validate_token
from stayfast.errors import ClusterConfigError, ClusterLoginError
from stayfast.text.safe import printable, redact

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
RENEW_BEFORE_SECONDS = 5.0
PLUGIN_SECONDS = 60.0
GKE_PLUGIN = "gke-gcloud-auth-plugin"


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The ``exec`` section of a user in the kubeconfig."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    install_hint: str = ""
    interactive: str = "IfAvailable"
    cluster: dict[str, Any] | None = field(default=None, repr=False)
    """What the plugin may know about the cluster; None unless the kubeconfig says ``provideClusterInfo``."""


class ExecCredential:
    """Runs the plugin when needed; threads share one answer."""

    def __init__(self, plugin: ExecPlugin, *, clock: Clock | None = None) -> None:
        self._plugin = plugin
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._token = ""
        self._certificate: ClientCertificate | None = None
        self._is_known = False
        self._expires_at: float | None = None

    def headers(self) -> dict[str, str]:
        with self._lock:
            self._ensure()
            return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def certificate(self) -> ClientCertificate | None:
        with self._lock:
            self._ensure()
            return self._certificate

    def renew(self) -> bool:
        with self._lock:
            self._is_known = False
            return True

    def _ensure(self) -> None:
        expired = self._expires_at is not None and self._clock.wall() >= self._expires_at - RENEW_BEFORE_SECONDS
        if self._is_known and not expired:
            return
        status = run_plugin(self._plugin)
        self._token = validate_token(status["token"], self._plugin.command) if status.get("token") else ""
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        pair = ClientCertificate(str(certificate), str(key)) if certificate and key else None
        if pair != self._certificate:
            self._certificate = pair
        if not self._token and pair is None:
            raise ClusterLoginError(
                f"{self._plugin.command} gave neither a token nor a certificate", help="log in again, then retry"
            )
        self._expires_at = seconds_at(status.get("expirationTimestamp"))
        self._is_known = True


def run_plugin(plugin: ExecPlugin) -> dict[str, Any]:
    """The ``status`` of its answer."""
    import subprocess  # only clusters with a plugin pay for it

    interactive = _is_interactive(plugin)
    environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(_exec_info(plugin, interactive))}
    try:
        ended = subprocess.run(
            [plugin.command, *plugin.args],
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,  # a login prompt has to reach the person
            timeout=None if interactive else PLUGIN_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise ClusterConfigError(
            f"the credential plugin {plugin.command} of this context is not installed", help=_install_help(plugin)
        ) from None
    except subprocess.TimeoutExpired:
        raise ClusterLoginError(
            f"the credential plugin {plugin.command} did not answer within {PLUGIN_SECONDS:.0f} s",
            help=f"run it by hand: {plugin.command}",
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
        raise ClusterConfigError(f"the credential plugin {plugin.command} cannot be started ({error})") from None
    if ended.returncode != 0:
        raise ClusterLoginError(
            f"the credential plugin {plugin.command} failed with code {ended.returncode}"
            f"{_last_stderr_line(ended.stderr)}",
            help="log in again (GKE: gcloud auth login), then retry",
        )
    return _status(ended.stdout, plugin)


def _status(output: bytes, plugin: ExecPlugin) -> dict[str, Any]:
    try:
        answer = json.loads(output)
        status = answer["status"]
        version = answer["apiVersion"]
    except (ValueError, KeyError, TypeError, RecursionError):
        status = version = None
    if not isinstance(status, dict):
        # What it printed may well be a token: it is not repeated.
        raise ClusterLoginError(
            f"the credential plugin {plugin.command} printed no ExecCredential with a status",
            help=f"run it by hand: {plugin.command}",
        )
    if version != plugin.api_version:
        raise ClusterConfigError(
            f"the credential plugin {plugin.command} answered in another version than the kubeconfig's "
            f"{plugin.api_version}",
            help="write the version that the plugin speaks, or update it",
        )
    return status


def _exec_info(plugin: ExecPlugin, interactive: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _is_interactive(plugin: ExecPlugin) -> bool:
    has_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
    if plugin.interactive == "Always" and not has_terminal:
        raise ClusterLoginError(
            f"the credential plugin {plugin.command} must ask a person, and there is no terminal here",
            help="run the command in a terminal once",
        )
    return plugin.interactive != "Never" and has_terminal


def _install_help(plugin: ExecPlugin) -> str:
    if os.path.basename(plugin.command) == GKE_PLUGIN:
        return f"run: gcloud components install {GKE_PLUGIN}"
    hint = " ".join(plugin.install_hint.split())
    return f"the kubeconfig says: {hint[:300]}" if hint else "install it, or fix its path in the kubeconfig"


def _last_stderr_line(stderr: bytes | None) -> str:
    lines = [line for line in (stderr or b"").decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {printable(redact(lines[-1].strip()[:200]))}" if lines else ""
