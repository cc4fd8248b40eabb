"""Where the API server is and how to talk to it, as plain values; and from which place they came."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from stayfast.cluster.kubernetes.credentials import Credential, FixedCredential, TokenFile
from stayfast.errors import ClusterConfigError

ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_GKE_CONTEXT = re.compile(r"gke_([a-z0-9:.-]+)_([a-z0-9-]+)_([a-z0-9-]+)\Z")


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server proves itself."""

    ca_data: str | None = None
    ca_file: str | None = None
    skip_verify: bool = False
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Everything the client needs; nothing secret shows in its ``repr``."""

    server: str
    context: str = ""
    namespace: str = "default"
    tls: Tls = field(default_factory=Tls)
    credential: Credential = field(default_factory=FixedCredential, repr=False)
    proxy_url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request: impersonation."""

    @property
    def login_help(self) -> str:
        """The command that most likely gives fresh credentials."""
        known = gke_context(self.context)
        if known is not None:
            project, place, name = known
            return f"run: gcloud container clusters get-credentials {name} --location {place} --project {project}"
        if self.context:
            return "log in again, or choose another context: kubectl config get-contexts"
        return "check the account and its role bindings"


class GkeCluster(NamedTuple):
    """What gcloud writes into the name of a context."""

    project: str
    location: str
    name: str


def gke_context(context: str) -> GkeCluster | None:
    """The cluster that a context of gcloud's own name is about."""
    match = _GKE_CONTEXT.match(context)
    return GkeCluster(*match.groups()) if match else None


def split_server(url: str) -> tuple[bool, str, int, str]:
    """TLS or not, host, port, and the path before ``/api``."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[A-Za-z0-9._:%-]+", host) or "@" in parts.netloc:
        raise ClusterConfigError(
            f"{url!r} is no address of an API server", help="it looks like https://34.1.2.3 or https://host:6443"
        )
    if parts.query or parts.fragment or not re.fullmatch(r"[\x21-\x7e]*", parts.path):
        raise ClusterConfigError(f"the address of the API server {url!r} has more than a host and a path")
    secure = parts.scheme == "https"
    return secure, host, port or (443 if secure else 80), parts.path.rstrip("/")


def in_cluster(environment: Mapping[str, str], *, folder: str = ACCOUNT_FOLDER) -> Endpoint | None:
    """The account of the pod we run in, if we do."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token = os.path.join(folder, "token")
    if not host or not port or not os.path.exists(token):
        return None
    shown = f"[{host}]" if ":" in host else host
    namespace = "default"
    try:
        with open(os.path.join(folder, "namespace"), encoding="utf-8") as file:
            namespace = file.read(300).strip() or namespace
    except (OSError, UnicodeError):
        pass  # an account without the file: the default is as good
    return Endpoint(
        f"https://{shown}:{port}",
        namespace=namespace,
        tls=Tls(ca_file=os.path.join(folder, "ca.crt")),
        credential=TokenFile(token),
    )


def proxy_for(server: str, explicit: str | None, environment: Mapping[str, str]) -> str | None:
    """The proxy to use: the kubeconfig's, else the environment's, else none."""
    secure, host, _, _ = split_server(server)
    if explicit:
        return _usable_proxy(explicit, "proxy-url of the kubeconfig")
    name = "HTTPS_PROXY" if secure else "HTTP_PROXY"
    found = environment.get(name) or environment.get(name.lower())
    if not found or _bypasses(host, environment.get("NO_PROXY") or environment.get("no_proxy") or ""):
        return None
    return _usable_proxy(found if "://" in found else f"http://{found}", name)


def _usable_proxy(url: str, where: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        usable = False
    if not usable:  # the URL may hold a password: it is not shown
        raise ClusterConfigError(
            f"the proxy named by {where} cannot be used", help="only http://host:port proxies are supported"
        )
    return url


def _bypasses(host: str, no_proxy: str) -> bool:
    """As Go's clients decide: loopback never goes through a proxy; names match with their sub-domains."""
    host = host.lower()
    try:
        address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        if entry == "*" or (entry and _matches(host, address, entry)):
            return True
    return False


def _matches(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, entry: str) -> bool:
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name = entry.partition(":")[0].removeprefix("*").lstrip(".")
    return host.endswith("." + name) or (host == name and not entry.startswith((".", "*.")))
