"""What proves to the API server who we are: a token, a token file, a certificate, or a plugin that makes one.

A credential gives headers for each request and, for some, a client certificate for the connection. ``renew`` is called
once after a 401; it says whether trying again makes sense.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from typing import NamedTuple, Protocol

from stayfast.clock import Clock, SystemClock
from stayfast.errors import ClusterConfigError

TOKEN_FILE_SECONDS = 60.0  # the kubelet rotates the file; client-go looks again as often


class ClientCertificate(NamedTuple):
    """A certificate chain and its key, as PEM text."""

    chain: str
    key: str

    def __repr__(self) -> str:
        return "ClientCertificate(…)"


class Credential(Protocol):
    """All that the transport asks."""

    def headers(self) -> dict[str, str]:
        """For the next request; may run a plugin or read a file first."""

    def certificate(self) -> ClientCertificate | None:
        """For the next connection; another object than last time means that connections have to be made anew."""

    def renew(self) -> bool:
        """The server said 401: forget what is cached; false when there is nothing better to offer."""


class FixedCredential:
    """What the kubeconfig itself holds: a token, a name and password, a certificate, or nothing."""

    def __init__(
        self,
        *,
        token: str | None = None,
        password: tuple[str, str] | None = None,
        certificate: ClientCertificate | None = None,
    ) -> None:
        self._headers: dict[str, str] = {}
        if token:
            self._headers["Authorization"] = f"Bearer {validate_token(token, 'the kubeconfig')}"
        elif password is not None:
            pair = base64.b64encode(f"{password[0]}:{password[1]}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._certificate = certificate

    def headers(self) -> dict[str, str]:
        return dict(self._headers)

    def certificate(self) -> ClientCertificate | None:
        return self._certificate

    def renew(self) -> bool:
        return False


class TokenFile:
    """A token in a file that somebody else keeps fresh, as in every pod."""

    def __init__(self, path: str, *, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._token = ""
        self._read_at = 0.0

    def headers(self) -> dict[str, str]:
        with self._lock:
            now = self._clock.monotonic()
            if not self._token or now - self._read_at >= TOKEN_FILE_SECONDS:
                self._token = self._read()
                self._read_at = now
            return {"Authorization": f"Bearer {self._token}"}

    def certificate(self) -> ClientCertificate | None:
        return None

    def renew(self) -> bool:
        with self._lock:
            before, self._token = self._token, ""
            return self._read() != before

    def _read(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                token = file.read(1 << 20).strip()
        except (OSError, UnicodeError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not text"
            raise ClusterConfigError(
                f"the token file {self._path} cannot be read ({reason})", help="check the account of the pod"
            ) from None
        return validate_token(token, self._path)


def validate_token(token: str, where: str) -> str:
    """The token, if it can stand in a header; a line break in it would smuggle in another header."""
    if not token or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ClusterConfigError(f"{where} holds a token that is empty or has characters no token has")
    return token
