"""What a bucket's answers mean: which error, what is sent again, and how often; over real sockets."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from servers.bucket_server import BucketServer
from stayfast.clock import ManualClock
from stayfast.errors import (
    AccessDeniedError,
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    SettingError,
    StayfastError,
    StoreError,
    StoreUnavailableError,
    UrlError,
)
from stayfast.storage.network import google_tokens
from stayfast.storage.network.transport import HttpTransport, RequestNotSentError, ResponseLostError
from stayfast.storage.stores import gcs, s3
from stayfast.storage.stores.bucket import TRIES, BucketStore
from stayfast.storage.stores.gcs import GcsClient
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import ABSENT

SCHEMES = ("gs", "s3")
PROVIDERS = {"gs": gcs.PROVIDER, "s3": s3.PROVIDER}
LOST = ("lose_request", "reset", "apply_drop", "apply_reset", "apply_503", "stall", "apply_stall", "503", "500", "409")


@pytest.fixture(params=SCHEMES)
def store(request: pytest.FixtureRequest, bucket_server: BucketServer, cloud_environment: Any) -> BucketStore:
    cloud_environment(request.param, bucket_server.url)
    return BucketStore(PROVIDERS[request.param], "bucket", "run", clock=ManualClock())


@pytest.mark.parametrize("fault", LOST)
def test_a_conditional_put_is_sent_once_and_its_lost_answer_is_unknown(
    store: BucketStore, bucket_server: BucketServer, fault: str
) -> None:
    generation = store.put("object", b"old")
    bucket_server.arm(fault, op="put", seconds=0.05)
    sent = bucket_server.requests["put"]
    with pytest.raises(OutcomeUnknownError):
        store.put("object", b"new", if_generation=generation)
    assert bucket_server.requests["put"] == sent + 1
    assert bucket_server.injected[fault] == 1
    assert store.get("object").data == (b"new" if fault.startswith("apply") else b"old")


def test_too_many_requests_means_not_written(store: BucketStore, bucket_server: BucketServer) -> None:
    generation = store.put("object", b"old")
    bucket_server.arm("429", op="put")
    with pytest.raises(StoreUnavailableError):
        store.put("object", b"new", if_generation=generation)
    assert store.get("object").data == b"old"


@pytest.mark.parametrize("fault", [*LOST, "429"])
@pytest.mark.parametrize("size", [10, 3 << 20])
def test_a_created_part_survives_lost_answers(
    store: BucketStore, bucket_server: BucketServer, fault: str, size: int
) -> None:
    bucket_server.arm(fault, op="put", times=2, seconds=0.02)
    data = bytes(size - 1) + b"x"
    generation = store.put("part", data, if_generation=ABSENT)
    assert store.get("part").generation == generation
    assert store.get("part").data == data
    bucket_server.calm()
    with pytest.raises(ConflictError):
        store.put("part", data, if_generation=ABSENT)


def test_a_created_part_without_a_usable_checksum_is_compared_by_content(
    bucket_server: BucketServer, cloud_environment: Any
) -> None:
    bucket_server.weak_etags = True
    cloud_environment("s3", bucket_server.url)
    store = BucketStore(s3.PROVIDER, "bucket", "run", clock=ManualClock())
    bucket_server.arm("apply_drop", op="put")
    store.put("part", b"mine", if_generation=ABSENT)
    assert store.get("part").data == b"mine"


def test_somebody_elses_object_behind_a_lost_answer_is_a_conflict(
    store: BucketStore, bucket_server: BucketServer
) -> None:
    store.put("part", b"theirs")
    bucket_server.arm("lose_request", op="put")
    with pytest.raises(ConflictError, match="somebody else"):
        store.put("part", b"my own", if_generation=ABSENT)
    assert store.get("part").data == b"theirs"


def test_a_lost_answer_that_cannot_be_read_back_stays_unknown(store: BucketStore, bucket_server: BucketServer) -> None:
    bucket_server.arm("apply_drop", op="put")
    bucket_server.arm("503", op="look", times=TRIES)
    with pytest.raises(OutcomeUnknownError):
        store.put("part", b"x", if_generation=ABSENT)


@pytest.mark.parametrize("fault", ["lose_request", "reset", "torn", "stall", "429", "500", "503"])
def test_reads_are_tried_again(store: BucketStore, bucket_server: BucketServer, fault: str) -> None:
    data = bytes(range(256)) * 5000
    store.put("object", data)
    bucket_server.arm(fault, op="get", times=TRIES - 1, seconds=0.01)
    assert store.get("object").data == data
    bucket_server.arm(fault, op="get", times=2, seconds=0.01)
    buffer = bytearray(1000)
    assert store.read_into("object", memoryview(buffer), offset=500) == 1000
    assert buffer == data[500:1500]
    bucket_server.arm(fault, op="get", times=TRIES, seconds=0.01)
    with pytest.raises(StoreUnavailableError):
        store.get("object")


def test_listings_and_deletes_are_tried_again(store: BucketStore, bucket_server: BucketServer) -> None:
    store.put("a", b"x")
    bucket_server.arm("503", op="list", times=2)
    assert [entry.key for entry in store.keys("")] == ["a"]
    bucket_server.arm("apply_drop", op="delete")
    bucket_server.arm("503", op="delete")
    store.delete("a")
    assert bucket_server.names() == []


@pytest.mark.parametrize("fault", ["401", "403"])
def test_no_permission_is_not_retried_and_names_the_cure(
    store: BucketStore, bucket_server: BucketServer, fault: str
) -> None:
    acts = (
        lambda: store.put("a", b"x"),
        lambda: store.put("a", b"x", if_generation=ABSENT),
        lambda: store.get("a"),
        lambda: list(store.keys()),
        lambda: store.delete("a"),
    )
    for act in acts:
        bucket_server.arm(fault)
        with pytest.raises(AccessDeniedError, match="bucket") as caught:
            act()
        assert caught.value.help
    assert bucket_server.requests.total() == len(acts)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_missing_bucket_is_one_sentence(bucket_server: BucketServer, cloud_environment: Any, scheme: str) -> None:
    cloud_environment(scheme, bucket_server.url)
    store = open_store(f"{scheme}://nowhere/run")
    for act in (lambda: store.put("a", b"x", if_generation=ABSENT), lambda: store.get("a"), lambda: list(store.keys())):
        with pytest.raises(StoreError, match="does not exist; create it") as caught:
            act()
        assert not isinstance(caught.value, KeyMissingError), "a missing bucket is not a fresh run"
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_listening_means_not_written(cloud_environment: Any, scheme: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        cloud_environment(scheme, f"http://127.0.0.1:{unused.getsockname()[1]}")
        store = BucketStore(PROVIDERS[scheme], "bucket", "run", clock=ManualClock())
        for condition in (ABSENT, None, "1"):
            with pytest.raises(StoreUnavailableError):
                store.put("a", b"x", if_generation=condition)
        with pytest.raises(StoreUnavailableError):
            store.get("a")


@pytest.mark.parametrize(
    "address", ["nonsense", "http://", "http://h:abc", "ftp://x", "://", "http://h:99999", "http://[::1", "http://a b"]
)
def test_bad_endpoints_are_one_sentence(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(SettingError, match="AWS_ENDPOINT_URL"):
        open_store("s3://bucket/x")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    if address == "nonsense":  # a host name, as far as anybody can tell
        open_store("gs://bucket/x")
    else:
        with pytest.raises(SettingError, match="STORAGE_EMULATOR_HOST"):
            open_store("gs://bucket/x")


def test_a_bad_region_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us east/1")
    with pytest.raises(SettingError, match="region"):
        open_store("s3://bucket/x")


def test_bucket_names_and_prefixes_are_checked(cloud_environment: Any) -> None:
    cloud_environment("gs", "http://127.0.0.1:9")
    for url in (
        "gs://",
        "gs:///x",
        "gs://b ucket/x",
        "gs://user@host/x",
        "gs://bucket/../x",
        "gs://bucket/a//b",
        "gs://b/x?y",
    ):
        with pytest.raises(UrlError):
            open_store(url)


def test_foreign_objects_in_the_bucket_are_not_listed(store: BucketStore, bucket_server: BucketServer) -> None:
    store.put("ours", b"x")
    folder = () if store.url.startswith("s3") else ("run/folder/",)  # obstore shows it without its slash
    for name in (*folder, "run/.tmp-x", "running/x", "other", "run/ümlaut"):
        bucket_server.write("bucket", name, b"x", lambda now: True)
    assert [entry.key for entry in store.keys("")] == ["ours"]


def test_no_aws_credentials_is_said_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    store = BucketStore(s3.PROVIDER, "bucket", "run", clock=ManualClock())
    with pytest.raises(AccessDeniedError, match="AWS_ACCESS_KEY_ID"):
        store.get("a")


def test_aws_profiles_are_read(bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    (tmp_path / "config").write_text("[profile work]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket_server.url)
    store = BucketStore(s3.PROVIDER, "bucket", "run", clock=ManualClock())
    store.put("a", b"x")
    assert bucket_server.names() == ["run/a"]


# -- Google's tokens


class Metadata(BaseHTTPRequestHandler):
    """A metadata server that hands out numbered tokens."""

    given: list[str] = []
    status = 200
    busy = 0
    """How many requests are answered with 503 first."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        assert self.headers["Metadata-Flavor"] == "Google"
        assert self.path == "/computeMetadata/v1/instance/service-accounts/default/token"
        self._give()

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert "grant_type=" in form
        self._give()

    def _give(self) -> None:
        Metadata.busy -= 1
        if Metadata.busy >= 0:
            self.send_error(503)
            return
        self.given.append(f"token{len(self.given)}")
        body = json.dumps({"access_token": self.given[-1], "expires_in": 3600}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    Metadata.given, Metadata.status, Metadata.busy = [], 200, 0
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    yield Metadata
    server.shutdown()
    server.server_close()
    thread.join()


def test_workload_identity(metadata: Any, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs, "HOST", bucket_server.url)
    bucket_server.tokens = {"token0"}
    store = BucketStore(gcs.PROVIDER, "bucket", "run", clock=ManualClock())
    assert store.enforces_preconditions
    store.put("a", b"x")
    assert store.get("a").data == b"x"
    assert metadata.given == ["token0"], "one token serves many requests"
    bucket_server.tokens = {"token1"}  # revoked early: a new one is asked for, and the write sent again
    store.put("a", b"y", if_generation=store.get("a").generation)
    bucket_server.tokens = {"another"}
    with pytest.raises(AccessDeniedError):
        store.get("a")


def test_tokens_are_renewed_before_they_end() -> None:
    clock = ManualClock()
    fetched = iter([("a", 3600.0), ("b", 60.0), ("c", 3600.0)])
    source = google_tokens.TokenSource(lambda: next(fetched), clock=clock)
    assert source() == "a"
    clock.advance(3000)
    assert source() == "a"
    clock.advance(400)
    assert source() == "b"
    clock.advance(31)
    assert source() == "c"


def test_no_google_credentials_is_said_as_such(metadata: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata.status = 404
    with pytest.raises(AccessDeniedError, match="Workload Identity"):
        GcsClient("bucket").head("x")
    metadata.status = 503
    with pytest.raises(StoreUnavailableError):
        GcsClient("bucket").head("x")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(AccessDeniedError, match="gcloud auth"):
        GcsClient("bucket").head("x")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "not json",
        '{"type": "authorized_user"}',
        '{"type": "service_account"}',
        '{"type": "external_account"}',
        "{}",
    ],
)
def test_bad_credential_files_are_one_sentence(
    metadata: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    path = tmp_path / "key.json"
    path.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with pytest.raises(StayfastError) as caught:
        GcsClient("bucket").head("x")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["authorized_user", "service_account"])
def test_logins_and_key_files(
    metadata: Any, bucket_server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    token_uri = f"http://{os.environ['GCE_METADATA_HOST']}/token"
    info = {"type": kind, "client_id": "id", "client_secret": "s", "refresh_token": "r", "token_uri": token_uri}
    if kind == "service_account":
        rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
        serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
        pytest.importorskip("google.auth")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        info.update(client_email="a@b", private_key=pem.decode(), private_key_id="1", project_id="p")
    (tmp_path / "key.json").write_text(json.dumps(info))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    monkeypatch.setattr(gcs, "HOST", bucket_server.url)
    bucket_server.tokens = {"token0"}
    metadata.busy = 1 if kind == "service_account" else 0  # google-auth pauses and asks again
    before = random.getstate()
    BucketStore(gcs.PROVIDER, "bucket", "run", clock=ManualClock()).put("a", b"x")
    assert bucket_server.names() == ["run/a"]
    assert metadata.busy < 0
    assert random.getstate() == before  # its pause was not drawn from the program's generator


# -- the wire


def test_a_request_cut_short_was_not_sent() -> None:
    """The server closes after the first bytes of a large body: it cannot have applied the write."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        wire = HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(RequestNotSentError):
            wire.request("PUT", "/x", body=bytes(64 << 20))
        thread.join()


def test_silence_after_a_whole_request_is_a_lost_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}", silence_seconds=0.1)
        started = time.monotonic()
        with pytest.raises(ResponseLostError):
            wire.request("PUT", "/x", body=b"x")
        assert time.monotonic() - started < 5


def test_an_early_refusal_of_a_large_body_is_read(bucket_server: BucketServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
            time.sleep(0.2)  # the client is still sending
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        wire = HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}", silence_seconds=2.0)
        try:
            assert wire.request("PUT", "/x", body=bytes(64 << 20)).status == 403
        except RequestNotSentError:
            pass  # the kernel may throw the answer away with the reset; not written either way
        thread.join()


def test_connections_are_kept_and_closed_ones_noticed(bucket_server: BucketServer) -> None:
    wire = HttpTransport(bucket_server.url)
    for _ in range(5):
        assert wire.request("GET", "/bucket?list-type=2").status == 200
    assert len(wire._connections) == 1
    wire._connections._idle[0][1].sock.shutdown(socket.SHUT_RDWR)
    assert wire.request("PUT", "/bucket/x", body=b"x").status == 200, "no lost answer from a connection that had died"
    wire.close()
    assert len(wire._connections) == 0
