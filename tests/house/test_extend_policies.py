"""A policy of another package is found by its name: simulate replays it, and its needs are asked for."""

from __future__ import annotations

import json

import pytest

from stayfast.capacity.policies.policy import NAMES, PolicyDocument, make_policy
from stayfast.cli.main import main
from stayfast.errors import SettingError

TOY = """
class EveryOtherTick:
    '''Spot in even ticks only.'''

    needs = frozenset(("spot",))

    def decide(self, view):
        there = view.available[0] & (view.tick % 2 == 0)
        return view.np.where(there, 1, 0), view.zone


class NeedsFlexStart(EveryOtherTick):
    needs = frozenset(("flex-start",))
"""


@pytest.fixture
def toy_package(tmp_path, monkeypatch):
    (tmp_path / "toy_policy.py").write_text(TOY)
    metadata = tmp_path / "toy_policy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-policy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[stayfast.policies]\nevery-other = toy_policy:EveryOtherTick\nflex-toy = toy_policy:NeedsFlexStart\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps({"id": "a", "gap_s": 600, "rle": [[1, 100]]}))
    prices = ["--on-demand-price", "10", "--spot-price", "4"]
    return ["simulate", "--traces", str(traces), "--work-hours", "1", "--deadline-hours", "4", *prices, "--json"]


def test_a_policy_from_outside_is_replayed(toy_package, capsys):
    assert main([*toy_package, "--policy", "every-other,greedy"]) == 0
    toy, greedy = json.loads(capsys.readouterr().out)["runs"]
    assert (toy["policy"], greedy["policy"]) == ("every-other", "greedy")
    assert toy["spot_hours"] == pytest.approx(greedy["spot_hours"])
    assert toy["badput_seconds"]["waiting"] == 5 * 600
    assert main([*toy_package, "--policy", "every-other", "--windows", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["met_deadline"] == 1.0


def test_what_it_needs_is_asked_for(toy_package, capsys):
    assert main([*toy_package, "--policy", "flex-toy"]) == 2
    assert "add --flex-start-price" in capsys.readouterr().err


def test_every_name_of_our_own_makes_a_policy():
    for name in NAMES[1:]:
        assert make_policy(name) is not make_policy(name)
    with pytest.raises(SettingError, match="there is no policy 'gredy'"):
        make_policy("gredy")


def test_a_policy_is_built_from_what_is_written_down(toy_package):
    toy = PolicyDocument("every-other").build()
    assert type(toy).__name__ == "EveryOtherTick"
    assert type(PolicyDocument("hybrid").build()).__name__ == "Hybrid"
