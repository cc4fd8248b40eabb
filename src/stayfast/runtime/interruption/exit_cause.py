"""What the exception that ended a block means: an interruption, a lost peer, a clean exit or a failure."""

from __future__ import annotations

import re

from stayfast.errors import QueueGoneError, SinkGoneError, SupersededError
from stayfast.model.exit_codes import FAILED, FINISHED
from stayfast.model.notice import Cause, Notice
from stayfast.settings import Settings

_TYPES = {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"}
_WORDS = re.compile(
    r"connection (was )?(closed|reset|refused)|closed by (remote )?peer|remote process exited|broken pipe|"
    r"gloo/transport|nccl.*(remote|unhandled system|aborted|timeout)|socket (timeout|closed)|watchdog.*collective",
    re.IGNORECASE,
)


def interruption_cause(
    error: BaseException | None, notice: Notice | None, settings: Settings, *, stop_was_reported: bool
) -> Cause | None:
    """Whether this end of a block is an interruption, and its cause; None when it is not one.

    After a notice every exception is: the machine is about to go, and what fails then fails for that reason or fails
    again in the next attempt. Without an exception only a program that was asked to stop was interrupted.
    """
    if error is None:
        return notice.cause if notice is not None and stop_was_reported else None
    if isinstance(error, SupersededError):
        return Cause.SUPERSEDED
    if isinstance(error, QueueGoneError | SinkGoneError):  # the next attempt would find nothing to do
        return None
    if isinstance(error, SystemExit):
        if notice is None and error.code == settings.interrupted_code != 0:
            return Cause.REQUEST
    elif settings.world_size > 1 and is_peer_loss(error):
        # The launcher's SIGTERM follows the loss of a rank within milliseconds and says less than the loss itself.
        return notice.cause if notice is not None and notice.cause is not Cause.UNKNOWN else Cause.PEER_LOST
    return None if notice is None else notice.cause


def is_clean_exit(error: BaseException) -> bool:
    """Whether it is a ``sys.exit`` that reports success."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


def exit_code_of(error: BaseException) -> int:
    """The exit code that this exception would end a process with."""
    if isinstance(error, SystemExit):
        return FINISHED if error.code is None else error.code if isinstance(error.code, int) else FAILED
    return FAILED


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
