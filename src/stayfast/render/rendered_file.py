"""One YAML file of a bundle: its name, what it is, and the objects in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stayfast.render.context import RenderContext


class RenderedFile(NamedTuple):
    """A file that is in the bundle where ``build`` gives any objects.

    Files of the top folder are applied in the order of their names; one in a folder is applied by a person, where its
    kinds are installed.
    """

    name: str
    about: str
    build: Callable[[RenderContext], list[dict[str, Any]]]

    @property
    def is_optional(self) -> bool:
        return "/" in self.name
