"""Google Cloud Pub/Sub as a queue: synchronous pull, and a ledger for what Pub/Sub cannot tell.

A lease is the acknowledgement deadline; renewing modifies it, releasing sets it to zero so that redelivery is
immediate, and a back-off is a deadline that nobody renews. The result is recorded before the message is acknowledged,
so a failed or late acknowledgement only means that the message comes again and is found recorded.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from stayfast.batch.queue.protocol import DeadItem, Depth, Enqueued, Failure, Lease, RemainingWork, RetryPolicy
from stayfast.batch.queue.pubsub_ledger import all_rows, dead_items, ledger_depth, open_ledger
from stayfast.batch.queue.validation import add_items
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.sink.protocol import Sink
from stayfast.errors import MissingExtraError, QueueUnavailableError, SinkMissingError, UrlError
from stayfast.randomness import keep_apart
from stayfast.storage.network.urls import parse_options, parse_url

log = logging.getLogger("stayfast")

_PULL_SECONDS = 0.5
_CALL_SECONDS = 20.0
_IDS_PER_CALL = 500
_LONGEST_DEADLINE_SECONDS = 600
_NEW_DEADLINE_SECONDS = 30
_OPTIONS = ("topic", "dead", "exactly_once", "deadline")


class PubsubQueue:
    """A subscription and its topic; asks the sink, which alone knows what is done."""

    example = "pubsub://project/subscription"
    database: str | None = None

    @classmethod
    def open_url(cls, url: str, *, sink: str | None, policy: RetryPolicy | None, create: bool) -> PubsubQueue:
        """The queue behind ``pubsub://project/subscription``."""
        if sink is None:
            raise UrlError(
                f"{url!r} needs to know where its ledger is",
                help="name the sink too: --sink sqlite:///… or postgresql://…",
            )
        return cls(url, sink, policy=policy, create=create)

    def __init__(self, url: str, sink: str, *, policy: RetryPolicy | None = None, create: bool = True) -> None:
        self._load_client()
        parts = parse_url(url)
        self._options = parse_options(url, parts.query, _OPTIONS)
        self._project, self._name = parts.netloc, unquote(parts.path).strip("/")
        if not self._project or not self._name or "/" in self._name:
            raise UrlError(f"{url!r} names no subscription", help="write pubsub://project/subscription?topic=name")
        self.url = url
        self._sink_url, self._may_create = sink, create
        self._sink: Sink | None = None
        self._opening = threading.Lock()
        self._policy = policy or RetryPolicy()
        self._subscription = self._subscriber.subscription_path(self._project, self._name)
        with self._errors():
            self._open_subscription(create)
        self._ledger = open_ledger(sink, self._name)
        self._done_up_to = ""
        self._whole = True  # whether the look-through that got this far began at the first key, without a break
        self._idle_since: float | None = None

    def _load_client(self) -> None:
        try:
            from google.api_core import exceptions
            from google.cloud import pubsub_v1
        except ImportError as error:
            raise MissingExtraError(
                f"pubsub:// needs an extra that is not installed ({error})", help="run: pip install 'stayfast[pubsub]'"
            ) from error
        self._exceptions = exceptions
        try:
            self._publisher = pubsub_v1.PublisherClient(pubsub_v1.types.BatchSettings(max_messages=1000))
            self._subscriber = pubsub_v1.SubscriberClient()
        except Exception as error:
            raise UrlError(f"Pub/Sub has no credentials to use: {error}", help="run: gcloud auth login") from error
        keep_apart("google.api_core", "google.auth", "google.cloud.pubsub_v1")  # credentials import more of google.auth

    def _open_subscription(self, create: bool) -> None:
        topic = self._options.get("topic")
        if topic and create:
            self._create(topic)
        found = self._subscriber.get_subscription(request={"subscription": self._subscription}, timeout=_CALL_SECONDS)
        self._topic = found.topic
        self._dead_topic = (
            self._publisher.topic_path(self._project, self._options["dead"]) if "dead" in self._options else ""
        )
        self.lease_seconds = float(found.ack_deadline_seconds)

    def _create(self, topic: str) -> None:
        for name in filter(None, (topic, self._options.get("dead"))):
            with contextlib.suppress(self._exceptions.AlreadyExists):
                path = self._publisher.topic_path(self._project, name)
                self._publisher.create_topic(request={"name": path}, timeout=_CALL_SECONDS)
        with contextlib.suppress(self._exceptions.AlreadyExists):
            self._subscriber.create_subscription(
                request={
                    "name": self._subscription,
                    "topic": self._publisher.topic_path(self._project, topic),
                    "ack_deadline_seconds": self._new_deadline(),
                    "enable_exactly_once_delivery": self._options.get("exactly_once") == "true",
                },
                timeout=_CALL_SECONDS,
            )

    def _new_deadline(self) -> int:
        given = self._options.get("deadline", str(_NEW_DEADLINE_SECONDS))
        if not given.isdecimal() or not 10 <= int(given) <= _LONGEST_DEADLINE_SECONDS:
            raise UrlError(f"the option deadline={given} of {self.url!r} is no lease", help="give 10 to 600 seconds")
        return int(given)

    # -- filling

    def enqueue(self, items: Iterable[tuple[str, str]], *, replace: bool = False) -> Enqueued:
        return add_items(items, lambda new: self._add(new, replace))

    def _add(self, new: list[tuple[str, str]], replace: bool) -> int:
        wanted = self._ledger.add(new, replace=replace)
        self._publish(wanted)
        return len(wanted)

    def _publish(self, wanted: Sequence[tuple[str, str]]) -> None:
        """Only what Pub/Sub has confirmed is marked; what is not marked is published again by whoever finds it."""
        with self._errors():
            futures = [self._publisher.publish(self._topic, data.encode(), key=key) for key, data in wanted]
            for future in futures:
                future.result(timeout=_CALL_SECONDS * 3)
        self._ledger.mark_published([key for key, _ in wanted])

    # -- working

    def batch(self) -> contextlib.AbstractContextManager[None]:
        """There are no transactions here: the order of the steps is what keeps items safe."""
        return contextlib.nullcontext()

    def claim(self, limit: int) -> list[Lease]:
        if limit <= 0:
            return []
        with self._errors():
            try:
                request = {"subscription": self._subscription, "max_messages": limit}
                answer = self._subscriber.pull(request=request, timeout=_PULL_SECONDS, retry=None)
            except (self._exceptions.DeadlineExceeded, self._exceptions.Cancelled):
                return []
        leases = [self._lease(received) for received in answer.received_messages]
        if leases:
            self._idle_since = None
        return leases

    @staticmethod
    def _lease(received: Any) -> Lease:
        message = received.message
        key = message.attributes.get("key") or message.message_id  # somebody else may publish here too
        published = message.publish_time
        generation = int(published.timestamp() * 1_000_000) if published is not None else 0
        return Lease(received.ack_id, key, message.data.decode("utf-8", "replace"), generation, 0)

    def complete(self, leases: Sequence[Lease]) -> list[Lease]:
        for ids in _slices([lease.id for lease in leases]):
            try:
                self._subscriber.acknowledge(
                    request={"subscription": self._subscription, "ack_ids": ids}, timeout=_CALL_SECONDS
                )
            except (self._exceptions.GoogleAPICallError, self._exceptions.RetryError) as error:
                # Recorded already: the message comes again and is skipped.
                log.warning("%d acknowledgements failed: %s", len(ids), error, extra={"action": "ack_failed"})
        return list(leases)

    def release(self, leases: Sequence[Lease]) -> int:
        self._modify([lease.id for lease in leases], 0)
        return len(leases)

    def fail(self, failures: Sequence[Failure]) -> list[str]:
        dead = []
        for lease, reason, final in failures:
            count, over = self._ledger.fail(lease.key, reason, most=self._policy.max_failures, final=final)
            if over:
                self._dead_letter(lease, reason)
                dead.append(lease.key)
            else:
                self._modify([lease.id], int(min(_LONGEST_DEADLINE_SECONDS, self._policy.delay_seconds(count))))
        return dead

    def _dead_letter(self, lease: Lease, reason: str) -> None:
        """In the ledger it is dead already; the dead-letter topic is for those who watch it."""
        if self._dead_topic:
            with self._errors():
                note = reason[-1000:].encode("utf-8", "replace").decode()
                future = self._publisher.publish(self._dead_topic, lease.payload.encode(), key=lease.key, reason=note)
                future.result(timeout=_CALL_SECONDS)
        self.complete([lease])

    def release_all_except(self, leases: Sequence[Lease]) -> None:
        """Nothing to do: what was pulled without our knowing comes again when its deadline ends."""

    # -- leases

    def handles(self, leases: Sequence[Lease]) -> list[str]:
        return [f"{lease.id} {lease.key}" for lease in leases]

    def renew(self, handles: Sequence[str]) -> list[str]:
        self._modify([handle.partition(" ")[0] for handle in handles], int(self.lease_seconds))
        return []

    def record_crash(self, handles: Sequence[str], reason: str) -> int:
        for handle in handles:
            ack_id, _, key = handle.partition(" ")
            payload = self._ledger.payload(key) if self._dead_topic else None  # for those who watch that topic
            self.fail([Failure(Lease(ack_id, key, payload or "null", 0, 0), reason)])
        return len(handles)

    def _modify(self, ack_ids: list[str], seconds: int) -> None:
        with self._errors():
            for ids in _slices(ack_ids):
                request = {"subscription": self._subscription, "ack_ids": ids, "ack_deadline_seconds": seconds}
                try:
                    self._subscriber.modify_ack_deadline(request=request, timeout=_CALL_SECONDS)
                except (self._exceptions.InvalidArgument, self._exceptions.FailedPrecondition) as error:
                    # Exactly-once subscriptions say so when a deadline is over: the message comes again by itself.
                    log.warning("%d leases were over already: %s", len(ids), error, extra={"action": "lease_lost"})

    def remaining(self) -> RemainingWork:
        """Drained when every key of the ledger is recorded or dead.

        Looked up from where the last look ended; but then once more from the first, for what was enqueued meanwhile.
        """
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        while True:
            page = self._ledger.page(self._done_up_to, 2000)
            if not page and self._whole:
                self._done_up_to, self._whole = "", False  # whoever asks again asks anew: the dead may be retried
                return RemainingWork(claimable=False, delayed_seconds=None, leased=False)
            if not page:
                self._done_up_to, self._whole = "", True
                continue
            open_keys = [row.key for row in page if not row.dead]
            missing = set(self._missing(open_keys))
            if missing:
                self._whole = False
                self._republish_unpublished([row for row in page if row.key in missing and not row.published], now)
                return RemainingWork(claimable=False, delayed_seconds=None, leased=True)
            self._done_up_to = page[-1].key

    def _republish_unpublished(self, forgotten: list[Any], now: float) -> None:
        """An enqueue that died between ledger and topic leaves keys that no message will ever bring."""
        if forgotten and self._idle_since is not None and now - self._idle_since > 2 * self.lease_seconds:
            self._publish([(row.key, row.payload) for row in forgotten])
            self._idle_since = now

    def _missing(self, keys: Sequence[str]) -> list[str]:
        if not keys:
            return []
        with self._opening:
            if self._sink is None:
                try:
                    self._sink = open_sink(self._sink_url, create=self._may_create)
                except SinkMissingError:  # no worker has recorded anything yet
                    return list(keys)
        return self._sink.missing(keys)

    # -- looking

    def depth(self) -> Depth:
        """What is leased right now only Pub/Sub knows, and it does not tell: those count as ready."""
        found = ledger_depth(self._ledger, self._missing)
        assert found is not None
        return found

    def entries(self) -> Iterator[tuple[str, str]]:
        for row in all_rows(self._ledger):
            yield row.key, "dead" if row.dead else "ready"

    def dead(self) -> Iterator[DeadItem]:
        return dead_items(self._ledger)

    def retry(self, keys: Iterable[str] | None = None) -> int:
        revived = self._ledger.retry(None if keys is None else list(keys))
        self._publish(revived)
        self._done_up_to = ""
        return len(revived)

    def close(self) -> None:
        self._ledger.close()
        if self._sink is not None:
            self._sink.close()
        with contextlib.suppress(Exception):
            self._publisher.stop()
        with contextlib.suppress(Exception):
            self._subscriber.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        errors = self._exceptions
        try:
            yield
        except errors.NotFound as error:
            raise UrlError(
                f"{self.url} does not exist: {error.message}", help="add ?topic=NAME to create it"
            ) from error
        except (errors.PermissionDenied, errors.Unauthenticated, errors.InvalidArgument) as error:
            raise UrlError(
                f"{self.url} refuses us: {error.message}", help="check the name and roles/pubsub.editor"
            ) from error
        except (errors.GoogleAPICallError, errors.RetryError, TimeoutError) as error:
            raise QueueUnavailableError(f"{self.url} is not available: {error}", help="it is tried again") from error


def _slices(values: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(values), _IDS_PER_CALL):
        yield values[start : start + _IDS_PER_CALL]
