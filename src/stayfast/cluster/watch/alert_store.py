"""Which alerts were sent, kept over restarts in a file or a ConfigMap, so that nothing is sent twice."""

from __future__ import annotations

import contextlib
import json
from typing import NamedTuple, Protocol

from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS
from stayfast.cluster.watch.alerts import Alert
from stayfast.errors import ObjectConflictError, ObjectMissingError, StayfastError, UsageError
from stayfast.text.files import new_file_mode, replace_file

MOST_KEYS = 2000
QUIET_SECONDS = 600.0
"""A reason that was gone for less than this has not gone: it flutters."""
CONFLICTS = 5
_DATA_KEY = "alerts.json"


class AlertStorage(Protocol):
    """Where the state is kept: one text."""

    where: str
    """For a sentence."""

    def read(self) -> str | None:
        """What was kept, or nothing."""

    def write(self, text: str) -> None:
        """Keep this instead; ``ObjectConflictError`` when somebody else has written since it was read."""


class FileAlertStorage:
    """A file that is replaced as a whole."""

    def __init__(self, path: str) -> None:
        self._path = self.where = path

    def read(self) -> str | None:
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read(10_000_000)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError):
            raise UsageError(f"the state file {self._path} cannot be read", help="check --state") from None

    def write(self, text: str) -> None:
        try:
            replace_file(self._path, text.encode(), new_file_mode())
        except OSError as error:
            raise UsageError(
                f"the state file {self._path} cannot be written ({error.strerror})", help="check --state"
            ) from None


class ConfigMapAlertStorage:
    """A ConfigMap, for a watch that runs in the cluster; it has to exist, so that no right to create is needed."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self.where = f"ConfigMap {namespace}/{name}"
        self._version: str | None = None

    def read(self) -> str | None:
        try:
            found = self._client.get(CONFIG_MAPS, self._namespace, self._name)
        except ObjectMissingError:
            raise UsageError(
                f"there is no ConfigMap {self._name} in namespace {self._namespace}",
                help=f"run: kubectl create configmap {self._name} -n {self._namespace}",
            ) from None
        text = (found.get("data") or {}).get(_DATA_KEY)
        self._version = str((found.get("metadata") or {}).get("resourceVersion") or "") or None
        return text if isinstance(text, str) else None

    def write(self, text: str) -> None:
        change: Object = {"data": {_DATA_KEY: text}}
        if self._version is not None:
            change["metadata"] = {"resourceVersion": self._version}
        kept = self._client.merge(CONFIG_MAPS, self._namespace, self._name, change)
        self._version = str((kept.get("metadata") or {}).get("resourceVersion") or "") or None


class AlertChanges(NamedTuple):
    """What changed since the last look."""

    begun: list[Alert]
    over: list[str]
    """Keys."""


class AlertState:
    """Key -> when the reason was last seen, in wall-clock seconds."""

    def __init__(self, memory: AlertStorage | None = None) -> None:
        self._memory = memory
        self._seen = _understand(memory.read() if memory else None, memory.where if memory else "")

    def compare(self, alerts: list[Alert], now: float) -> AlertChanges:
        """What is new and what is over; remembers both before anybody is told, so that a crash repeats nothing.

        Of two watches with one memory the one that writes first tells: the other reads what was written, and finds
        nothing new in it.
        """
        for _ in range(CONFLICTS):
            news, changed = self._judge(alerts, now)
            if not changed or self._keep():
                return news
            assert self._memory is not None
            with contextlib.suppress(StayfastError):
                self._seen = _understand(self._memory.read(), self._memory.where)
        return news

    def _judge(self, alerts: list[Alert], now: float) -> tuple[AlertChanges, bool]:
        begun = [alert for alert in alerts if alert.key not in self._seen]
        present = {alert.key for alert in alerts}
        over = [key for key, last in self._seen.items() if key not in present and now - last > QUIET_SECONDS]
        for key in over:
            del self._seen[key]
        # Refreshing the moment alone is not worth a write each time: the file says when it began or was last kept.
        stale = any(now - self._seen.get(key, 0.0) > QUIET_SECONDS / 2 for key in present)
        if begun or over or stale:
            self._seen.update(dict.fromkeys(present, now))
            self._trim()
        return AlertChanges(begun, over), bool(begun or over or stale)

    def forget(self, alert: Alert) -> None:
        """It could not be told to anybody: try again next time."""
        self._seen.pop(alert.key, None)
        self._keep()

    def _trim(self) -> None:
        if len(self._seen) > MOST_KEYS:
            newest = sorted(self._seen.items(), key=lambda item: item[1], reverse=True)
            self._seen = dict(newest[:MOST_KEYS])

    def _keep(self) -> bool:
        """False when somebody else was faster; a memory that cannot be written does not stop the watch."""
        if self._memory is not None:
            try:
                self._memory.write(json.dumps(self._seen, separators=(",", ":")))
            except ObjectConflictError:
                return False
            except StayfastError:
                pass  # told twice after a restart is better than not told
        return True


def _understand(text: str | None, where: str) -> dict[str, float]:
    if not text:
        return {}
    try:
        return {str(key): float(value) for key, value in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"the state of the alerts in {where} is damaged", help="remove it; alerts may then be sent again"
        ) from None
