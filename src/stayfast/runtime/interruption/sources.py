"""The table of notice sources: which there are, and which of them the settings ask for.

``Guard`` opens them inside a program, ``stayfast exec`` beside one. Another package adds a source through the entry
points of the group ``stayfast.notice_sources``, and ``STAYFAST_NOTICE_SOURCES`` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from stayfast.errors import SettingError
from stayfast.registry import Registry
from stayfast.settings import Settings

if TYPE_CHECKING:
    from stayfast.runtime.interruption.notice_board import NoticeBoard


class NoticeSource(Protocol):
    """Anything that can tell that the machine goes away; posts on the board it was made with."""

    def start(self) -> None:
        """Begin to watch; a setting that cannot be used is an error here."""

    def stop(self) -> None:
        """Watch no more."""


SOURCES: Registry[Callable[[NoticeBoard], NoticeSource]] = Registry(
    "stayfast.notice_sources",
    {
        "metadata": "stayfast.runtime.interruption.metadata_source:MetadataSource",
        "lease": "stayfast.runtime.interruption.machine_lease:MachineLeaseSource",
        "file": "stayfast.runtime.interruption.notice_file:NoticeFileSource",
    },
)


def source_names(settings: Settings, *, detect: bool = True) -> list[str]:
    """The sources that the settings ask for; without ``detect`` none that depends on the kind of machine alone."""
    metadata = settings.metadata == "on" or (
        settings.metadata == "auto" and (detect or settings.metadata_host is not None)
    )
    asked_for = {
        "metadata": metadata,
        "lease": settings.lease_ends_at is not None or settings.lease_file is not None,
        "file": settings.notice_file is not None,
    }
    return [*(name for name, wanted in asked_for.items() if wanted), *settings.notice_sources]


def open_sources(board: NoticeBoard, names: Sequence[str]) -> list[NoticeSource]:
    """A source for each name, not yet started."""
    sources = []
    for name in names:
        kind = SOURCES.find(name)
        if kind is None:
            known = ", ".join(SOURCES.installed_names())
            raise SettingError(
                f"STAYFAST_NOTICE_SOURCES={name!r} is not a notice source",
                help=f"install the package that adds it; there are {known}",
            )
        sources.append(kind(board))
    return sources
