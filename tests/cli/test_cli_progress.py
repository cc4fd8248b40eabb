"""Progress: only on a terminal, only after a while, and gone when the work is done."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from stayfast.text import progress


class Screen(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    made = Screen()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=made))  # pytest sets sys.stderr anew for every phase
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.01)
    return made


def until(screen: Screen, text: str) -> None:
    """Wait for a line to be shown; a loaded machine may take its time."""
    deadline = time.monotonic() + 30
    while text not in screen.getvalue():
        assert time.monotonic() < deadline, screen.getvalue()
        time.sleep(0.005)


def test_long_work_says_what_it_is_and_cleans_up(screen: Screen) -> None:
    with progress.with_elapsed("judging 7 files"):
        until(screen, "judging 7 files, 0 s")
    assert screen.getvalue().endswith("\r\x1b[K")


def test_it_cleans_up_after_an_error_too(screen: Screen) -> None:
    with pytest.raises(ZeroDivisionError), progress.with_elapsed("dividing"):
        until(screen, "dividing")
        _ = 1 / 0
    assert screen.getvalue().endswith("\r\x1b[K")


def test_short_work_says_nothing(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 60.0)
    with progress.with_elapsed("nothing"):
        pass
    assert list(progress.with_count(iter(range(10_000)), "items")) == list(range(10_000))
    assert screen.getvalue() == ""


def test_counting_counts_and_changes_nothing(screen: Screen) -> None:
    def slow() -> Iterator[int]:
        for number in range(1024):
            if number == 500:
                time.sleep(0.1)
            yield number

    assert list(progress.with_count(slow(), "items compared")) == list(range(1024))
    assert "512 items compared, " in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_off_a_terminal_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=said))
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with progress.with_elapsed("work"):
        time.sleep(0.05)
    assert list(progress.with_count(iter(range(600)), "items")) == list(range(600))
    assert said.getvalue() == ""
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=None))
    with progress.with_elapsed("work"):
        pass
