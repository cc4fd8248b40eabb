"""HTTP to one API server on the standard library: TLS, proxies, kept connections, streams, bounded waits."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from stayfast.cluster.kubernetes.credentials import ClientCertificate
from stayfast.cluster.kubernetes.endpoint import Endpoint, split_server
from stayfast.errors import ClusterConfigError, ClusterUnreachableError
from stayfast.storage.network.transport import ConnectionPool, RequestNotSentError, ResponseLostError

CONNECT_SECONDS = 10.0
MAX_BODY_BYTES = 256 << 20
MAX_LINE_BYTES = 32 << 20
WAITED_SECONDS = 0.005
"""A read that took longer had nothing to read at first."""
_MANAGED, _NOT_MANAGED = re.compile(rb'"managedFields":\[\{.*?\}\]', re.DOTALL), b'"managedFields":[]'


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers (lower case) and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    warnings: tuple[str, ...] = ()

    def json(self) -> Any:
        """The body as JSON without who manages which field; ``ValueError`` when it is none."""
        return parse(self.body)


def parse(text: bytes) -> Any:
    """JSON from the API server; ``ValueError`` when it is none.

    Half of an object is the record of who manages which field, which nobody here reads: it is cut out of the text, for
    parsing is most of what a list or a watch costs. No string of JSON can hold the quotes of its key.
    """
    try:
        try:
            return json.loads(_MANAGED.sub(_NOT_MANAGED, text))
        except ValueError:  # a name in the record that looks like its end
            return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class ResponseStream:
    """An answer that goes on: lines as they come, until the server ends it or somebody closes it."""

    def __init__(
        self, connection: http.client.HTTPConnection, sock: socket.socket, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._sock = sock  # http.client forgets it when the server announces to close
        self._response = response
        self._interrupted = threading.Event()
        self.status = response.status
        self.headers = _headers(response)

    def lines(self, *, calm_seconds: float = 0.0) -> Iterator[bytes]:
        """Whole lines; a broken connection raises ``AnswerLostError``.

        ``calm_seconds`` are waited after a line that had to be waited for: what trickles in is read in handfuls, and
        what has piled up is read without a pause.
        """
        rest = b""
        try:
            while True:
                asked_at = time.monotonic()
                # Not readline(): on a chunked answer it costs several times what parsing the event does.
                data = self._response.read1(1 << 16)
                if not data:
                    break
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    yield line + b"\n"
                if len(rest) > MAX_LINE_BYTES:
                    raise ResponseLostError("a line longer than any event can be")
                if calm_seconds and time.monotonic() - asked_at > WAITED_SECONDS:
                    self._interrupted.wait(calm_seconds)
            if self._response.length:
                raise ResponseLostError(f"{self._response.length} bytes of the answer are missing")
            if rest:
                yield rest
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ResponseLostError(_words(error)) from error
        finally:
            self.close()

    def read(self) -> bytes:
        """The whole body of an error."""
        try:
            return self._response.read(1 << 20)
        except (OSError, http.client.HTTPException):
            return b""
        finally:
            self.close()

    def interrupt(self) -> None:
        """Wake up whoever reads, from any other thread; the reader then closes."""
        self._interrupted.set()
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster

    def close(self) -> None:
        """Hang up; only where nobody else reads."""
        self._response.close()
        self._connection.close()


class Transport:
    """Requests to one server; safe to call from many threads."""

    def __init__(self, access: Endpoint, *, silence_seconds: float = 30.0) -> None:
        self._access = access
        self._secure, self._host, self._port, self._prefix = split_server(access.server)
        self._silence_seconds = silence_seconds
        self._lock = threading.Lock()
        self._connections = ConnectionPool(self._connect)
        self._context: Any = None
        self._certificate: ClientCertificate | None = None

    @property
    def where(self) -> str:
        """Host and port, for messages."""
        return f"{self._host}:{self._port}"

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """One request, one answer; the two errors say what may have become of it."""
        self._refresh()
        connection = self._connections.acquire()
        try:
            try:
                response = self._exchange(connection, method, target, headers, body)
            except (OSError, http.client.HTTPException) as error:
                raise ResponseLostError(_words(error)) from error
            data = _read_body(response)
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._connections.release(connection)
        return Response(response.status, _headers(response), data, _warnings(response))

    def stream(self, target: str, headers: Mapping[str, str], *, silence_seconds: float) -> ResponseStream:
        """A GET whose answer goes on; it has a connection of its own."""
        self._refresh()
        connection = self._connect()
        sock = connection.sock
        try:
            response = self._exchange(connection, "GET", target, headers, None)
            sock.settimeout(silence_seconds)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ResponseLostError(_words(error)) from error
        except BaseException:
            connection.close()
            raise
        return ResponseStream(connection, sock, response)

    def close(self) -> None:
        """Hang up."""
        self._connections.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str],
        body: bytes | None,
    ) -> http.client.HTTPResponse:  # fmt: skip
        sent = {**self._access.headers, **self._access.credential.headers(), **headers}
        connection.request(method, self._prefix + target, body=body, headers=sent)
        return connection.getresponse()

    def _refresh(self) -> None:
        """A plugin may have made a new certificate: connections under the old one are of no use."""
        certificate = self._access.credential.certificate()
        with self._lock:
            if certificate == self._certificate:
                return
            self._certificate, self._context = certificate, None
        self._connections.close()

    def _connect(self) -> http.client.HTTPConnection:
        host, port, tunnel = self._host, self._port, None
        if self._access.proxy_url:
            proxy = urlsplit(self._access.proxy_url)
            host, port, tunnel = proxy.hostname or "", proxy.port or 80, _tunnel_headers(proxy.username, proxy.password)
        if self._secure:
            with self._lock:
                self._context = self._context or self._build_context()
                context = self._context
            connection: http.client.HTTPConnection = _NamedConnection(
                host, port, timeout=CONNECT_SECONDS, context=context, server_name=self._access.tls.server_name
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        if tunnel is not None:
            connection.set_tunnel(self._host, self._port, tunnel)
        try:
            connection.connect()
        except (
            OSError,
            http.client.HTTPException,
            ValueError,
        ) as error:  # ValueError: a name that is none in DNS or TLS
            connection.close()
            if type(error).__name__ == "SSLCertVerificationError":  # ssl is loaded only where there is TLS
                why = getattr(error, "verify_message", "") or "certificate verify failed"
                raise ClusterUnreachableError(
                    f"the API server {self.where} shows a certificate that the kubeconfig does not trust "
                    f"(certificate verify failed: {why})",
                    help=self._access.login_help,
                ) from error
            raise RequestNotSentError(_words(error)) from error
        sock = connection.sock
        sock.settimeout(self._silence_seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A quiet watch over a dead path would otherwise look like a cluster in which nothing happens.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return connection

    def _build_context(self) -> Any:
        import ssl

        tls = self._access.tls
        try:
            context = ssl.create_default_context(cafile=tls.ca_file, cadata=tls.ca_data)
        except (OSError, ValueError) as error:
            where = tls.ca_file or "the certificate authority of the kubeconfig"
            raise ClusterConfigError(f"{where} is not a usable certificate ({_words(error)})") from None
        # Python 3.13 made this strictness its default; many clusters' own authorities lack the extensions it demands.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls.skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._certificate is not None:
            _load_certificate(context, self._certificate)
        return context


class _NamedConnection(http.client.HTTPSConnection):
    """TLS to a server whose certificate carries another name (``tls-server-name``), through a tunnel or not."""

    def __init__(self, host: str, port: int, *, timeout: float, context: Any, server_name: str | None) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._tls_context = context
        self._server_name = server_name

    def connect(self) -> None:
        if self._server_name is None:
            super().connect()
            return
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls_context.wrap_socket(self.sock, server_hostname=self._server_name)


def _load_certificate(context: Any, certificate: ClientCertificate) -> None:
    """OpenSSL reads keys from files only: one that nobody else can read, for as long as the call lasts."""
    import ssl

    descriptor, path = tempfile.mkstemp(prefix="stayfast-")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(certificate.chain.rstrip("\n") + "\n" + certificate.key.rstrip("\n") + "\n")
        context.load_cert_chain(path, password=lambda: "")  # never ask a terminal for a password
    except (ssl.SSLError, OSError, ValueError, UnicodeError) as error:
        raise ClusterConfigError(f"the client certificate cannot be used ({type(error).__name__})") from None
    finally:
        os.unlink(path)


def _tunnel_headers(user: str | None, password: str | None) -> dict[str, str]:
    if not user:
        return {}
    import base64

    pair = f"{unquote(user)}:{unquote(password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _read_body(response: http.client.HTTPResponse) -> bytes:
    try:
        data = response.read(MAX_BODY_BYTES + 1)
        if response.length and len(data) <= MAX_BODY_BYTES:  # read() with a limit says nothing about a torn body
            raise ResponseLostError(f"{response.length} bytes of the answer are missing")
        if response.getheader("Content-Encoding") == "gzip":
            inflater = zlib.decompressobj(wbits=31)
            data = inflater.decompress(data, MAX_BODY_BYTES + 1)
            if not inflater.eof and len(data) <= MAX_BODY_BYTES:
                raise ResponseLostError("the compressed answer stopped in the middle")
    except (OSError, http.client.HTTPException, zlib.error) as error:
        raise ResponseLostError(_words(error)) from error
    if len(data) > MAX_BODY_BYTES:
        raise ClusterUnreachableError(f"the API server sent more than {MAX_BODY_BYTES >> 20} MiB in one answer")
    return data


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _warnings(response: http.client.HTTPResponse) -> tuple[str, ...]:
    """``299 - "text"`` becomes the text: what the server accepted but dislikes."""
    found = []
    for value in response.headers.get_all("Warning") or ():
        text = value.partition('"')[2].rpartition('"')[0] or value
        found.append(text.replace('\\"', '"').replace("\\\\", "\\"))
    return tuple(found)


def _words(error: BaseException) -> str:
    text = str(error)
    return text or type(error).__name__
