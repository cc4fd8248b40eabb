"""Money: what a workload file and the catalogue add to the ledgers, and what is said where neither knows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from dashboard_server import Dashboard, row, write_run

import stayfast
from stayfast.batch.queue.open_queue import open_queue
from stayfast.capacity.machines.prices import bundled_catalogue
from stayfast.capacity.spec import read_spec
from stayfast.cli.main import main
from stayfast.dashboard.run_cache import RunCache, Sources, to_json
from stayfast.dashboard.run_view import RunPricing
from stayfast.dashboard.sources import from_spec
from stayfast.runtime.run_record.record import RECORD_KEY, decode
from stayfast.settings import Settings, read_settings

SPEC = """\
name: llm-7
kind: train
image: us-docker.pkg.dev/p/r/t:v1
command: [python, train.py]
accelerator: {{type: h100, count: 8}}
nodes: {nodes}
work: {{hours: 48}}
state: {{size: 14GB, checkpoints: "{url}"}}
location: {{region: us-central1}}
"""


def told(url: str, nodes: int = 1, given: RunPricing | None = None) -> Any:
    catalogue = bundled_catalogue()
    spec = read_spec(SPEC.format(url=url, nodes=nodes), "stayfast.yaml", accelerators=catalogue.accelerators)
    return from_spec(spec, catalogue, given or RunPricing())


def look(sources: Sources) -> dict[str, Any]:
    watch = RunCache(sources)
    try:
        watch.refresh()
        found: dict[str, Any] = json.loads(to_json(watch.overview()))
        return found
    finally:
        watch.close()


@pytest.mark.parametrize("nodes", [1, 4])
def test_the_catalogue_prices_all_machines_and_says_of_when(nodes: int) -> None:
    catalogue = bundled_catalogue()
    listed = catalogue.price("a3-highgpu-8g", "us-central1")
    assert listed.on_demand is not None
    assert listed.spot is not None
    prices = told("gs://bucket/runs/llm-7", nodes).prices
    assert prices.on_demand_usd_per_hour == pytest.approx(listed.on_demand * nodes)
    assert prices.fallback("spot") == pytest.approx(listed.spot * nodes)
    assert prices.fallback("") is None
    assert str(catalogue.date) in prices.because
    assert ("4 × " in prices.because) == (nodes == 4)


def test_what_is_given_on_the_command_line_comes_first() -> None:
    prices = told("gs://bucket/runs/llm-7", given=RunPricing(1.0, 2.0)).prices
    assert (prices.fallback("spot"), prices.on_demand_usd_per_hour, prices.because) == (1.0, 2.0, "")


def test_a_run_with_a_file_and_one_without(tmp_path: Path) -> None:
    with_file = write_run(tmp_path / "with", row(1, usd_per_hour=None))
    write_run(tmp_path / "without", row(1, usd_per_hour=None))
    found = told(with_file)
    sources = Sources((f"file://{tmp_path}",), listed={found.run_url: found.prices})
    money = {item["name"]: item["money"] for item in look(sources)["runs"]}
    listed = bundled_catalogue().price("a3-highgpu-8g", "us-central1")
    assert money["with"]["spent_usd"] == pytest.approx(0.5 * (listed.spot or 0))  # half an hour on Spot
    useful_hours = (1500 + 30) / 3600
    assert money["with"]["on_demand_usd"] == pytest.approx(useful_hours * (listed.on_demand or 0))
    assert money["with"]["saved_usd"] == pytest.approx(money["with"]["on_demand_usd"] - money["with"]["spent_usd"])
    assert money["with"]["lost_usd"] == pytest.approx(270 / 3600 * (listed.spot or 0))  # 1800 − 1500 − 30 s
    assert money["without"]["spent_usd"] is None
    assert money["without"]["unpriced_seconds"] == 1800
    assert money["without"]["saved_usd"] is None


def test_trials_of_a_sweep_are_under_the_url_of_their_file() -> None:
    assert told("gs://bucket/sweep/{index}").run_url == "gs://bucket/sweep"
    sources = Sources(listed={"gs://b/sweep": RunPricing(1.0), "gs://b": RunPricing(2.0)})
    assert sources.prices_of("gs://b/sweep/7").usd_per_hour == 1.0
    assert sources.prices_of("gs://b/sweeper").usd_per_hour == 2.0
    assert sources.prices_of("gs://other").usd_per_hour is None


def test_the_file_alone_is_enough(tmp_path: Path) -> None:
    url = write_run(tmp_path / "runs" / "llm-7", row(1))
    queue = f"sqlite://{tmp_path}/work.db?queue=images"
    open_queue(queue).close()
    (tmp_path / "stayfast.yaml").write_text(SPEC.format(url=url, nodes=1) + f"queue: {queue}\n")
    with Dashboard(tmp_path, "-f", str(tmp_path / "stayfast.yaml")) as dashboard:
        found = dashboard.get("/api/overview")
        assert [item["name"] for item in found["runs"]] == ["llm-7"]
        assert [item["name"] for item in found["queues"]] == ["images"]
        assert found["on_demand"] is True
        assert "list prices of" in found["runs"][0]["money"]["because"]


def test_a_file_that_is_none_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("name: x\n")
    assert main(["dashboard", "-f", str(tmp_path / "x.yaml")]) == 2
    assert main(["dashboard", "-f", str(tmp_path / "none.yaml")]) == 2
    assert "Traceback" not in capsys.readouterr().err


# -- what a gang's ledger says


@pytest.mark.parametrize(
    ("given", "machines"),
    [
        ({}, 1),
        ({"WORLD_SIZE": "16", "RANK": "0", "GROUP_WORLD_SIZE": "2"}, 2),
        ({"WORLD_SIZE": "16", "RANK": "0", "NNODES": "2"}, 2),
        ({"WORLD_SIZE": "16", "RANK": "0", "NNODES": "1:4"}, 1),
        ({"WORLD_SIZE": "16", "RANK": "0", "NNODES": "4", "GROUP_WORLD_SIZE": "3"}, 3),
        ({"NNODES": "4"}, 1),  # one process alone is one machine, whatever lies around in the environment
        ({"WORLD_SIZE": "2", "NNODES": "0"}, 1),
        ({"WORLD_SIZE": "2", "NNODES": "²"}, 1),
    ],
)
def test_how_many_machines_a_gang_has(given: dict[str, str], machines: int) -> None:
    settings = read_settings({"STAYFAST_USD_PER_HOUR": "10", **given})
    assert settings.machines == machines
    assert settings.run_usd_per_hour == 10.0 * machines
    assert read_settings(given).run_usd_per_hour is None


def test_the_ledger_of_a_gang_has_the_price_of_all_its_machines(tmp_path: Path) -> None:
    settings = Settings(usd_per_hour=10.0, machines=4, metadata="off", termination_log="", outcome_file=os.devnull)
    with stayfast.run(f"file://{tmp_path}/run", 3, settings=settings) as run:
        assert list(run.steps()) == [0, 1, 2]
    head = decode((tmp_path / "run" / RECORD_KEY).read_bytes())
    assert [item.usd_per_hour for item in head.attempts] == [40.0]
