"""Cloud Storage by its JSON API, over the standard library.

Chosen over client libraries by trying them (``docs/design/stores.md``): this is the API that emulators behind
``STORAGE_EMULATOR_HOST`` speak, generations are first-class in it, and nothing retries behind our back.
"""

from __future__ import annotations

import base64
import json
import os
from typing import Any
from urllib.parse import quote, urlencode

from stayfast.errors import OutcomeUnknownError, SettingError, StoreError, StoreUnavailableError
from stayfast.filesystem import Buffer
from stayfast.storage.network.google_tokens import TokenSource, find_token_source
from stayfast.storage.network.transport import HttpTransport, RequestNotSentError, Response, ResponseLostError
from stayfast.storage.stores.bucket_client import BucketProvider, ErrorResponse, ObjectInfo
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry

HOST = "https://storage.googleapis.com"
META_FIELDS = "generation,size,md5Hash"
LIST_FIELDS = "items(name,size),nextPageToken"


class GcsClient:
    """One bucket of Cloud Storage, or of an emulator."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        if emulator and "://" not in emulator:
            emulator = "http://" + emulator
        self._tokens: TokenSource | None = None if emulator else find_token_source(os.environ)
        try:
            self._wire = HttpTransport(emulator or HOST)
        except ValueError as error:
            raise SettingError(f"STORAGE_EMULATOR_HOST cannot be used: {error}", help="set it to host:port") from None
        self._objects = f"/storage/v1/b/{quote(bucket, safe='')}/o"
        self._upload = f"/upload/storage/v1/b/{quote(bucket, safe='')}/o"

    def get(self, name: str, offset: int, length: int | None) -> Blob:
        headers = _range(offset, length)
        if length == 0:
            return Blob(b"", self.head(name).generation)
        answer = self._request("GET", self._object_path(name, alt="media"), name, "read", headers=headers)
        if answer.status == 416:  # the range starts past the end
            return Blob(b"", self.head(name).generation)
        data = answer.body
        if headers and answer.status == 200:  # a server that ignores ranges sends everything
            data = data[offset : None if length is None else offset + length]
        generation = answer.headers.get("x-goog-generation")
        return Blob(data, generation or self.head(name).generation)  # an emulator may not say

    def get_into(self, name: str, buffer: memoryview, offset: int) -> int:
        if not len(buffer):
            return 0
        headers = _range(offset, len(buffer))
        answer = self._request("GET", self._object_path(name, alt="media"), name, "read", headers=headers, into=buffer)
        if answer.status == 416:
            return 0
        if offset and answer.status == 200:
            raise StoreError(f"the server of gs://{self._bucket} ignores byte ranges", help="use another server")
        return answer.bytes_read

    def put(self, name: str, data: Buffer, if_generation: str | None) -> str:
        query = {"uploadType": "media", "name": name, "fields": "generation"}
        if if_generation is not None:
            query["ifGenerationMatch"] = "0" if if_generation == ABSENT else if_generation
        target = f"{self._upload}?{urlencode(query)}"
        headers = {"Content-Type": "application/octet-stream"}
        answer = self._request("POST", target, name, "write", headers=headers, body=data)
        try:
            return str(int(json.loads(answer.body)["generation"]))
        except (ValueError, KeyError, TypeError) as error:
            raise OutcomeUnknownError(f"the answer to the write of {name} names no generation") from error

    def head(self, name: str) -> ObjectInfo:
        found = self._json(self._object_path(name, fields=META_FIELDS), name, "read")
        md5 = found.get("md5Hash")
        return ObjectInfo(
            generation=str(found.get("generation", "")),
            size=int(found.get("size", 0)),
            md5=base64.b64decode(md5).hex() if isinstance(md5, str) else None,
        )

    def list_page(self, prefix: str, token: str) -> tuple[list[Entry], str]:
        query = {"prefix": prefix, "fields": LIST_FIELDS, "maxResults": "1000"}
        if token:
            query["pageToken"] = token
        found = self._json(f"{self._objects}?{urlencode(query)}", "", "list")
        entries = [Entry(str(row["name"]), int(row.get("size", 0))) for row in found.get("items") or ()]
        return entries, str(found.get("nextPageToken") or "")

    def delete(self, name: str) -> None:
        self._request("DELETE", self._object_path(name), name, "delete")

    def bucket_metadata(self, fields: str) -> dict[str, Any]:
        """Of the bucket itself."""
        bucket = self._objects.removesuffix("/o")
        return self._json(f"{bucket}?{urlencode({'fields': fields})}", "", "describe")

    def close(self) -> None:
        self._wire.close()

    # -- inside

    def _object_path(self, name: str, **query: str) -> str:
        target = f"{self._objects}/{quote(name, safe='')}"
        return f"{target}?{urlencode(query)}" if query else target

    def _json(self, target: str, name: str, verb: str) -> dict[str, Any]:
        answer = self._request("GET", target, name, verb)
        try:
            found = json.loads(answer.body)
        except ValueError as error:
            raise StoreUnavailableError(f"gs://{self._bucket} answered with something that is not JSON") from error
        if not isinstance(found, dict):
            raise StoreUnavailableError(f"gs://{self._bucket} answered with something that is not an object")
        return found

    def _request(
        self,
        method: str,
        target: str,
        name: str,
        verb: str,
        *,
        headers: dict[str, str] | None = None,
        body: Buffer | None = None,
        into: memoryview | None = None,
    ) -> Response:
        answer = self._request_once(method, target, name, verb, headers or {}, body, into)
        if answer.status == 401 and self._tokens is not None:  # the token was revoked early: certainly not applied
            self._tokens.invalidate()
            answer = self._request_once(method, target, name, verb, headers or {}, body, into)
        ranged = verb == "read" and answer.status == 416
        if 200 <= answer.status < 300 or ranged or (verb == "delete" and answer.status == 404):
            return answer
        raise ErrorResponse(PROVIDER, self._bucket, name, verb, answer.status, _reason(answer)).to_error()

    def _request_once(
        self,
        method: str,
        target: str,
        name: str,
        verb: str,
        headers: dict[str, str],
        body: Buffer | None,
        into: memoryview | None,
    ) -> Response:
        if self._tokens is not None:
            headers = {**headers, "Authorization": f"Bearer {self._tokens()}"}
        place = f"{name or '(listing)'} in gs://{self._bucket}"
        try:
            return self._wire.request(method, target, headers=headers, body=body, into=into)
        except RequestNotSentError as error:
            raise StoreUnavailableError(f"cannot {verb} {place}: {error}") from error
        except ResponseLostError as error:
            if verb == "write":
                raise OutcomeUnknownError(f"the answer to the write of {place} was lost ({error})") from error
            raise StoreUnavailableError(f"cannot {verb} {place}: {error}") from error


PROVIDER = BucketProvider(
    scheme="gs",
    example="gs://bucket/prefix",
    credentials_help="grant the service account roles/storage.objectAdmin on the bucket, "
    "or check which account the pod runs as",
    impossible_generation="1",
    endpoint_variables=("STORAGE_EMULATOR_HOST",),
    needs_keys=False,
    open_client=GcsClient,
)


def _range(offset: int, length: int | None) -> dict[str, str]:
    if length is None:
        return {"Range": f"bytes={offset}-"} if offset else {}
    return {"Range": f"bytes={offset}-{offset + length - 1}"}


def _reason(answer: Response) -> str:
    """The server's word for it; a missing bucket and a missing object differ only in this."""
    try:
        error = json.loads(answer.body)["error"]
        text = f"{error['errors'][0]['reason']} {error.get('message', '')}"
    except (ValueError, KeyError, TypeError, IndexError):
        return ""
    if answer.status == 404:
        return "NoSuchBucket" if "bucket does not exist" in text else "notFound"
    return str(text.split(" ", 1)[0])
