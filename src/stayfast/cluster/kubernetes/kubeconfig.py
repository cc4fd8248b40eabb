"""Kubeconfig files: merged as kubectl merges them, read strictly enough to say what is wrong and where.

``KUBECONFIG`` may name several files: the first one that defines a name wins, paths are relative to the file they stand
in, and files that do not exist are passed over. Secrets are read and never repeated in a message.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from stayfast.cluster.kubernetes.credentials import ClientCertificate, Credential, FixedCredential, TokenFile
from stayfast.cluster.kubernetes.endpoint import Endpoint, Tls, in_cluster, proxy_for, split_server
from stayfast.cluster.kubernetes.exec_plugin import API_VERSIONS, ExecCredential, ExecPlugin
from stayfast.errors import ClusterConfigError, DocumentError

MAX_FILE_BYTES = 3_000_000
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_GET_CREDENTIALS = "gcloud container clusters get-credentials NAME --location PLACE"


class Entry(NamedTuple):
    """One named cluster, user or context, and the folder that its paths are relative to."""

    body: dict[str, Any]
    file: str

    def path(self, value: Any) -> str:
        return os.path.join(os.path.dirname(os.path.abspath(self.file)), os.path.expanduser(str(value)))


class Merged(NamedTuple):
    """All files as one."""

    clusters: dict[str, Entry]
    users: dict[str, Entry]
    contexts: dict[str, Entry]
    current: str
    files: list[str]


def find_endpoint(
    *, kubeconfig: str | None = None, context: str | None = None, environment: Mapping[str, str] | None = None
) -> Endpoint:
    """The cluster to talk to: ``--kubeconfig``, ``KUBECONFIG``, ``~/.kube/config``, or the pod's own account."""
    environment = os.environ if environment is None else environment
    merged = merge(_files(kubeconfig, environment))
    if merged.files or context:
        return _access(merged, context, environment)
    found = in_cluster(environment)
    if found is None:
        raise ClusterConfigError(
            "there is no kubeconfig here and this is no pod", help=f"run: {_GET_CREDENTIALS}, or set KUBECONFIG"
        )
    return found


def _files(explicit: str | None, environment: Mapping[str, str]) -> list[str]:
    if explicit is not None:
        if not os.path.isfile(explicit):
            raise ClusterConfigError(f"there is no kubeconfig {explicit}", help="check --kubeconfig")
        return [explicit]
    listed = [name for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    if not listed:
        home = environment.get("HOME") or os.path.expanduser("~")
        listed = [os.path.join(home, ".kube", "config")]
    return [name for name in listed if os.path.isfile(name)]


def merge(files: list[str]) -> Merged:
    """Read the files; whoever names a thing first wins."""
    merged = Merged({}, {}, {}, "", [])
    for file in files:
        body = _read(file)
        for key, singular, table in (
            ("clusters", "cluster", merged.clusters),
            ("users", "user", merged.users),
            ("contexts", "context", merged.contexts),
        ):
            for row in _rows(body, key, file):
                table.setdefault(str(row.get("name", "")), Entry(_section(row.get(singular), f"{key} of {file}"), file))
        if not merged.current and isinstance(body.get("current-context"), str):
            merged = merged._replace(current=body["current-context"])
        merged.files.append(file)
    return merged


def _read(file: str) -> dict[str, Any]:
    from stayfast.documents import load_documents  # brings YAML, which a pod's own account does not need

    try:
        with open(file, encoding="utf-8") as stream:
            documents = load_documents(stream.read(MAX_FILE_BYTES + 1), file)
    except OSError as error:
        raise ClusterConfigError(f"the kubeconfig {file} cannot be read ({error.strerror})") from None
    except UnicodeError:
        raise ClusterConfigError(f"the kubeconfig {file} is not text") from None
    except DocumentError as error:
        raise ClusterConfigError(f"the kubeconfig is not usable: {error.message}") from None
    body = documents[0].value if documents else {}
    return _section(body, f"the kubeconfig {file}")


def _rows(body: dict[str, Any], key: str, file: str) -> list[dict[str, Any]]:
    rows = body.get(key) or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ClusterConfigError(f"{key} in the kubeconfig {file} is not a list of named entries")
    return rows


def _section(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ClusterConfigError(f"{where} holds something that is not a mapping")
    return value


def _access(merged: Merged, wanted: str | None, environment: Mapping[str, str]) -> Endpoint:
    name = wanted or merged.current
    if not name:
        raise ClusterConfigError(
            "the kubeconfig chooses no context", help="run: kubectl config use-context NAME, or add --context"
        )
    if name not in merged.contexts:
        known = ", ".join(sorted(merged.contexts)[:8]) or "none at all"
        raise ClusterConfigError(f"the kubeconfig has no context {name!r}", help=f"it has: {known}")
    context = merged.contexts[name].body
    cluster = _named(merged.clusters, context.get("cluster"), "cluster", name)
    user = _named(merged.users, context.get("user"), "user", name) if context.get("user") else Entry({}, "")
    server = str(cluster.body.get("server") or "")
    split_server(server)
    proxy = cluster.body.get("proxy-url")
    return Endpoint(
        server=server,
        context=name,
        namespace=str(context.get("namespace") or "default"),
        tls=_tls(cluster),
        credential=_credential(user, cluster),
        proxy_url=proxy_for(server, str(proxy) if proxy else None, environment),
        headers=_impersonation(user.body),
    )


def _named(table: dict[str, Entry], key: Any, kind: str, context: str) -> Entry:
    if not isinstance(key, str) or key not in table:
        raise ClusterConfigError(
            f"the context {context!r} names the {kind} {key!r}, which the kubeconfig does not have",
            help=f"run again: {_GET_CREDENTIALS}",
        )
    return table[key]


def _tls(cluster: Entry) -> Tls:
    body = cluster.body
    data = body.get("certificate-authority-data")
    file = body.get("certificate-authority")
    name = body.get("tls-server-name")
    return Tls(
        ca_data=_decode(data, "certificate-authority-data") if data else None,
        ca_file=cluster.path(file) if file and not data else None,
        skip_verify=body.get("insecure-skip-tls-verify") is True,
        server_name=str(name) if name else None,
    )


def _decode(data: Any, what: str) -> str:
    try:
        return base64.b64decode(str(data), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ClusterConfigError(f"{what} in the kubeconfig is not base64 of a PEM text") from None


def _credential(user: Entry, cluster: Entry) -> Credential:
    body = user.body
    if body.get("exec") is not None:
        return ExecCredential(_plugin(user, cluster))
    if body.get("auth-provider") is not None:
        raise ClusterConfigError(
            "the kubeconfig uses an auth-provider, which Kubernetes dropped in 1.26", help=f"run: {_GET_CREDENTIALS}"
        )
    if body.get("tokenFile"):
        return TokenFile(user.path(body["tokenFile"]))
    password = None
    if body.get("username"):
        password = (str(body["username"]), str(body.get("password") or ""))
    token = body.get("token")
    return FixedCredential(token=str(token) if token else None, password=password, certificate=_certificate(user))


def _certificate(user: Entry) -> ClientCertificate | None:
    parts = []
    for key in ("client-certificate", "client-key"):
        if user.body.get(f"{key}-data"):
            parts.append(_decode(user.body[f"{key}-data"], f"{key}-data"))
        elif user.body.get(key):
            path = user.path(user.body[key])
            try:
                with open(path, encoding="ascii") as file:
                    parts.append(file.read(1 << 20))
            except (OSError, UnicodeError):
                raise ClusterConfigError(f"the {key} {path} of the kubeconfig cannot be read") from None
    if len(parts) == 1:
        raise ClusterConfigError("the kubeconfig has a client certificate without its key, or a key without it")
    return ClientCertificate(parts[0], parts[1]) if parts else None


def _plugin(user: Entry, cluster: Entry) -> ExecPlugin:
    body = _section(user.body["exec"], "exec of the kubeconfig")
    command = str(body.get("command") or "")
    version = str(body.get("apiVersion") or "")
    if not command:
        raise ClusterConfigError("the exec section of the kubeconfig names no command")
    if version not in API_VERSIONS:
        raise ClusterConfigError(
            f"the exec section of the kubeconfig has the version {version!r}", help=f"use one of {API_VERSIONS}"
        )
    if os.sep in command and not os.path.isabs(command):
        command = user.path(command)
    pairs = [row for row in body.get("env") or [] if isinstance(row, dict)]
    return ExecPlugin(
        command=command,
        api_version=version,
        args=tuple(str(item) for item in body.get("args") or []),
        env={str(row.get("name")): str(row.get("value", "")) for row in pairs if row.get("name")},
        install_hint=str(body.get("installHint") or ""),
        interactive=str(body.get("interactiveMode") or "IfAvailable"),
        cluster=_cluster_info(cluster) if body.get("provideClusterInfo") is True else None,
    )


def _cluster_info(cluster: Entry) -> dict[str, Any]:
    """The part of the cluster's entry that plugins may be told, by the contract's own names."""
    body = cluster.body
    tls = _tls(cluster)
    info: dict[str, Any] = {"server": str(body.get("server") or "")}
    if tls.server_name:
        info["tls-server-name"] = tls.server_name
    if tls.skip_verify:
        info["insecure-skip-tls-verify"] = True
    if body.get("certificate-authority-data"):
        info["certificate-authority-data"] = str(body["certificate-authority-data"])
    elif tls.ca_file:
        try:
            with open(tls.ca_file, "rb") as file:
                info["certificate-authority-data"] = base64.b64encode(file.read(1 << 20)).decode()
        except OSError:
            pass  # the connection itself will say so, with the name of the file
    if body.get("proxy-url"):
        info["proxy-url"] = str(body["proxy-url"])
    for extension in body.get("extensions") or []:
        if isinstance(extension, dict) and extension.get("name") == _EXEC_EXTENSION:
            info["config"] = extension.get("extension")
    return info


def _impersonation(user: dict[str, Any]) -> dict[str, str]:
    if not user.get("as"):
        return {}
    if user.get("as-groups") or user.get("as-user-extra"):
        raise ClusterConfigError("the kubeconfig impersonates groups", help="use a user that needs no as-groups")
    headers = {"Impersonate-User": str(user["as"])}
    if user.get("as-uid"):
        headers["Impersonate-Uid"] = str(user["as-uid"])
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise ClusterConfigError("the kubeconfig impersonates a user whose name cannot stand in a header")
    return headers
