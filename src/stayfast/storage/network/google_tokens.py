"""Access tokens for Cloud Storage: the metadata server (Workload Identity), a user's login, or ``google-auth``.

In a pod the token comes from the metadata server: one request, no dependency. Key files and federated identities need
signatures and exchanges that ``google-auth`` (part of the ``gcs`` extra) does well; it is imported only for those.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stayfast.clock import Clock, SystemClock
from stayfast.errors import AccessDeniedError, StoreUnavailableError
from stayfast.extras import load_extra
from stayfast.randomness import keep_apart
from stayfast.storage.network.metadata_server import DEFAULT_HOST, read_metadata

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
USER_TOKEN_URL = "https://oauth2.googleapis.com/token"
RENEW_BEFORE_SECONDS = 240.0
HELP = (
    "run in a pod with Workload Identity, or set GOOGLE_APPLICATION_CREDENTIALS, "
    "or run: gcloud auth application-default login"
)

FetchedToken = tuple[str, float]
"""A token and how many seconds it lasts."""


class TokenSource:
    """One token, renewed before it ends; threads share it."""

    def __init__(self, fetch: Callable[[], FetchedToken], *, clock: Clock | None = None) -> None:
        self._fetch = fetch
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = 0.0

    def __call__(self) -> str:
        with self._lock:
            if not self._token or self._clock.monotonic() >= self._renew_at:
                token, seconds = self._fetch()
                self._token = token
                self._renew_at = self._clock.monotonic() + max(seconds / 2, seconds - RENEW_BEFORE_SECONDS)
            return self._token

    def invalidate(self) -> None:
        """The server refused it: ask for a new one next time."""
        with self._lock:
            self._token = ""


def find_token_source(environment: Mapping[str, str]) -> TokenSource:
    """The default credentials of this machine, in the order every Google tool uses."""
    path = environment.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    if not path:
        config = environment.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
        usual = os.path.join(config, "application_default_credentials.json")
        path = usual if os.path.exists(usual) else ""
    if not path:
        host = environment.get("GCE_METADATA_HOST") or DEFAULT_HOST
        return TokenSource(lambda: _from_metadata(host))
    info = _read_file(path)
    if info.get("type") == "authorized_user":
        return TokenSource(lambda: _from_login(info, path))
    return TokenSource(_from_google_auth(path))


def _read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            info = json.load(file)
    except (OSError, ValueError) as error:
        raise AccessDeniedError(f"the credentials file {path} cannot be read ({error})", help=HELP) from error
    if not isinstance(info, dict):
        raise AccessDeniedError(f"the credentials file {path} is not a JSON object", help=HELP)
    return info


def _from_metadata(host: str) -> FetchedToken:
    path = "instance/service-accounts/default/token"

    def ask() -> tuple[int, bytes]:
        return read_metadata(host, path, timeout_seconds=5.0)[:2]

    return _fetch_token(ask, f"the metadata server {host}")


def _from_login(info: dict[str, Any], path: str) -> FetchedToken:
    try:
        form = {name: str(info[name]) for name in ("client_id", "client_secret", "refresh_token")}
    except KeyError as error:
        raise AccessDeniedError(f"the credentials file {path} has no {error}", help=HELP) from None
    body = urllib.parse.urlencode({**form, "grant_type": "refresh_token"}).encode()
    url = str(info.get("token_uri") or USER_TOKEN_URL)

    def ask() -> tuple[int, bytes]:
        response = _send(urllib.request.Request(url, data=body), 10.0)
        return response.status, response.data

    return _fetch_token(ask, "Google's token service")


def _fetch_token(ask: Callable[[], tuple[int, bytes]], who: str) -> FetchedToken:
    try:
        status, body = ask()
        if status >= 500 or status == 429:
            raise StoreUnavailableError(f"{who} answered {status} when asked for a token")
        if not 200 <= status < 300:
            raise AccessDeniedError(f"{who} gives no token (HTTP {status})", help=HELP)
        found = json.loads(body)
        return str(found["access_token"]), float(found.get("expires_in", 300))
    except (OSError, http.client.HTTPException) as error:
        raise AccessDeniedError(
            f"there are no Google credentials here, and {who} does not answer", help=HELP
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise AccessDeniedError(f"{who} sent no usable token", help=HELP) from error


def _from_google_auth(path: str) -> Callable[[], FetchedToken]:
    needs = f"the credentials file {path} needs google-auth, which is not installed"
    load_extra("google.auth.exceptions", needs, get="run: pip install 'stayfast[gcs]'")
    import google.auth
    import google.auth.exceptions

    try:
        credentials, _ = google.auth.default(scopes=[SCOPE])  # finds the same file
    except (google.auth.exceptions.GoogleAuthError, ValueError) as error:
        raise AccessDeniedError(f"the credentials file {path} is of no use ({error})", help=HELP) from error
    keep_apart("google.auth")  # only now: what the kind of credentials needs has just been imported

    def fetch() -> FetchedToken:
        try:
            credentials.refresh(_Transport())
        except google.auth.exceptions.TransportError as error:
            raise StoreUnavailableError(f"Google's token service cannot be reached ({error})") from error
        except google.auth.exceptions.GoogleAuthError as error:
            raise AccessDeniedError(f"Google refused the credentials in {path} ({error})", help=HELP) from error
        return str(credentials.token), 3000.0

    return fetch


class _Transport:
    """What google-auth asks of an HTTP client, on the standard library."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 20.0,
        **_unused: Any,
    ) -> Any:
        import google.auth.exceptions

        data = body.encode() if isinstance(body, str) else body
        request = urllib.request.Request(url, data=data, headers=dict(headers or {}), method=method)
        try:
            return _send(request, timeout)
        except (OSError, http.client.HTTPException) as error:
            raise google.auth.exceptions.TransportError(error) from error


class _Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: bytes


def _send(request: urllib.request.Request, timeout: float | None) -> _Response:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return _Response(response.status, dict(response.headers), response.read(1 << 20))
    except urllib.error.HTTPError as error:
        with error:
            return _Response(error.code, dict(error.headers), error.read(1 << 20))
