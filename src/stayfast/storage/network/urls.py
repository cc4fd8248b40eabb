"""Taking URLs apart: what is no URL is one sentence, and no sentence shows a password."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from stayfast.errors import UrlError

_CREDENTIALS = re.compile(r"//[^/@]*@")


def parse_url(url: str) -> SplitResult:
    """The parts of a URL; brackets that do not close and ports that are no numbers are errors here, not later."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UrlError(
            f"{redacted_url(url)!r} is not a URL ({error})",
            help="check the host: brackets are for IPv6, ports are numbers",
        ) from None
    return parts


def redacted_url(url: str) -> str:
    """The URL without what stands before ``@``, for messages."""
    return _CREDENTIALS.sub("//…@", url)
