"""URLs taken apart and shown without passwords; an invalid one raises ``UrlError`` with a sentence."""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from stayfast.errors import UrlError

_CONNECT_SECONDS = 10
_DATABASE_OPTIONS = ("queue", "table")
_DRIVER_OPTIONS = ("host", "port", "sslmode", "sslrootcert", "options", "connect_timeout", "application_name")
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


def parse_address(url: str) -> tuple[bool, str, int]:
    """Whether to use TLS, host and port; ``ValueError`` with a sentence when it is no such address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[A-Za-z0-9._:-]+", parts.hostname or ""):
        raise ValueError(f"{url!r} is not an address like http://host:port")
    secure = parts.scheme == "https"
    return secure, parts.hostname or "", parts.port or (443 if secure else 80)


def parse_sqlite_url(url: str, allowed: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Path and options of ``sqlite:///path.db?option=value``; an unknown option is an error, not a guess."""
    parts = parse_url(url)
    if parts.netloc in (".", ".."):
        path = os.path.abspath(parts.netloc + unquote(parts.path))
    elif parts.netloc:
        raise UrlError(
            f"the URL {url!r} names a host",
            help=f"write sqlite://./{parts.netloc}{parts.path} for a file here, "
            f"sqlite:///{parts.netloc}{parts.path} for a path from the root",
        )
    else:
        path = "/" + unquote(parts.path).lstrip("/")
    if path == "/" or "\0" in path:
        raise UrlError(f"the URL {url!r} names no file", help="write sqlite:///path/to/work.db?queue=name")
    return path, parse_options(url, parts.query, allowed)


def parse_postgres_url(url: str) -> tuple[str, dict[str, str]]:
    """The connection string for the driver, and the options that are ours."""
    parts = parse_url(url)
    options = parse_options(url, parts.query, (*_DATABASE_OPTIONS, *_DRIVER_OPTIONS))
    ours = {name: options.pop(name) for name in _DATABASE_OPTIONS if name in options}
    options.setdefault("connect_timeout", str(_CONNECT_SECONDS))
    return urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options, quote_via=quote), "")), ours


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
    return chosen or plain.rstrip("/").rpartition("/")[2].rpartition("@")[2]
