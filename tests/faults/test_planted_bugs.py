"""Who tests the tests: every planted bug must be found by its suite, in time. The table goes to stdout and to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import stayfast
from faults import planted
from faults.counts import counts_file, machine, read
from faults.hunters import HERE, HUNTERS, hunt, hunt_here
from faults.tiers import account, seed_for, shard, tier

pytestmark = pytest.mark.faults
SECONDS = 120.0
CONTROL_SECONDS = 10.0
SOURCE = Path(stayfast.__file__).parent
ALL = {**planted.BUGS, **planted.MORE}
QUICK_CONTROLS = ("J", "K", "L", "N", "O", "G:clocks")  # the others are the suites themselves, run at their full count
found: dict[str, dict[str, object]] = {}
controls: dict[str, dict[str, object]] = {}


def wanted() -> list[str]:
    """For every change those that are found at once; at night all of them, and our own."""
    number, parts = shard()
    if tier() == "pr":
        return [name for name in planted.BUGS if name not in planted.SLOW][number::parts]
    return [*list(planted.BUGS)[number::parts], *list(planted.MORE)[number::parts]]


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print and keep what was found by whom, how fast."""
    yield
    print(f"\n{'planted bug':36} hunter             seconds  by")
    for bug, row in found.items():
        print(f"{bug:36} {row['hunter']:18} {row['seconds']:7}  {str(row['by'])[:90]}")
    path = counts_file().with_suffix(".planted.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"tier": tier(), "date": read().get("date", ""), "machine": machine()}
    path.write_text(json.dumps({**about, "found": found, "controls": controls}, indent=1) + "\n")


@pytest.mark.parametrize("bug", ALL)
def test_a_bug_is_at_most_three_wrong_lines_and_still_fits(bug: str) -> None:
    """When the product's source changes, the bugs have to be planted anew."""
    assert 1 <= planted.find(bug).lines <= planted.MOST_LINES
    for file in {edit.file for edit in planted.find(bug).edits}:
        text = good = (SOURCE / file).read_text()
        for edit in planted.find(bug).edits:
            text = edit.apply(text) if edit.file == file else text
        assert text != good
        compile(text, file, "exec")


@pytest.mark.parametrize("bug", ALL)
def test_the_suite_finds(bug: str) -> None:
    if bug not in wanted():
        pytest.skip("looked for at night")
    hunter = planted.find(bug).hunter
    look = hunt_here if tier() == "pr" and hunter in HERE else hunt
    answer = look(hunter, seed_for("P"), SECONDS, bug)
    if answer["impossible"]:
        pytest.skip(answer["impossible"])
    assert answer["found"], f"{bug!r} was not found by {hunter} in {SECONDS:g} s"
    row = {"suite": planted.find(bug).suite, "hunter": hunter, "lines": planted.find(bug).lines}
    found[bug] = {
        **row,
        "seconds": answer["seconds"],
        "core_seconds": answer["core_seconds"],
        "by": answer["found"][:200],
    }


@pytest.mark.parametrize("hunter", HUNTERS)
def test_without_a_bug_nothing_is_found(hunter: str) -> None:
    if (tier() == "pr" and hunter not in QUICK_CONTROLS) or hunter not in list(HUNTERS)[shard()[0] :: shard()[1]]:
        pytest.skip("looked for at night")
    look = hunt_here if tier() == "pr" and hunter in HERE else hunt
    answer = look(hunter, seed_for("P"), 0.5 if tier() == "pr" else CONTROL_SECONDS, "")
    if answer["impossible"]:
        pytest.skip(answer["impossible"])
    assert not answer["found"], f"{hunter} finds what is not there: {answer['found']}"
    assert answer["tried"] > 0, "void: nothing was tried"
    controls[hunter] = {"tried": answer["tried"], "seconds": answer["seconds"]}


def test_a_misspelt_bug_is_not_one_that_nobody_finds() -> None:
    with pytest.raises(ValueError, match="no planted bug is called"):
        planted.find("no fsync (part)")


def test_enough_bugs_were_found() -> None:
    account("P", sum(bug in planted.BUGS for bug in found))
