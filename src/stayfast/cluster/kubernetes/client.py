"""The narrow client: the calls that stayfast makes, as dictionaries, strict, paged, retried where that is safe.

Why not one of the libraries: see ``docs/design/cluster-client.md``. What is sent is what was written: no typed model
stands between, so that the server itself can refuse unknown fields (``fieldValidation=Strict`` on every write).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from stayfast.clock import Clock, SystemClock
from stayfast.cluster.kubernetes.endpoint import Endpoint
from stayfast.cluster.kubernetes.errors import (
    RequestContext,
    VersionGoneError,
    error_for_status,
    status_causes,
    status_of,
)
from stayfast.cluster.kubernetes.resources import PODS, Resource
from stayfast.cluster.kubernetes.transport import Response, ResponseStream, Transport
from stayfast.errors import ClusterUnreachableError, ObjectMissingError, ObjectRefusedError
from stayfast.model.kubernetes_objects import identity
from stayfast.storage.network.transport import RequestNotSentError, ResponseLostError
from stayfast.version import __version__

FIELD_MANAGER = "stayfast"
PAGE_OBJECTS = 500
TRIES = 4
LONGEST_WAIT_SECONDS = 30.0
SKEW_SECONDS = 30.0
"""Less is the way of the answer and the rounding of its date."""
_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"

Object = dict[str, Any]


class Page(NamedTuple):
    """Some objects of a list; the version is that of the whole list."""

    items: list[Object]
    resource_version: str


class Payload(NamedTuple):
    """What a writing request carries."""

    value: Object
    content_type: str = _JSON


class Client:
    """Talks to one API server."""

    def __init__(self, access: Endpoint, *, clock: Clock | None = None, silence_seconds: float = 30.0) -> None:
        self.access = access
        self._clock = clock or SystemClock()
        self._transport = Transport(access, silence_seconds=silence_seconds)
        self.warnings: dict[str, None] = {}
        """What the server accepted but warned about, each once, in order."""
        self.field_manager = FIELD_MANAGER
        self.requests = 0
        self._dated = ""
        self.skew_seconds = 0.0
        """How far the server's clock is ahead of ours, when it is worth minding; its times are in its objects."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    # -- reading

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """One object."""
        asked = self._asked("get", resource, namespace, name)
        return self._object("GET", resource.path(namespace, name), asked)

    def find(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """One object, or nothing when there is none, or no such kind."""
        try:
            return self.get(resource, namespace, name)
        except ObjectMissingError:
            return None

    def get_path(self, path: str) -> Object:
        """A page of the server itself: ``/version``, ``/apis`` and the like."""
        return self._object("GET", path, self._asked("get"))

    def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """All objects; of a namespace, or of all."""
        return [item for page in self.pages(resource, namespace, labels=labels, fields=fields) for item in page.items]

    def pages(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = "",
        limit: int = PAGE_OBJECTS,
    ) -> Iterator[Page]:  # fmt: skip
        """All objects, page by page, so that the caller keeps only what it needs of each."""
        asked = self._asked("list", resource, namespace)
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        following = ""
        while True:
            try:
                body = self._object("GET", resource.path(namespace), asked, {**query, "continue": following})
            except VersionGoneError as gone:
                # Reading took longer than the server keeps old versions; it offers to go on with the present one.
                if not gone.following:
                    raise
                following = gone.following
                continue
            metadata = body.get("metadata") or {}
            yield Page(body.get("items") or [], str(metadata.get("resourceVersion", "")))
            following = str(metadata.get("continue") or "")
            if not following:
                return

    def stream(
        self, resource: Resource, namespace: str | None, query: Mapping[str, str], *, silence_seconds: float
    ) -> ResponseStream:
        """An open watch; the caller reads and closes it."""
        asked = self._asked("watch", resource, namespace)
        return self._open(resource.path(namespace), asked, query, silence_seconds)

    def log(
        self, namespace: str, pod: str, *, container: str = "", tail: int | None = None, follow: bool = False,
        previous: bool = False,
    ) -> Iterator[bytes]:  # fmt: skip
        """Lines of a container's log."""
        query = {"container": container, "tailLines": "" if tail is None else str(tail)}
        query |= {"follow": "true" if follow else "", "previous": "true" if previous else ""}
        asked = self._asked("get", PODS._replace(plural="pods/log"), namespace, pod)
        silence = 3600.0 if follow else 60.0
        return self._open(PODS.path(namespace, pod, "log"), asked, query, silence).lines()

    # -- writing

    def create(self, resource: Resource, namespace: str | None, value: Object, *, dry_run: bool = False) -> Object:
        """A new object; one that exists is a conflict."""
        asked = self._asked("create", resource, namespace, identity(value).rpartition("/")[2])
        return self._object("POST", resource.path(namespace), asked, self._write_query(dry_run), Payload(value))

    def apply(
        self, resource: Resource, namespace: str | None, value: Object, *, dry_run: bool = False, force: bool = False
    ) -> Object:
        """Server-side apply: create or change, and own exactly the fields that are written here."""
        name = str((value.get("metadata") or {}).get("name") or "")
        asked = self._asked("patch", resource, namespace, name)
        query = {**self._write_query(dry_run), "force": "true" if force else ""}
        return self._object("PATCH", resource.path(namespace, name), asked, query, Payload(value, _APPLY))

    def merge(
        self, resource: Resource, namespace: str | None, name: str, change: Object, *, subresource: str | None = None
    ) -> Object:
        """Change some fields (JSON merge patch)."""
        shown = resource if subresource is None else resource._replace(plural=f"{resource.plural}/{subresource}")
        asked = self._asked("patch", shown, namespace, name)
        path = resource.path(namespace, name, subresource)
        return self._object("PATCH", path, asked, self._write_query(dry_run=False), Payload(change, _MERGE))

    def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None,
        version: str | None = None, foreground: bool = False,
    ) -> bool:  # fmt: skip
        """Delete with everything it owns; false when it was gone already.

        ``uid`` guards against a namesake and ``version`` against any change; ``foreground`` keeps the object until what
        it owns is gone.
        """
        policy = "Foreground" if foreground else "Background"
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        stands = {"uid": uid, "resourceVersion": version}
        if uid or version:
            options["preconditions"] = {name: value for name, value in stands.items() if value}
        asked = self._asked("delete", resource, namespace, name)
        try:
            self._object("DELETE", resource.path(namespace, name), asked, {}, Payload(options))
        except ObjectMissingError:
            return False
        return True

    def evict(self, namespace: str, pod: str) -> None:
        """Ask a pod to leave, in the way that disruption budgets can refuse."""
        value = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        asked = self._asked("create", PODS._replace(plural="pods/eviction"), namespace, pod)
        path = PODS.path(namespace, pod, "eviction")
        answer = self._send("POST", path, asked, {}, Payload(value), busy_is_final=True)
        status = status_of(answer)
        if answer.status == 429:
            why = "; ".join(cause.message for cause in status_causes(status)) or status.get("message", "")
            raise ObjectRefusedError(f"the eviction of pod {pod} is refused by its disruption budget: {why}")
        if answer.status >= 400:
            raise error_for_status(answer.status, status, asked)

    # -- inside

    def _asked(
        self, verb: str, resource: Resource | None = None, namespace: str | None = None, name: str | None = None
    ) -> RequestContext:
        return RequestContext(verb, resource, namespace, name, self.access.login_help)

    def _write_query(self, dry_run: bool) -> dict[str, str]:
        query = {"fieldManager": self.field_manager, "fieldValidation": "Strict"}
        return {**query, "dryRun": "All"} if dry_run else query

    def _object(
        self, method: str, path: str, asked: RequestContext, query: Mapping[str, str] | None = None,
        payload: Payload | None = None,
    ) -> Object:  # fmt: skip
        answer = self._send(method, path, asked, query or {}, payload)
        if answer.status >= 400:
            raise error_for_status(answer.status, status_of(answer), asked)
        self.warnings.update(dict.fromkeys(answer.warnings))
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClusterUnreachableError(
                f"{self._transport.where} answered {asked.verb} {asked.title} with something that is no object",
                help="check that the address is an API server's: kubectl config view --minify",
            )
        return found

    def _send(
        self, method: str, path: str, asked: RequestContext, query: Mapping[str, str], payload: Payload | None,
        *, busy_is_final: bool = False,
    ) -> Response:  # fmt: skip
        headers = {"Accept": _JSON, "Accept-Encoding": "gzip", "User-Agent": f"stayfast/{__version__}"}
        data = None
        if payload is not None:
            data = json.dumps(payload.value, separators=(",", ":")).encode()
            headers["Content-Type"] = payload.content_type
        target = _target(path, query)

        def once() -> Response:
            return self._transport.send(method, target, headers, data)

        return self._with_retries(once, asked, may_repeat=method != "POST", busy_is_final=busy_is_final)

    def _open(
        self, path: str, asked: RequestContext, query: Mapping[str, str], silence_seconds: float
    ) -> ResponseStream:
        headers = {"Accept": "application/json, */*", "User-Agent": f"stayfast/{__version__}"}
        opened: list[ResponseStream] = []

        def once() -> Response:
            stream = self._transport.stream(_target(path, query), headers, silence_seconds=silence_seconds)
            if stream.status >= 400:
                return Response(stream.status, stream.headers, stream.read())
            opened.append(stream)
            return Response(stream.status, stream.headers, b"")

        answer = self._with_retries(once, asked, may_repeat=True)
        if answer.status >= 400:
            raise error_for_status(answer.status, status_of(answer), asked)
        return opened[-1]

    def _track_clock_skew(self, date: str) -> None:
        if date == self._dated:  # whole seconds: most answers carry one that was looked at already
            return
        self._dated = date
        theirs = _server_seconds(date)
        if theirs is not None:
            ahead = theirs - self._clock.wall()
            self.skew_seconds = ahead if abs(ahead) > SKEW_SECONDS else 0.0

    def _with_retries(
        self, once: Callable[[], Response], asked: RequestContext, *, may_repeat: bool, busy_is_final: bool = False
    ) -> Response:
        renewed = False
        answer: Response | None = None
        lost = ""
        for turn in range(TRIES):
            self.requests += 1
            try:
                answer = once()
                self._track_clock_skew(answer.headers.get("date", ""))
            except (RequestNotSentError, ResponseLostError) as error:
                answer, lost = None, str(error)
                if isinstance(error, ResponseLostError) and not may_repeat:
                    break
                self._clock.sleep(0.2 * 2**turn if turn < TRIES - 1 else 0.0)
                continue
            if answer.status == 401 and not renewed and self.access.credential.renew():
                renewed = True
                continue
            wait = _wait_seconds(answer, turn, may_repeat=may_repeat)
            if wait is None or turn == TRIES - 1 or (busy_is_final and answer.status == 429):
                return answer
            self._clock.sleep(wait)
        if answer is not None:
            return answer
        raise ClusterUnreachableError(
            f"the API server {self._transport.where} cannot be reached ({lost})",
            help=f"check the network and the context with: kubectl cluster-info; or {asked.login_help}",
        )


def _server_seconds(date: str) -> float | None:
    """The ``Date`` of an answer, as wall-clock seconds."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, TypeError, OverflowError):
        return None


def _target(path: str, query: Mapping[str, str]) -> str:
    used = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(used)}" if used else path


def _wait_seconds(answer: Response, turn: int, *, may_repeat: bool) -> float | None:
    """How long to wait before trying again; None when the answer is final."""
    told = answer.headers.get("retry-after", "")
    # 429 was refused before anything happened; a 5xx that says when to come back asks for a second try.
    if answer.status == 429 or (answer.status in (500, 502, 503, 504) and may_repeat and (told or answer.status > 500)):
        seconds = float(told) if told.isdigit() else 0.5 * 2**turn
        return min(seconds, LONGEST_WAIT_SECONDS)
    return None
