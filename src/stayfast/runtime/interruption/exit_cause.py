"""Telling a lost peer from a bug: what collectives raise when another rank is gone."""

from __future__ import annotations

import re

_TYPES = {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"}
_WORDS = re.compile(
    r"connection (was )?(closed|reset|refused)|closed by (remote )?peer|remote process exited|broken pipe|"
    r"gloo/transport|nccl.*(remote|unhandled system|aborted|timeout)|socket (timeout|closed)|watchdog.*collective",
    re.IGNORECASE,
)


def is_peer_loss(error: BaseException) -> bool:
    """Whether this exception says that another rank vanished rather than that this one is wrong."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        names = {kind.__name__ for kind in type(link).__mro__}
        if names & _TYPES or isinstance(link, ConnectionError):
            return True
        if isinstance(link, RuntimeError) and _WORDS.search(str(link)):
            return True
        link = link.__cause__ or link.__context__
    return False
