"""S3 and its look-alikes, through ``obstore``: signatures, instance roles and web identities are its business.

Its own retries are off: they report one's own write as a conflict when the first answer was lost. Its errors say what
happened only in their text, so the text is read here, once, into our errors.
"""

from __future__ import annotations

import configparser
import os
import re
from typing import Any

from stayfast.errors import (
    AccessDeniedError,
    MissingExtraError,
    OutcomeUnknownError,
    SettingError,
    StoreError,
    StoreUnavailableError,
)
from stayfast.filesystem import Buffer
from stayfast.storage.network.urls import parse_address
from stayfast.storage.stores.bucket_client import BucketProvider, ErrorResponse, ObjectInfo
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry

ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
PAGE_ROWS = 1000
BULK_FROM_BYTES = 1 << 20
LARGEST_PUT_BYTES = 5 << 30  # S3's limit for one request
HELP = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with an instance role or web identity"

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_NEVER_SENT = re.compile(r"kind: Connect\b")  # and not "kind: ConnectionReset", which comes after sending
_CREDENTIALS = re.compile(r"latest/(api/token|meta-data)|169\.254\.170\.|AssumeRole|sts\.", re.IGNORECASE)


class S3Client:
    """One bucket of S3, or of a server behind ``AWS_ENDPOINT_URL``."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        try:
            import obstore.exceptions
            import obstore.store
        except ImportError as error:
            raise MissingExtraError(
                f"s3:// needs obstore, which is not installed ({error})", help="run: pip install 'stayfast[s3]'"
            ) from error
        self._obstore = obstore
        self._failures = (obstore.exceptions.BaseError, OSError, ValueError)
        config = _read_aws_profile(os.environ)
        _check_settings(os.environ)
        self._small = self._open(config, "15s")
        self._bulk = self._open({**config, "unsigned_payload": True}, "300s")  # parts carry their own checksums

    def _open(self, config: dict[str, Any], timeout: str) -> Any:
        try:
            return self._obstore.store.S3Store(
                self._bucket,
                config={"disable_bulk_delete": True, "virtual_hosted_style_request": False, **config},
                client_options={"allow_http": True, "timeout": timeout, "connect_timeout": "5s"},
                retry_config={"max_retries": 0},
            )
        except (self._obstore.exceptions.BaseError, ValueError) as error:
            raise StoreError(f"s3://{self._bucket} cannot be opened ({_first_line(error)})", help=HELP) from error

    def get(self, name: str, offset: int, length: int | None) -> Blob:
        data, generation = self._fetch(name, offset, length)
        return Blob(bytes(data), generation)

    def get_into(self, name: str, buffer: memoryview, offset: int) -> int:
        data, _ = self._fetch(name, offset, len(buffer))
        count = len(data)
        buffer.cast("B")[:count] = memoryview(data)
        return count

    def _fetch(self, name: str, offset: int, length: int | None) -> tuple[Any, str]:
        options: dict[str, Any] = {}
        if length == 0:
            return b"", self.head(name).generation
        if length is not None:
            options["range"] = (offset, offset + length)
        elif offset:
            options["range"] = {"offset": offset}
        store = self._small if length is not None and length < BULK_FROM_BYTES else self._bulk
        try:
            result = self._obstore.get(store, name, options=options)
            return result.bytes(), str(result.meta["e_tag"])
        except self._failures as error:
            if options and _status(error) == 416:
                return b"", self.head(name).generation
            raise self._translate(error, name, "read") from error

    def put(self, name: str, data: Buffer, if_generation: str | None) -> str:
        view = memoryview(data).cast("B")
        if len(view) > LARGEST_PUT_BYTES:
            raise StoreError(
                f"{name} is {len(view)} bytes; S3 takes at most 5 GiB in one object", help="use smaller parts"
            )
        mode: Any = "overwrite"
        if if_generation is not None:
            mode = "create" if if_generation == ABSENT else {"e_tag": if_generation}
        store = self._small if len(view) < BULK_FROM_BYTES else self._bulk
        try:
            result = self._obstore.put(store, name, view, mode=mode, use_multipart=False)
        except self._failures as error:
            raise self._translate(error, name, "write") from error
        generation = result["e_tag"]
        if not generation:
            raise OutcomeUnknownError(f"the answer to the write of {name} in s3://{self._bucket} names no ETag")
        return str(generation)

    def head(self, name: str) -> ObjectInfo:
        try:
            meta = self._obstore.head(self._small, name)
        except self._failures as error:
            raise self._translate(error, name, "read") from error
        tag = str(meta["e_tag"])
        plain = tag.strip('"')
        return ObjectInfo(tag, int(meta["size"]), plain if re.fullmatch(r"[0-9a-f]{32}", plain) else None)

    def list_page(self, prefix: str, token: str) -> tuple[list[Entry], str]:
        folder = prefix.rpartition("/")[0]  # obstore lists whole segments only; the rest is filtered above
        try:
            stream = self._obstore.list(self._small, folder or None, offset=token or None, chunk_size=PAGE_ROWS)
            rows: list[Any] = list(next(iter(stream), []))
        except self._failures as error:
            raise self._translate(error, "", "list") from error
        entries = [Entry(str(row["path"]), int(row["size"])) for row in rows]
        return entries, entries[-1].key if len(entries) >= PAGE_ROWS else ""

    def delete(self, name: str) -> None:
        try:
            self._obstore.delete(self._small, name)
        except FileNotFoundError:
            return
        except self._failures as error:
            raise self._translate(error, name, "delete") from error

    def close(self) -> None:
        """obstore keeps its own pool."""

    def _translate(self, error: Exception, name: str, verb: str) -> StoreError:
        text = str(error)
        status = _status(error)
        place = f"{name or '(listing)'} in s3://{self._bucket}"
        if f"/{self._bucket}" not in text and _CREDENTIALS.search(text):
            return AccessDeniedError(f"there are no AWS credentials for s3://{self._bucket}", help=HELP)
        if status:
            code = _CODE.search(text)
            if (
                status == 404
                and isinstance(error, self._obstore.exceptions.PreconditionError)
                and (code is None or code[1] != "NoSuchBucket")
            ):
                status = 412  # an if-generation put on an object that is gone
            return ErrorResponse(PROVIDER, self._bucket, name, verb, status, code[1] if code else "").to_error()
        if _NEVER_SENT.search(text):
            return StoreUnavailableError(f"cannot {verb} {place}: cannot connect ({_first_line(error)})")
        if verb == "write":
            return OutcomeUnknownError(f"the answer to the write of {place} was lost ({_first_line(error)})")
        return StoreUnavailableError(f"cannot {verb} {place}: {_first_line(error)}")


PROVIDER = BucketProvider(
    scheme="s3",
    example="s3://bucket/prefix",
    credentials_help="allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket on the bucket, "
    "or check the credentials",
    impossible_generation='"0123456789abcdef0123456789abcdef"',
    endpoint_variables=ENDPOINTS,
    needs_keys=True,
    open_client=S3Client,
)


def _status(error: Exception) -> int:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]


def _check_settings(environment: os._Environ[str]) -> None:
    """obstore panics on an address that is none, and reports other nonsense as a lost answer."""
    for name in ENDPOINTS:
        try:
            if environment.get(name):
                parse_address(environment[name])
        except ValueError as error:
            raise SettingError(f"{name} cannot be used: {error}", help="set it to http://host:port") from None
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if not re.fullmatch(r"[A-Za-z0-9-]*", environment.get(name, "")):
            raise SettingError(f"{name}={environment[name]!r} is not a region", help="set it like us-east-1")


def _read_aws_profile(environment: os._Environ[str]) -> dict[str, Any]:
    """Static keys and region of ``~/.aws``, which obstore does not read; the environment goes before them."""
    home = os.path.join(os.path.expanduser("~"), ".aws")
    profile = environment.get("AWS_PROFILE") or "default"
    files = configparser.RawConfigParser()
    try:
        files.read(
            [
                environment.get("AWS_CONFIG_FILE") or os.path.join(home, "config"),
                environment.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, "credentials"),
            ]
        )
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    found: dict[str, str] = {}
    for section in (f"profile {profile}", profile):
        if files.has_section(section):
            found.update(files.items(section))
    config: dict[str, Any] = {}
    if not environment.get("AWS_REGION") and not environment.get("AWS_DEFAULT_REGION") and found.get("region"):
        config["region"] = found["region"]
    roles = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    keys = ("aws_access_key_id", "aws_secret_access_key")
    if not any(environment.get(name) for name in roles) and all(found.get(name) for name in keys):
        config.update(access_key_id=found[keys[0]], secret_access_key=found[keys[1]])
        if found.get("aws_session_token"):
            config["session_token"] = found["aws_session_token"]
    return config
