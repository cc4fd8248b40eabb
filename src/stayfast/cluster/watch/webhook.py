"""Alerts to a webhook, in the form that Slack takes: ``{"text": …}``, with the alert's fields beside it."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

from stayfast.clock import Clock, SystemClock
from stayfast.cluster.watch.alerts import Alert
from stayfast.errors import SettingError
from stayfast.text.safe import printable

TRIES = 4
TIMEOUT_SECONDS = 10.0


class Webhook:
    """One address; it is a secret and appears in no message."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        loopback = parts.hostname in ("127.0.0.1", "localhost", "::1")
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and loopback)):
            raise SettingError("the webhook is no https:// address", help="check STAYFAST_WEBHOOK_URL")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._clock = clock or SystemClock()

    def send(self, alert: Alert) -> str | None:
        """Nothing when it was taken; else why not. Redirects are not followed: the address is meant as written."""
        body = json.dumps({"text": text(alert), **alert._asdict()}).encode()
        why = ""
        for turn in range(TRIES):
            try:
                status, wait = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                status, wait, why = 0, "", type(error).__name__
            else:
                if 200 <= status < 300:
                    return None
                why = f"HTTP {status}"
                if status < 500 and status != 429:
                    return why  # asking again would get the same answer
            if turn < TRIES - 1:
                self._clock.sleep(min(60.0, float(wait)) if wait.isdigit() else 2.0**turn)
        return why

    def _post(self, body: bytes) -> tuple[int, str]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(
                "POST", self._target, body, {"Content-Type": "application/json", "User-Agent": "stayfast"}
            )
            response = connection.getresponse()
            response.read(65536)
            return response.status, response.getheader("Retry-After") or ""
        finally:
            connection.close()


def text(alert: Alert) -> str:
    """One line for a chat or a log."""
    more = f" ({alert.evidence})" if alert.evidence else ""
    return printable(f"[{alert.code}] {alert.namespace}/{alert.run}: {alert.sentence}{more}")
