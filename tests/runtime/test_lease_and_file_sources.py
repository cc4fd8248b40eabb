"""The lease end and the notice file, on a clock that moves when told to."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stayfast.clock import ManualClock, to_rfc3339
from stayfast.errors import SettingError
from stayfast.model.notice import Cause
from stayfast.runtime.interruption.machine_lease import MachineLeaseSource
from stayfast.runtime.interruption.notice_board import GraceBudget, NoticeBoard
from stayfast.runtime.interruption.notice_file import NoticeFileSource
from stayfast.settings import Settings

WALL = 1_700_000_000.0


def source(**settings: object) -> tuple[MachineLeaseSource, NoticeBoard, ManualClock]:
    clock = ManualClock(wall=WALL)
    board = NoticeBoard(Settings(**settings), clock)  # type: ignore[arg-type]
    return MachineLeaseSource(board), board, clock


def test_the_notice_comes_a_lead_before_the_end_and_is_not_capped_by_the_pods_grace() -> None:
    lease, board, clock = source(lease_ends_at=WALL + 3600, lease_lead_seconds=300.0)
    while (pause := lease.check()) is not None:
        assert board.notice is None
        assert pause <= 60.0, "a jump of the wall clock must not be slept through"
        clock.advance(pause)
    assert clock.wall() == WALL + 3300
    assert board.notice is not None
    assert board.notice.cause is Cause.RUN_LIMIT
    assert GraceBudget(board).remaining_seconds == 299.0
    assert to_rfc3339(WALL + 3600) in board.notice.detail


def test_an_end_in_the_past_is_one_sentence() -> None:
    lease, _, _ = source(lease_ends_at=WALL - 1)
    with pytest.raises(SettingError, match=r"STAYFAST_LEASE_ENDS_AT=.* is in the past; set it to when"):
        lease.start()


def test_an_end_sooner_than_the_lead_is_a_notice_at_once() -> None:
    lease, board, _ = source(lease_ends_at=WALL + 30)
    assert lease.check() is None
    assert GraceBudget(board).remaining_seconds == 29.0


def test_the_file_may_appear_late_and_may_change(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    lease, board, clock = source(lease_file=str(file))
    assert lease.check() == 5.0
    file.write_text("")
    assert lease.check() == 5.0
    file.write_text(f'"{to_rfc3339(WALL + 7200)}"\n')
    assert lease.check() == 5.0
    clock.advance(100)
    file.write_text(to_rfc3339(WALL + 100 + 60))  # shortened: the machine goes in a minute
    assert lease.check() is None
    assert board.notice is not None
    assert GraceBudget(board).remaining_seconds == 59.0


def test_a_later_end_in_the_file_moves_the_notice_away(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    file.write_text(to_rfc3339(WALL + 130))
    lease, board, clock = source(lease_file=str(file))
    lease.check()
    file.write_text(to_rfc3339(WALL + 9000))
    clock.advance(20)
    assert lease.check() is not None
    assert board.notice is None


def test_of_variable_and_file_the_earlier_counts(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    file.write_text(to_rfc3339(WALL + 100))
    lease, board, _ = source(lease_file=str(file), lease_ends_at=WALL + 9000)
    assert lease.check() is None
    assert board.notice is not None


@pytest.mark.parametrize(
    "text",
    ["next week", "2026-13-45T00:00:00Z", "2030-01-01T00:00:00", "\x00\xff garbage", to_rfc3339(WALL - 5), "x" * 9999],
)
def test_garbage_in_the_file_is_one_warning_and_no_notice(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "lease"
    file.write_text(text)
    lease, board, clock = source(lease_file=str(file))
    with caplog.at_level(logging.WARNING, "stayfast"):
        for _ in range(5):
            assert lease.check() == 5.0
            clock.advance(5)
    assert board.notice is None
    assert len(caplog.records) == 1
    assert f"STAYFAST_LEASE_FILE={file}" in caplog.text
    file.write_text(to_rfc3339(WALL + 60))
    assert lease.check() is None


def test_a_clock_that_jumps_forward_is_noticed() -> None:
    lease, board, clock = source(lease_ends_at=WALL + 86400)
    assert lease.check() == 60.0
    clock.jump_wall(86400 - 30)
    assert lease.check() is None
    assert board.notice is not None


def test_the_watching_thread_posts_by_itself() -> None:
    """On the manual clock waiting is advancing, so a day passes at once."""
    lease, board, clock = source(lease_ends_at=WALL + 86400)
    lease.start()
    assert board.arrived.wait(10)
    assert clock.wall() == WALL + 86400 - 120
    lease.stop()


@pytest.mark.parametrize(
    ("content", "detail"), [("", "appeared"), ("defrag\nsecond", ": defrag"), ("é" * 500, ": " + "é" * 200)]
)
def test_a_file_that_appears(tmp_path: Path, content: str, detail: str) -> None:
    file = tmp_path / "notice"
    board = NoticeBoard(Settings(notice_file=str(file)), ManualClock())
    watching = NoticeFileSource(board)
    assert watching.check() is False
    file.write_text(content)
    assert watching.check() is True
    assert board.notice is not None
    assert board.notice.cause is Cause.UNKNOWN
    assert board.notice.detail.endswith(detail)


def test_a_directory_in_the_files_place_is_a_notice_too(tmp_path: Path) -> None:
    board = NoticeBoard(Settings(notice_file=str(tmp_path)), ManualClock())
    assert NoticeFileSource(board).check() is True


def test_without_the_variable_no_thread_is_started() -> None:
    import threading

    before = threading.active_count()
    board = NoticeBoard(Settings(), ManualClock())
    MachineLeaseSource(board).start()
    NoticeFileSource(board).start()
    assert threading.active_count() == before
