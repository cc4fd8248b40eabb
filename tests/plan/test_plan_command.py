"""The planner: the decision matrix, honest figures, and what would change the answer."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from stayfast.capacity.machines.gke_limits import allows_long_grace
from stayfast.capacity.machines.prices import MachinePrices, bundled_catalogue
from stayfast.capacity.machines.prices import to_json as catalogue_json
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.grace_fit import check_grace
from stayfast.capacity.plan.planner import egress_usd_per_gib, make_plan, transfer_usd
from stayfast.capacity.policies.regimes import Regime
from stayfast.capacity.replay.synthetic import draw_from_regimes, lognormal_waits
from stayfast.capacity.spec import read_spec
from stayfast.cli.main import main
from stayfast.cluster.observed.capabilities import CheckState, ClusterDescription, check_capabilities
from stayfast.errors import UsageError
from stayfast.model.capacity import CapacityClass

SWEEP = """\
name: sweep
kind: sweep
image: us-docker.pkg.dev/p/r/i:v1
command: [python, sweep.py]
accelerator: {type: l4, count: 1}
work: {items: 100, seconds_per_item: 900}
tolerance: {longest_wait: 10m}
state: {size: 500MB, checkpoints: gs://b/r}
location: {region: us-central1}
"""
TRAIN = """\
name: train
kind: train
image: us-docker.pkg.dev/p/r/i:v1
command: [python, train.py]
accelerator: {type: h100, count: 8}
nodes: 2
work: {hours: 72}
deadline: 168h
state: {size: 40GB, checkpoints: gs://b/r}
location: {region: us-central1}
"""
SERVE = re.sub("work:.*\n", "", SWEEP.replace("kind: sweep", "kind: serve"))
MIX = SWEEP.replace("kind: sweep", "kind: batch").replace("longest_wait: 10m}", "longest_wait: 30m}\ndeadline: 29h")
QUICK = Assumptions(windows=300, most_ticks=150)


def plan(text, catalogue=None, **more):
    return make_plan(read_spec(text, "w.yaml"), catalogue or bundled_catalogue(), assumptions=QUICK, **more)


@pytest.mark.parametrize(
    ("text", "choice", "reason"),
    [
        (SWEEP, CapacityClass.SPOT, "not flex-start: may wait"),
        (TRAIN, CapacityClass.FLEX_START, "never preempted"),
        (SERVE, CapacityClass.ON_DEMAND, "an endpoint must be there all the time"),
        (MIX, CapacityClass.HYBRID, "not spot: keeps the deadline in only"),
    ],
    ids=["sweep", "train", "serve", "mix"],
)
def test_the_decision_matrix(text, choice, reason):
    made = plan(text)
    assert made.choice == choice
    assert any(reason in sentence for sentence in made.because), made.because


def with_prices(machine, region, **changes):
    catalogue = bundled_catalogue()
    prices = {name: dict(offers) for name, offers in catalogue.prices.items()}
    prices[machine][region] = replace(prices[machine][region], **changes)
    return replace(catalogue, prices=prices)


def test_prices_decide_differently_elsewhere():
    """The same training where Spot is a tenth of on-demand: interruptions are worth it."""
    cheap = with_prices("a3-highgpu-8g", "us-central1", spot=9.0)
    made = plan(TRAIN, cheap)
    assert made.choice in (CapacityClass.SPOT, CapacityClass.HYBRID)
    assert plan(TRAIN).choice == CapacityClass.FLEX_START


def random_workload(seed):
    """Any accelerator, region and kind; with and without deadline, limit of wait and budget."""
    rng, catalogue = random.Random(f"flip {seed}"), bundled_catalogue()
    accelerator = rng.choice(catalogue.accelerators)
    count = rng.choice(catalogue.counts(accelerator))
    region = rng.choice(sorted(catalogue.prices[catalogue.machine_for(accelerator, count).name]))
    hours = rng.choice([3, 20, 72, 200])
    lines = [
        f"name: w\nkind: {rng.choice(['train', 'batch', 'sweep'])}\nimage: i:v1\ncommand: [a]",
        f"accelerator: {{type: {accelerator}, count: {count}}}",
        f"nodes: {rng.choice([1, 1, 2, 8])}\nwork: {{hours: {hours}}}",
        rng.choice(["", f"deadline: {int(hours * rng.choice([1.3, 2, 4])) + 2}h"]),
        rng.choice(["", "tolerance: {longest_wait: 10m}"]),
        rng.choice(["", "", f"budget: {hours * rng.choice([1, 5, 40, 400])}"]),
        f"state: {{size: {rng.choice(['1GB', '40GB', '300GB'])}, checkpoints: gs://b/r}}",
        f"location: {{region: {region}}}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


@pytest.mark.parametrize("text", [TRAIN, SWEEP, *(random_workload(seed) for seed in range(12))])
def test_what_would_change_the_answer_does_within_five_percent(text):
    made = plan(text)
    assert made.flips or made.choice is None or sum(option.usd_per_hour is not None for option in made.options) < 3
    fields = {"spot": "spot", "flex-start": "flex_start", "on-demand": "on_demand"}
    for flip in made.flips:
        falls = flip.usd_per_hour < flip.now_usd_per_hour
        for factor in (0.95, 1.05):
            price = flip.usd_per_hour * factor / made.spec.nodes
            catalogue = with_prices(made.machine.name, made.region, **{fields[flip.price_of.value]: price})
            beyond = (factor < 1) == falls
            assert (plan(text, catalogue).choice != made.choice) == beyond, (flip.sentence, factor)
        event = f"{flip.winner} wins" if flip.winner else "nothing keeps the budget"
        assert flip.sentence.startswith(f"{event} {'below' if falls else 'above'} $")


def test_a_budget_is_part_of_the_answer():
    rich = plan(TRAIN)
    cost = rich.option(CapacityClass.FLEX_START).cost_usd.p95
    tight = plan(TRAIN + f"budget: {cost * 1.1:.0f}\n")
    assert tight.choice == CapacityClass.FLEX_START
    ends = [flip for flip in tight.flips if flip.winner is None]
    assert [flip.price_of for flip in ends] == [CapacityClass.FLEX_START]
    assert ends[0].usd_per_hour == pytest.approx(1.1 * ends[0].now_usd_per_hour, rel=0.02)
    poor = plan(TRAIN + f"budget: {cost * 0.9:.0f}\n")
    assert poor.choice is None
    assert any(flip.winner == CapacityClass.FLEX_START and "wins below" in flip.sentence for flip in poor.flips)


def test_figures_are_consistent():
    made = plan(TRAIN)
    for option in made.options:
        assert option.cost_usd.p50 <= option.cost_usd.p95
        assert option.finish_hours.p50 <= option.finish_hours.p95
        assert 0 < option.goodput <= 1
    paid = made.option(CapacityClass.ON_DEMAND)
    assert paid.cost_usd.p50 == pytest.approx(paid.hours["on-demand"] * paid.usd_per_hour)
    assert paid.finish_hours.p95 == paid.finish_hours.p50
    assert make_plan(made.spec, bundled_catalogue(), assumptions=QUICK).because == made.because


@pytest.mark.parametrize(("hours", "deadline"), [("0.02", "1h"), ("1", "9000d"), ("100000", "99999d")])
def test_short_work_and_far_deadlines_are_billed_sanely(hours, deadline):
    text = TRAIN.replace("hours: 72", f"hours: {hours}").replace("deadline: 168h", f"deadline: {deadline}")
    paid = plan(text).option(CapacityClass.ON_DEMAND)
    least = (float(hours) + 0.1) * paid.usd_per_hour
    assert least * 0.99 <= paid.cost_usd.p50 <= least * 1.25 + paid.usd_per_hour / 60


def test_a_deadline_beyond_what_is_watched_is_not_spoken_of():
    spec = read_spec(TRAIN.replace("deadline: 168h", "deadline: 9000d"), "w.yaml")
    made = make_plan(spec, bundled_catalogue(), assumptions=replace(QUICK, confidence=0.999))
    told = [text for option in made.options for text in option.obstacles]
    assert told
    assert not any("deadline" in text for text in told)
    assert any("is done within 744.0 h in only" in text for text in told)


def test_a_state_that_cannot_be_saved_is_refused():
    with pytest.raises(UsageError, match=r"each save .* s and each restore .* s; check state.size"):
        plan(TRAIN.replace("40GB", "999999999999TiB"))


def test_wishes_are_obeyed_or_refused():
    assert plan(TRAIN + "capacity: on-demand\n").choice == CapacityClass.ON_DEMAND
    rigid = plan(TRAIN + "tolerance: {interruptible: false}\n")
    assert not rigid.option(CapacityClass.SPOT).feasible
    assert plan(TRAIN + "budget: 10\n").choice is None
    assert plan(TRAIN.replace("deadline: 168h", "deadline: 60h")).choice is None
    with pytest.raises(UsageError, match="no machine has 3 h100; write a count of 1, 2, 4, 8"):
        plan(TRAIN.replace("count: 8", "count: 3"))
    with pytest.raises(UsageError, match="not offered in"):
        plan(TRAIN.replace("us-central1", "africa-south1"))


def test_the_grace_window():
    small = check_grace(read_spec(SWEEP, "w"), QUICK)
    assert small.fits
    assert small.advice == ()
    large = read_spec(TRAIN.replace("40GB", "100GB") + "cluster: {version: 1.35.0-gke.1171000}\n", "w")
    grace = check_grace(large, QUICK)
    assert not grace.fits
    assert grace.needed_seconds == pytest.approx(2 + 5 + 50)
    assert "120 s" in grace.advice[0]
    huge = check_grace(read_spec(TRAIN.replace("40GB", "10TB"), "w"), QUICK)
    assert not any("120 s" in text for text in huge.advice)
    assert any("shard" in text for text in huge.advice)


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        ("1.35.0-gke.1171000", True),
        ("1.35.0-gke.1170999", False),
        ("1.36", True),
        ("1.34.9-gke.9999999", False),
        ("1.36.1-alpha.1-gke.5", True),
        ("v1.35.1-gke.1", True),
        ("1.35.0-gke.1171000.1", True),
        (None, False),
        ("x", False),
    ],
)
def test_versions_of_the_long_grace(version, allowed):
    """Plan, render and check-cluster read a version in the same way."""
    assert allows_long_grace(version) is allowed
    if version is not None and "-gke." in version:
        (check,) = (item for item in check_capabilities(ClusterDescription(version)) if item.name == "long-grace")
        assert (check.state is CheckState.YES) is allowed


def test_a_plan_promises_its_choice_and_what_may_stand_in_for_it():
    decided = plan(TRAIN)
    promise = decided.promise
    assert promise.deadline_seconds == decided.spec.deadline_seconds
    for kind in CapacityClass:
        other = replace(decided, choice=kind).promise
        assert type(other.policy.build()).__name__ in ("SpotOnly", "FlexStart", "OnDemand", "Hybrid")
        assert len(set(other.classes)) == len(other.classes)
        if kind == CapacityClass.HYBRID:
            assert other.classes[0] == CapacityClass.SPOT
            assert (CapacityClass.FLEX_START in other.classes) == (decided.spec.nodes == 1)
        else:
            assert other.classes[0] == kind
            assert CapacityClass.HYBRID not in other.later_classes
            costs = [decided.option(name).cost_usd.p50 for name in other.later_classes]
            assert costs == sorted(costs)
    assert replace(decided, choice=None).promise is None


def test_gangs_and_batches_get_advice():
    assert any("queued provisioning" in text for text in plan(TRAIN).advice)
    wide = plan(MIX.replace("location:", "nodes: 4\nlocation:"))
    assert any("lower parallelism" in text for text in wide.advice)


def test_egress_is_priced_when_the_bucket_is_elsewhere():
    near, far = (TRAIN.replace("gs://b/r}", f"gs://b/r, region: {place}}}") for place in ("us-east4", "europe-west4"))
    spec = read_spec(near, "w")
    assert transfer_usd(spec, "us-central1", QUICK) == pytest.approx(40e9 / 2**30 * 0.02)
    assert transfer_usd(spec, "us-east4", QUICK) == 0
    assert egress_usd_per_gib("northamerica-northeast1", "us-east4", QUICK) == 0.02
    assert egress_usd_per_gib("asia-east1", "asia-south1", QUICK) == 0.08
    assert egress_usd_per_gib("us-east4", "europe-west4", QUICK) == 0.08
    assert egress_usd_per_gib("us-east4", "australia-southeast1", QUICK) == 0.157
    home, abroad = plan(TRAIN), plan(far)
    kind = CapacityClass.ON_DEMAND
    assert abroad.option(kind).egress_usd > 0
    more = abroad.option(kind).cost_usd.p50 - home.option(kind).cost_usd.p50
    assert more == pytest.approx(abroad.option(kind).egress_usd)
    assert abroad.egress_usd_per_gib == 0.08
    assert home.egress_usd_per_gib == 0
    assert any("is transfer of checkpoints from and to europe-west4" in text for text in abroad.advice)
    assert not any("is transfer" in text for text in home.advice)


def test_a_contract_may_say_another_price_of_transfer(spec_file, capsys):
    spec_file.write_text(TRAIN.replace("gs://b/r}", "gs://b/r, region: us-east4}"))
    costs = []
    for price in ("0", "0.05", "0.1"):
        code, out, _ = run(capsys, "-f", spec_file, "--replays", "200", "--json", "--egress-usd-per-gib", price)
        assert code == 0
        body = json.loads(out)
        assert body["assumptions"]["egress_usd_per_gib"] == float(price)
        costs.append(next(option["egress_usd"] for option in body["options"] if option["class"] == "on-demand"))
    assert costs[0] == 0
    assert costs[2] == pytest.approx(2 * costs[1])


def test_made_up_histories_follow_their_regimes():
    steady = draw_from_regimes([Regime((1.0,) * 5, (0.1,) * 5)], windows=300, ticks=600, tick_seconds=600, seed=2)
    assert steady.mean() == pytest.approx(10 / 11, abs=0.03)
    waits = lognormal_waits(median_seconds=3600, sigma=1.2, windows=4000, seed=1)
    assert np.median(waits) == pytest.approx(3600, rel=0.1)
    assert lognormal_waits(median_seconds=0, sigma=1, windows=3, seed=1).tolist() == [0, 0, 0]


@pytest.fixture
def spec_file(tmp_path, monkeypatch):
    monkeypatch.setenv("STAYFAST_CATALOGUE", str(tmp_path / "none.json"))
    path = tmp_path / "stayfast.yaml"
    path.write_text(TRAIN)
    return path


def run(capsys, *args):
    code = main(["plan", *map(str, args)])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_json_has_the_contract(spec_file, capsys):
    code, out, err = run(capsys, "-f", spec_file, "--replays", "400", "--json")
    assert code == 0
    body = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert body["choice"] == "flex-start"
    assert [option["class"] for option in body["options"]] == ["spot", "flex-start", "on-demand", "hybrid"]
    for option in body["options"]:
        assert {"feasible", "cost_usd", "finish_hours", "goodput"} <= set(option)
        assert set(option["cost_usd"]) == {"p50", "p95"}
    assert body["checkpoint_interval_seconds"] > 0
    assert {"window_seconds", "needed_seconds", "fits"} <= set(body["grace"])
    assert body["would_change"]
    assert "days old" in err


def test_text_and_page(spec_file, capsys, tmp_path):
    page = tmp_path / "report.html"
    code, out, err = run(capsys, "-f", spec_file, "--replays", "400", "--html", page)
    assert code == 0
    assert "train: FLEX-START" in out
    assert "▶ flex-start" in out
    assert "what would change the answer" in out
    text = page.read_text()
    assert text.count("<svg") == 5
    assert "One replay" in text
    assert not re.search(r"(src|href)=|https?:|@import|url\(", text), "the page must open without a network"
    assert "wrote" in err
    outline = Outline()
    outline.feed(text)
    assert outline.open_tags == []
    assert outline.seen["table"] == 1
    assert outline.seen["script"] == outline.seen["link"] == outline.seen["img"] == 0
    assert outline.seen["rect"] > 10
    assert outline.boxes
    for x, y, width, height in outline.boxes:
        assert x >= 0 <= y
        assert x + width <= 720.5
        assert y + height <= 130.5


class Outline(HTMLParser):
    """Every tag closed, and where the bars are."""

    def __init__(self):
        super().__init__()
        self.open_tags, self.seen, self.boxes = [], Counter(), []

    def handle_starttag(self, tag, attrs):
        self.seen[tag] += 1
        if tag == "meta":
            return
        self.open_tags.append(tag)
        if tag == "rect":
            values = dict(attrs)
            self.boxes.append([float(values[name]) for name in ("x", "y", "width", "height")])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open_tags.pop()

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag


def test_a_hostile_name_cannot_leave_the_page(spec_file, capsys, tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text(json.dumps({"id": "<script>alert(1)</script>", "gap_s": 600, "rle": [[2, 3000]]}))
    page = tmp_path / "r.html"
    code, _, _ = run(capsys, "-f", spec_file, "--traces", trace, "--replays", "40", "--html", page)
    assert code == 0
    assert "<script>" not in page.read_text()
    assert "&lt;script&gt;" in page.read_text()


def test_nothing_fits_is_code_4(spec_file, capsys):
    spec_file.write_text(TRAIN + "budget: 10\n")
    code, out, _ = run(capsys, "-f", spec_file, "--replays", "40")
    assert code == 4
    assert "NOTHING FITS" in out
    code, out, _ = run(capsys, "-f", spec_file, "--replays", "40", "--json")
    assert code == 4
    assert json.loads(out)["choice"] is None


def test_mistakes_are_code_2(spec_file, capsys, tmp_path):
    assert run(capsys)[0] == 2
    assert run(capsys, "-f", tmp_path / "none.yaml")[0] == 2
    spec_file.write_text(TRAIN.replace("type: h100", "type: h10"))
    code, _, err = run(capsys, "-f", spec_file)
    assert code == 2
    assert re.search(r"stayfast.yaml:5:21: accelerator.type: 'h10' is not in the catalogue; write h100", err)
    spec_file.write_text(TRAIN)
    assert run(capsys, "-f", spec_file, "--html", tmp_path, "--replays", "40")[0] == 2
    assert run(capsys, "-f", spec_file, "--catalogue", spec_file)[0] == 2


def test_another_catalogue_is_used(spec_file, capsys, tmp_path):
    other = tmp_path / "prices.json"
    other.write_text(catalogue_json(with_prices("a3-highgpu-8g", "us-central1", flex_start=None)))
    code, out, _ = run(capsys, "-f", spec_file, "--catalogue", other, "--replays", "200", "--json")
    assert code == 0
    body = json.loads(out)
    assert body["choice"] != "flex-start"
    assert "not offered" in body["options"][1]["obstacles"][0]
    assert MachinePrices(1.0, None, None).spot is None


def test_the_schema_is_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("STAYFAST_CATALOGUE", str(tmp_path / "none.json"))
    code, out, _ = run(capsys, "--schema")
    assert code == 0
    assert json.loads(out)["properties"]["accelerator"]["properties"]["type"]["enum"]


REHEARSED = {"verdict": "survives", "reasons": [], "measures": {"restart_seconds": 45.5, "safe_seconds_max": 4.0}}


def measured_plan(tmp_path, capsys, told, text=TRAIN):
    (tmp_path / "w.yaml").write_text(text)
    (tmp_path / "rehearse.json").write_text(told if isinstance(told, str) else json.dumps(told))
    files = ["-f", str(tmp_path / "w.yaml"), "--measured", str(tmp_path / "rehearse.json")]
    code = main(["plan", *files, "--replays", "200", "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else err


def test_a_rehearsal_gives_the_start_and_the_last_save(tmp_path, capsys):
    code, told = measured_plan(tmp_path, capsys, REHEARSED)
    assert code == 0
    assert told["assumptions"]["measured"] == {"restart_seconds": 45.5, "last_save_seconds": 4.0, "failures": []}
    assert told["grace"]["needed_seconds"] > 4.0, "40 GB need longer than what was rehearsed"
    slow = {**REHEARSED, "measures": {"restart_seconds": 4000.0, "safe_seconds_max": 60.0}}
    _, later = measured_plan(tmp_path, capsys, slow)
    assert (later["grace"]["needed_seconds"], later["grace"]["fits"]) == (60.0, False)

    def spot(of):
        return next(row for row in of["options"] if row["class"] == "spot")

    assert spot(later)["goodput"] < spot(told)["goodput"], "every start costs an hour more"


def test_what_does_not_survive_is_not_put_on_spot(tmp_path, capsys):
    failed = {**REHEARSED, "verdict": "fails", "reasons": [{"code": "resume-crash"}, {"code": "no-progress"}]}
    code, told = measured_plan(tmp_path, capsys, failed, SWEEP)
    assert code == 0
    assert told["choice"] not in ("spot", "hybrid")
    ruled_out = {row["class"]: row["obstacles"] for row in told["options"]}
    sentence = "the program does not survive its rehearsal: resume-crash, no-progress"
    assert sentence in ruled_out["spot"]
    assert sentence in ruled_out["hybrid"]
    assert not any(sentence in ruled_out[name] for name in ("on-demand", "flex-start"))
    _, well = measured_plan(tmp_path, capsys, REHEARSED, SWEEP)
    assert well["choice"] == "spot"


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("", "is not what a rehearsal prints"),
        ("[" * 100_000, "is not what a rehearsal prints"),
        ({"verdict": "maybe"}, "is not what a rehearsal prints"),
        ({"verdict": "survives"}, "has no measures"),
        ({**REHEARSED, "verdict": "fails"}, "gives no reason"),
        ({**REHEARSED, "measures": {"restart_seconds": "long"}}, "measures.restart_seconds is 'long'"),
        ({**REHEARSED, "measures": {"safe_seconds_max": -1}}, "measures.safe_seconds_max is -1"),
        ({**REHEARSED, "measures": {"safe_seconds_max": float("nan")}}, "is nan, not a number of seconds"),
        ({**REHEARSED, "measures": {"safe_seconds_max": 10**400}}, "00, not a number of seconds"),
    ],
)
def test_a_bad_file_of_measures_is_one_sentence(tmp_path, capsys, told, sentence):
    code, err = measured_plan(tmp_path, capsys, told)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
