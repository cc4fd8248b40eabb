"""Every error that stayfast raises on purpose, in one tree.

::

    Exception
    └── StayfastError                 one sentence: what, where, what to do
        ├── UsageError                the caller's input is wrong                      (CLI exit 2)
        │   ├── SettingError          an environment variable or option
        │   ├── UrlError              a store, queue or sink URL
        │   │   └── SinkMissingError  a sink that nobody has written to yet
        │   ├── DocumentError         a YAML document: carries line and column
        │   └── MissingExtraError     an optional dependency is not installed
        ├── RunError                  a run cannot go on as asked
        │   ├── NoProgressError       the run keeps dying without getting anywhere
        │   ├── SupersededError       a newer attempt of the same run took over
        │   └── StateMismatchError    what was saved does not fit what is tracked
        ├── CheckpointError           stored state is unusable
        │   ├── CorruptError          bytes do not match their checksum or bounds
        │   ├── FormatError           written by a newer version, or not ours
        │   └── EncodingError         a value that cannot be stored safely
        ├── StoreError                the place where bytes live                       (CLI exit 3)
        │   ├── KeyMissingError       no such object
        │   ├── ConflictError         a precondition did not hold: nothing was written
        │   ├── OutcomeUnknownError   the write may or may not have happened
        │   ├── AccessDeniedError     no credentials, or not allowed
        │   ├── StoreFullError        no space or quota
        │   └── StoreUnavailableError unreachable, or kept failing: nothing was written
        ├── QueueError                work queue                                       (CLI exit 3)
        │   ├── LeaseLostError        the lease went to somebody else
        │   ├── QueueGoneError        its file, table or database was removed or replaced while it was open
        │   └── QueueUnavailableError unreachable or locked for now: worth trying again
        ├── SinkError                 where results go                                 (CLI exit 3)
        │   ├── SinkGoneError         its file, table or database was removed or replaced while it was open
        │   └── SinkUnavailableError  unreachable or locked for now: worth trying again
        └── ClusterError              the Kubernetes API server                        (CLI exit 3)
            ├── ClusterConfigError    no usable kubeconfig, context or in-cluster account
            ├── ClusterUnreachableError  no connection, no answer in time, or it kept failing
            ├── ClusterAccessError    credentials are missing or expired, or do not allow this
            │   └── ClusterLoginError   nobody is let in with them, whatever is asked
            ├── ObjectMissingError    no such object, or no such kind (a CRD is not installed)
            ├── ObjectConflictError   somebody else owns a field, or the object has changed
            └── ObjectRefusedError    the server refuses what was sent                 (CLI exit 1)

    SystemExit
    └── Interrupted                   the machine goes away; code 75, resume me

``Interrupted`` is a ``SystemExit`` so that ``except Exception`` in user code cannot swallow it and an
unhandled one ends the process with the code that the Job controller understands.
"""

from __future__ import annotations

from typing import Self


class StayfastError(Exception):
    """Base of all errors raised on purpose; ``str(error)`` is one sentence for a person."""

    has_list = False
    """Whether the message is several lines on purpose, one for each mistake; each was made by ``one_line``."""

    def __init__(self, message: str, *, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}" if self.help else self.message

    def listed(self) -> Self:
        """The same error, known to be a list."""
        self.has_list = True
        return self


def one_line(text: str, longest: int = 1000) -> str:
    """Safe to print: names come from anywhere, and must not move the cursor, turn text around or fill a page."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"


class UsageError(StayfastError):
    """The caller's input is wrong."""


class SettingError(UsageError):
    """An environment variable or an option has a value that cannot be used."""


class UrlError(UsageError):
    """A URL that no store, queue or sink understands."""


class SinkMissingError(UrlError):
    """A sink that is not there: nothing was recorded in it yet, or the URL is misspelt."""


class DocumentError(UsageError):
    """A YAML document that cannot be read or means nothing; ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, *, line: int = 1, column: int = 1, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.line = line
        self.column = column


class MissingExtraError(UsageError):
    """An optional dependency is needed and not installed."""


class RunError(StayfastError):
    """A run cannot go on as asked."""


class NoProgressError(RunError):
    """The run keeps dying without getting anywhere; more attempts would only burn money."""


class SupersededError(RunError):
    """A newer attempt of the same run took over; this one must leave without writing.

    ``landed`` is true when the commit that found this out had been applied before the other attempt took over: the
    checkpoint is the run's. Whatever it says, deleting is left to the owner: newer checkpoints may refer to our parts.
    """

    def __init__(self, message: str, *, help: str | None = None, landed: bool = False) -> None:
        super().__init__(message, help=help)
        self.landed = landed


class StateMismatchError(RunError):
    """What was saved does not fit what is tracked; every difference is listed."""


class CheckpointError(StayfastError):
    """Stored state is unusable."""


class CorruptError(CheckpointError):
    """Bytes do not match their checksum, length or bounds."""


class FormatError(CheckpointError):
    """Written by a newer version of stayfast, or not written by stayfast at all."""


class EncodingError(CheckpointError):
    """A value that cannot be stored without executing code on load."""


class StoreError(StayfastError):
    """The place where bytes live did not do what was asked."""


class KeyMissingError(StoreError):
    """There is no object under this key."""


class ConflictError(StoreError):
    """The precondition of a write did not hold; nothing was written."""


class OutcomeUnknownError(StoreError):
    """The answer to a write was lost: it may have happened, and may not. Read back before deciding."""


class AccessDeniedError(StoreError):
    """No credentials, or they do not allow this."""


class StoreFullError(StoreError):
    """No space, or a quota is used up; nothing was written."""


class StoreUnavailableError(StoreError):
    """Unreachable or failing after retries; for a write: certainly not applied."""


class QueueError(StayfastError):
    """The work queue did not do what was asked."""


class LeaseLostError(QueueError):
    """The lease expired and the item went to somebody else."""


class QueueGoneError(QueueError):
    """The file, table or database of the queue was removed or replaced while it was open."""


class QueueUnavailableError(QueueError):
    """The queue cannot be reached, or is locked by somebody else, for now; trying again may help."""


class SinkError(StayfastError):
    """Results could not be recorded."""


class SinkGoneError(SinkError):
    """The file, table or database of the sink was removed or replaced while it was open."""


class SinkUnavailableError(SinkError):
    """The sink cannot be reached, or is locked by somebody else, for now; trying again may help."""


class ClusterError(StayfastError):
    """The Kubernetes API server did not do what was asked."""


class ClusterConfigError(ClusterError):
    """There is no usable kubeconfig, context or in-cluster account."""

    def __init__(self, message: str, *, help: str | None = None) -> None:
        super().__init__(message, help=help or "mend the kubeconfig, or let gcloud or kubectl config write it again")


class ClusterUnreachableError(ClusterError):
    """No connection, no answer in time, or it kept failing after retries."""


class ClusterAccessError(ClusterError):
    """Credentials are missing or expired, or do not allow this."""


class ClusterLoginError(ClusterAccessError):
    """Nobody is let in with these credentials, whatever is asked: expired, or a plugin that gives none."""


class ObjectMissingError(ClusterError):
    """There is no such object, or the server knows no such kind."""


class ObjectConflictError(ClusterError):
    """Somebody else owns a field, the object has changed meanwhile, or it exists already."""


class ObjectRefusedError(ClusterError):
    """The server refuses what was sent: an unknown field, a wrong value, a policy or a quota."""


class Interrupted(SystemExit):
    """The machine is going away: leave now with the interrupted code, to be resumed elsewhere."""

    def __init__(self, code: int = 75, *, cause: str = "unknown", detail: str = "") -> None:
        super().__init__(code)
        self.cause = cause
        self.detail = detail
