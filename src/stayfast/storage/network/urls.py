"""URLs taken apart and shown without passwords; an invalid one raises ``UrlError`` with a sentence."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

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


def url_without_user(url: str) -> str:
    """The URL without user and password: what a database is called in messages."""
    parts = parse_url(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def url_without_password(url: str) -> str:
    """The URL with the user, and with ``…`` for every password: for pages that other people read."""
    scheme, mark, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    if at and ":" in user:
        place = f"{user.partition(':')[0]}:…@{host}"
    path, question, query = path.partition("?")
    options = [part if not part.startswith("password=") else "password=…" for part in query.split("&")]
    return f"{scheme}{mark}{place}{slash}{path}{question}{'&'.join(options)}"


def parse_options(url: str, query: str, allowed: tuple[str, ...]) -> dict[str, str]:
    """The part behind ``?``, with every name known and given once."""
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in allowed or name in options or not value:
            what = "unknown" if name not in allowed else "given twice" if name in options else "empty"
            raise UrlError(
                f"the option {name!r} of {redacted_url(url)!r} is {what}", help=f"known options: {', '.join(allowed)}"
            )
        options[name] = value
    return options


def queue_name(url: str) -> str:
    """``?queue=name``, or the last part of the path; never the whole URL, which may hold a password."""
    plain, _, query = url.partition("?")
    chosen = next((part[6:] for part in query.split("&") if part.startswith("queue=")), None)
    return chosen or plain.rpartition("/")[2]
