"""Containers of a pod: command, environment, resources, mounts."""

from __future__ import annotations

from typing import Any

from stayfast.documents.lookup import items, mapping, text
from stayfast.documents.positions import Path
from stayfast.text.units import quantity


class Container:
    """One container, with its parts in the shapes that rules want."""

    __slots__ = ("_text", "args", "command", "environment", "image", "limits", "name", "path", "requests", "value")

    def __init__(self, value: dict[str, Any], path: Path) -> None:
        self.value = value
        self.path = path
        self.name = text(value.get("name"))
        self.image = text(value.get("image"))
        self.command = [str(part) for part in items(value.get("command"))]
        self.args = [str(part) for part in items(value.get("args"))]
        resources = mapping(value.get("resources"))
        self.requests = mapping(resources.get("requests"))
        self.limits = mapping(resources.get("limits"))
        self.environment: dict[str, tuple[Any, Path]] = {}
        for index, entry in enumerate(items(value.get("env"))):
            name = mapping(entry).get("name")
            if isinstance(name, str):
                self.environment[name] = (entry.get("value"), (*path, "env", index))
        self._text: str | None = None

    @property
    def words(self) -> list[str]:
        """Command and arguments in one list."""
        return self.command + self.args

    @property
    def command_text(self) -> str:
        """Command and arguments as one text."""
        if self._text is None:
            self._text = " ".join(self.words)
        return self._text

    def request(self, resource: str) -> float | None:
        """The request, or the limit where there is no request; ``None`` where there is neither."""
        value = self.requests.get(resource)
        if value is None:
            value = self.limits.get(resource)
        return None if value is None else (quantity(value) or 0.0)

    def mentions(self, resource: str) -> bool:
        """Whether a request or limit for the resource is written, even with a value that cannot be read."""
        return resource in self.requests or resource in self.limits

    def mounts(self) -> list[tuple[str, str, bool, Path]]:
        """``(volume, mount path, read only, path)`` of each mount."""
        found = []
        for index, mount in enumerate(items(self.value.get("volumeMounts"))):
            mount = mapping(mount)
            where = (*self.path, "volumeMounts", index)
            found.append((text(mount.get("name")), text(mount.get("mountPath")), mount.get("readOnly") is True, where))
        return found


def containers(spec: dict[str, Any], path: Path, field: str = "containers") -> list[Container]:
    """The containers of a pod spec."""
    return [
        Container(value, (*path, field, index))
        for index, value in enumerate(items(spec.get(field)))
        if isinstance(value, dict)
    ]
