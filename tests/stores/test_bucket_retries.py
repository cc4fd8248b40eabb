"""What a bucket sends again and what it never does, over a client that answers as it is told."""

from __future__ import annotations

from typing import Any

import pytest

from stayfast.clock import ManualClock
from stayfast.errors import ConflictError, KeyMissingError, OutcomeUnknownError, StoreError, StoreUnavailableError
from stayfast.storage.network.transport import (
    SLICE_BYTES,
    HttpTransport,
    RequestNotSentError,
    Response,
    ResponseLostError,
)
from stayfast.storage.stores import bucket, gcs
from stayfast.storage.stores.bucket import TRIES, BucketStore
from stayfast.storage.stores.bucket_client import ObjectInfo
from stayfast.storage.stores.gcs import GcsClient
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry

LOST = OutcomeUnknownError("the answer was lost")
DOWN = StoreUnavailableError("503")


class Told:
    """One object; every send takes the next word: an error, or what is done before an error."""

    def __init__(self, *words: Any) -> None:
        self.words = list(words)
        self.data: bytes | None = None
        self.looks: list[Exception] = []
        self.pages: list[list[Entry]] = []
        self.sent = 0

    def put(self, name: str, data: Any, if_generation: str | None) -> str:
        self.sent += 1
        word = self.words.pop(0) if self.words else None
        if isinstance(word, bytes):
            self.data, word = word, LOST
        elif isinstance(word, str):  # what was sent before, by us or by somebody else, arrives now
            self.data, word = word.encode(), ConflictError("412")
        if word is not None:
            raise word
        if if_generation == ABSENT and self.data is not None:
            raise ConflictError("412")
        self.data = bytes(data)
        return "7"

    def head(self, name: str) -> ObjectInfo:
        if self.looks:
            raise self.looks.pop(0)
        if self.data is None:
            raise KeyMissingError("404")
        return ObjectInfo("7", len(self.data))

    def get(self, name: str, offset: int, length: int | None) -> Blob:
        assert self.data is not None
        return Blob(self.data[offset : None if length is None else offset + length], "7")

    def list_page(self, prefix: str, token: str) -> tuple[list[Entry], str]:
        number = int(token or 0)
        return self.pages[number], str(number + 1) if number + 1 < len(self.pages) else ""

    def close(self) -> None: ...


def store_over(client: Told) -> BucketStore:
    return BucketStore(gcs.PROVIDER, "bucket", "run", client=client, clock=ManualClock())  # type: ignore[arg-type]


@pytest.mark.parametrize("word", [LOST, DOWN])
def test_a_commit_is_sent_once_whatever_became_of_it(word: Exception) -> None:
    client = Told(word)
    with pytest.raises(type(word)):
        store_over(client).put("HEAD.json", b"x", if_generation="6")
    assert client.sent == 1


def test_a_lost_create_that_happened_is_ours() -> None:
    client = Told(b"mine")
    assert store_over(client).put("part", b"mine", if_generation=ABSENT) == "7"
    assert client.sent == 1


def test_a_lost_create_that_did_not_happen_is_sent_again() -> None:
    client = Told(LOST, DOWN)
    assert store_over(client).put("part", b"mine", if_generation=ABSENT) == "7"
    assert (client.sent, client.data) == (3, b"mine")


@pytest.mark.parametrize("theirs", [b"min", b"mine and more", b"Mine-and-long", b"mine-and-lonG"])
def test_what_somebody_else_created_meanwhile_is_not_ours(theirs: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every byte of it: where the cloud gives no digest the first ones say nothing about the last."""
    monkeypatch.setattr(bucket, "COMPARE_BYTES", 4)
    with pytest.raises(ConflictError):
        store_over(Told(theirs)).put("part", b"mine-and-long", if_generation=ABSENT)


@pytest.mark.parametrize("late", ["mine", "else"])
def test_a_conflict_after_a_lost_answer_is_looked_at(late: str) -> None:
    """Nothing was there after the first request; at the second something is: it may be the first."""
    client = Told(LOST, late)
    if late == "mine":
        assert store_over(client).put("part", b"mine", if_generation=ABSENT) == "7"
    else:
        with pytest.raises(ConflictError):
            store_over(client).put("part", b"mine", if_generation=ABSENT)


def test_a_conflict_without_a_lost_answer_is_one() -> None:
    client = Told()
    client.data = b"mine"
    with pytest.raises(ConflictError):
        store_over(client).put("part", b"mine", if_generation=ABSENT)


def test_a_lost_answer_is_not_forgotten_over_an_outage() -> None:
    """ "Nothing was written" would be a lie: the first request may arrive yet."""
    with pytest.raises(OutcomeUnknownError):
        store_over(Told(LOST, *[DOWN] * TRIES)).put("part", b"mine", if_generation=ABSENT)
    with pytest.raises(StoreUnavailableError):
        store_over(Told(*[DOWN] * TRIES)).put("part", b"mine", if_generation=ABSENT)


def test_a_lost_create_that_cannot_be_looked_at_stays_unknown() -> None:
    client = Told(LOST)
    client.looks = [DOWN] * TRIES
    with pytest.raises(OutcomeUnknownError):
        store_over(client).put("part", b"mine", if_generation=ABSENT)
    assert client.sent == 1


def test_a_listing_has_all_its_pages_and_nobody_elses() -> None:
    client = Told()
    client.pages = [
        [Entry("run/a", 1), Entry("run/b/", 0)],
        [],
        [Entry("run/c", 3), Entry("run/d//e", 1), Entry("running/x", 1), Entry("run/.tmp-1", 1)],
        [Entry("run/z", 4)],
    ]
    assert list(store_over(client).keys("")) == [Entry("a", 1), Entry("c", 3), Entry("z", 4)]


def gcs_answering(answer: Response, monkeypatch: pytest.MonkeyPatch) -> GcsClient:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
    client = GcsClient("bucket")
    monkeypatch.setattr(client._wire, "request", lambda *_, **__: answer)
    return client


@pytest.mark.parametrize("body", [b"{}", b'{"generation": null}', b'{"generation": "x"}', b"[]", b"", b"<html>"])
def test_a_write_whose_answer_names_no_generation_may_have_happened(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutcomeUnknownError):
        gcs_answering(Response(200, {}, body), monkeypatch).put("HEAD.json", b"x", "6")


def test_a_server_that_sends_the_beginning_for_the_middle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = gcs_answering(Response(200, {}, b"", 4), monkeypatch)
    assert client.get_into("part", memoryview(bytearray(4)), 0) == 4
    with pytest.raises(StoreError, match="ranges"):
        client.get_into("part", memoryview(bytearray(4)), 4)


class Cut:
    """A connection that breaks at the n-th slice of a body."""

    sock = object()

    def __init__(self, slices: int, error: OSError) -> None:
        self.slices, self.error, self.closed = slices, error, False

    def send(self, data: Any) -> None:
        if not self.slices:
            raise self.error
        self.slices -= 1

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.mark.parametrize(
    ("size", "slices", "error", "meaning"),
    [
        (3, 0, BrokenPipeError(), ResponseLostError),  # all of it was on its way
        (SLICE_BYTES, 0, TimeoutError(), ResponseLostError),
        (SLICE_BYTES * 3, 2, ConnectionResetError(), ResponseLostError),
        (SLICE_BYTES * 3, 1, TimeoutError(), RequestNotSentError),
        (SLICE_BYTES * 3, 1, BrokenPipeError(), None),  # it may say why: the answer is read
    ],
)
def test_only_a_body_that_was_certainly_cut_short_cannot_have_been_applied(
    size: int, slices: int, error: OSError, meaning: type[Exception] | None
) -> None:
    connection: Any = Cut(slices, error)
    if meaning is None:
        assert HttpTransport._send(connection, "POST", "/", {}, bytes(size)) is error
        return
    with pytest.raises(meaning):
        HttpTransport._send(connection, "POST", "/", {}, bytes(size))


@pytest.mark.parametrize("whole", [True, False])
def test_a_connection_with_half_an_answer_in_it_is_not_used_again(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, connection = HttpTransport("http://127.0.0.1:9"), Cut(9, OSError())
    kept: list[Any] = []
    monkeypatch.setattr(wire._connections, "acquire", lambda: connection)
    monkeypatch.setattr(wire._connections, "release", kept.append)
    monkeypatch.setattr(HttpTransport, "_receive", staticmethod(lambda *_: Response(206, {}, b"", 4, fully_read=whole)))
    wire.request("GET", "/part", into=memoryview(bytearray(4)))
    assert (bool(kept), connection.closed) == (whole, not whole)
