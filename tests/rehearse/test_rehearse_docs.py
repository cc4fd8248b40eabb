"""The reference page is complete, and the public testing module does what it says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from zoo import PROGRAMS

import stayfast
from stayfast.cli import rehearse as command
from stayfast.proof.rehearse.schedule import InterruptionKind
from stayfast.proof.rehearse.verdict import CODES
from stayfast.testing import Rehearsal, interrupt_at, rehearse

pytest_plugins = ["pytester"]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "rehearse.md").read_text()


def test_every_option_kind_and_code_is_documented() -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    for action in parser._actions:
        for option in action.option_strings:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in PAGE, option
                if isinstance(action.default, int | float) and not isinstance(action.default, bool) and action.default:
                    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{option} "))
                    assert row.split("|")[2].strip() == f"{action.default:g}", option
    for kind in InterruptionKind:
        assert f"| `{kind}` |" in PAGE
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning} |" in PAGE


def test_the_function() -> None:
    found = rehearse(
        [sys.executable, "exits_zero.py"], compare=["result.txt"], directory=PROGRAMS, trials=1, kills=1, kinds=["term"]
    )
    assert isinstance(found, Rehearsal)
    assert not found.survives
    assert found.codes == {"exit-zero-unfinished"}
    with pytest.raises(AssertionError, match="exit-zero-unfinished: left with 0"):
        found.assert_survives()


def test_the_first_divergence_is_told() -> None:
    found = rehearse(
        [sys.executable, "stayfast_forgets.py"],
        compare=["result.txt"],
        directory=PROGRAMS,
        trials=6,  # one that is killed while it still imports has nothing to forget
        kills=1,
        kinds=["term"],
    )
    assert found.codes == {"result-differs"}
    assert ": samples" in found.result.reasons[0].detail
    assert "differs first at step" in found.result.reasons[0].detail


def train(url: str, seen: list[int]) -> None:
    with stayfast.run(url, total_steps=12) as run:
        seen.extend(run.steps())


def test_interrupt_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAYFAST_METADATA", "off")
    seen: list[int] = []
    url = f"file://{tmp_path}/run"
    with pytest.raises(stayfast.Interrupted), interrupt_at(step=7):
        train(url, seen)
    assert seen == list(range(8))
    train(url, seen)
    assert seen == list(range(12)), "goes on at step 8, and nothing interrupts it any more"


def test_as_a_pytest_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["stayfast.testing"]')
    pytester.makepyfile(
        test_it="""
        import sys

        def test_both(rehearse, interrupt_at):
            with interrupt_at(step=3):
                pass
            command = [sys.executable, "-c", "import time; time.sleep(0.1)"]
            assert rehearse(command, trials=1, kills=1, kinds=["kill"]).survives
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
