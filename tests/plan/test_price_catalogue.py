"""The catalogue: facts that must hold, and a refresh against a server that speaks the billing API."""

from __future__ import annotations

import datetime
import http.server
import json
import math
import threading
import urllib.parse
from pathlib import Path

import pytest

from stayfast.capacity.machines.billing_skus import price_list_from_skus, unit_price
from stayfast.capacity.machines.machine import load_machines
from stayfast.capacity.machines.prices import bundled_catalogue, read_catalogue, to_json
from stayfast.cli.main import main
from stayfast.errors import UsageError

SECRET = "s3cret-key"


def sku(description, price, regions=("us-central1",), unit="h"):
    units, nanos = divmod(round(price * 1e9), 10**9)
    rate = {"unitPrice": {"currencyCode": "USD", "units": str(units), "nanos": nanos}}
    return {
        "description": description,
        "serviceRegions": list(regions),
        "category": {"usageType": "OnDemand"},
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [rate]}}],
    }


def h100_skus():
    return [
        sku("Nvidia H100 80GB GPU running in Americas", 9.79655, ("us-central1", "us-east4")),
        sku("A3 Instance Core running in Americas", 0.0255, ("us-central1", "us-east4")),
        sku("A3 Instance Ram running in Americas", 0.00222, ("us-central1", "us-east4"), "GiBy.h"),
        sku("Nvidia H100 80GB GPU attached to Spot Preemptible VMs running in Iowa", 5.9),
        sku("Spot Preemptible A3 Instance Core running in Iowa", 0.015),
        sku("Spot Preemptible A3 Instance Ram running in Iowa", 0.0013, unit="GiBy.h"),
        sku("Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas", 4.200761),
        sku("DWS Defined Duration A3 Core running in Americas", 0.010934),
        sku("DWS Defined Duration A3 Ram running in Americas", 0.000952, unit="GiBy.h"),
        # Traps: usage type on-demand, and not on-demand.
        sku("Reserved Nvidia H100 80GB GPU running in Americas", 1.0),
        sku("Nvidia H100 80GB GPU running in Americas with Calendar Mode", 2.0),
        sku("Commitment v1: Nvidia H100 80GB GPU running in Americas for 1 Year", 3.0),
        sku("Nvidia H100 80GB GPU Capacity Optimized running in Americas", 4.0),
        {"description": 5},
        {},
    ]


class Billing(http.server.BaseHTTPRequestHandler):
    pages: list[bytes] = []
    status = 200
    seen: list[dict] = []

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        Billing.seen.append({"path": parts.path, **query})
        body = (
            Billing.pages[int(query.get("pageToken", "0"))] if Billing.status == 200 else b"denied " + SECRET.encode()
        )
        self.send_response(Billing.status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def billing(monkeypatch, tmp_path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Billing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Billing.status, Billing.seen = 200, []
    monkeypatch.setenv("STAYFAST_BILLING_API_KEY", SECRET)
    monkeypatch.setenv("STAYFAST_BILLING_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("STAYFAST_CATALOGUE", str(tmp_path / "cache" / "prices.json"))
    yield tmp_path / "cache" / "prices.json"
    server.shutdown()
    server.server_close()


def serve(*pages):
    Billing.pages = [page if isinstance(page, bytes) else json.dumps(page).encode() for page in pages]


def test_the_bundled_prices_hold_the_facts_we_checked():
    catalogue = bundled_catalogue()
    assert catalogue.price("g2-standard-8", "us-central1").on_demand == pytest.approx(0.8536)
    h100 = catalogue.price("a3-highgpu-8g", "us-central1")
    assert (h100.on_demand, h100.spot) == (pytest.approx(87.8325), pytest.approx(52.6991))
    assert h100.flex_start < h100.spot, "in August 2026 flex-start was cheaper than Spot for H100"
    assert catalogue.price("a4-highgpu-8g", "us-central1").on_demand > 120, "16.11 per GPU, not the calendar-mode rate"
    for name, offers in catalogue.prices.items():
        for region, offer in offers.items():
            if offer.on_demand and offer.spot:
                assert 0.05 < offer.spot / offer.on_demand <= 1.0, (name, region)
            if offer.on_demand and offer.flex_start:
                assert offer.flex_start <= offer.on_demand * 1.001, (name, region)


def test_machines_have_legal_counts():
    catalogue = bundled_catalogue()
    assert catalogue.machine_for("l4", 1).name == "g2-standard-4"
    assert catalogue.machine_for("l4", 2).name == "g2-standard-24"
    assert catalogue.counts("l4") == [1, 2, 4, 8]
    with pytest.raises(UsageError, match="no machine has 3 l4; write a count of 1, 2, 4, 8"):
        catalogue.machine_for("l4", 3)
    with pytest.raises(UsageError, match="no accelerator 'abacus'"):
        catalogue.machine_for("abacus", 1)
    with pytest.raises(UsageError, match="not offered in mars-north1; choose a region from"):
        catalogue.machine_for("l4", 1, "mars-north1")


def test_every_accelerator_is_one_that_gke_and_the_billing_catalogue_know():
    catalogue, table = bundled_catalogue(), load_machines()
    billed = {entry.name for entry in table.accelerators.values() if entry.billing is not None}
    named = {entry.name for gke_name, entry in table.accelerators.items() if entry.name != gke_name}
    assert set(catalogue.accelerators) == billed == named
    for name, machine in catalogue.machines.items():
        assert (machine.topology is not None) == machine.accelerator.startswith("tpu-"), name
    for machine in table.machines.values():
        if machine.topology is not None:
            assert machine.gke_accelerator.startswith("tpu"), machine.name
            assert math.prod(int(side) for side in machine.topology.split("x")) == machine.count
    assert catalogue.counts("t4") == [1, 2, 4]
    assert catalogue.counts("tpu-v6e") == [1, 4, 8]


def test_shapes_agree_with_the_facts_beside_the_repository():
    path = Path(__file__).resolve().parents[3] / "shared" / "lint" / "gke_facts.json"
    if not path.exists():
        pytest.skip("the facts are not beside the repository (../shared/lint/gke_facts.json)")
    facts = json.loads(path.read_text())
    for name, machine in bundled_catalogue().machines.items():
        known = facts["machine_types"][name]
        if name != "g2-standard-24":  # 24 by its name and by the limit for two L4; the table there says 23
            assert (machine.vcpus, machine.memory_gib) == (known["cpu"], known["memGiB"]), name
        if name.startswith("n1-"):  # its GPUs are added to it, within limits
            assert machine.vcpus <= facts["gpu_max_cpu_by_count"]["nvidia-tesla-t4"][str(machine.count)]
        else:
            assert machine.count == known.get("n", facts["tpu_chips_by_machine"].get(name)), name


def test_new_accelerators_have_the_prices_that_were_read():
    catalogue = bundled_catalogue()
    eight = catalogue.price("ct6e-standard-8t", "us-central1")
    assert (eight.on_demand, eight.spot, eight.flex_start) == (21.6, 5.21, None)
    assert catalogue.price("ct6e-standard-1t", "us-east5").flex_start == 1.35
    assert catalogue.price("ct5lp-hightpu-8t", "us-central1").spot == 2.74
    assert catalogue.price("g4-standard-48", "us-west1").on_demand == pytest.approx(
        48 * 0.04891 + 180 * 0.00587 + 1.09565, abs=1e-4
    )
    assert catalogue.price("n1-standard-4", "us-central1").on_demand == pytest.approx(0.19 + 0.35)


def test_an_old_catalogue_says_so():
    catalogue = bundled_catalogue()
    assert catalogue.warning(catalogue.date + datetime.timedelta(days=30)) is None
    assert "31 days old" in catalogue.warning(catalogue.date + datetime.timedelta(days=31))


def test_the_file_form_goes_both_ways():
    catalogue = bundled_catalogue()
    assert read_catalogue(to_json(catalogue), "x") == catalogue


GOOD = to_json(bundled_catalogue())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '{"date":"2026-13-01"}',
        GOOD.replace("87.8325", '"x"'),
        GOOD.replace("87.8325", "NaN"),
        GOOD.replace("87.8325", "1" + "0" * 400),
        GOOD.replace('"a3-highgpu-8g": [', '"z": ['),
    ],
)
def test_broken_catalogues_are_refused(text):
    with pytest.raises(UsageError, match=r"^x is not a price catalogue"):
        read_catalogue(text, "x")


def test_machine_prices_are_sums_of_parts_and_traps_are_passed_over():
    today = datetime.date(2026, 11, 1)
    catalogue = price_list_from_skus(h100_skus(), bundled_catalogue().machines, today)
    offer = catalogue.price("a3-highgpu-1g", "us-central1")
    assert offer.on_demand == pytest.approx(9.79655 + 26 * 0.0255 + 234 * 0.00222, abs=1e-4)
    assert offer.spot == pytest.approx(5.9 + 26 * 0.015 + 234 * 0.0013, abs=1e-4)
    assert offer.flex_start == pytest.approx(4.200761 + 26 * 0.010934 + 234 * 0.000952, abs=1e-4)
    east = catalogue.price("a3-highgpu-8g", "us-east4")
    assert (east.spot, east.flex_start) == (None, None)
    assert east.on_demand == pytest.approx(8 * offer.on_demand, rel=1e-3)
    assert unit_price(sku("x", 1.0, unit="mo")) is None
    assert unit_price({"pricingInfo": []}) is None
    with pytest.raises(UsageError, match="prices no machine"):
        price_list_from_skus([], bundled_catalogue().machines, today)


def test_all_ways_of_writing_a_description_are_understood():
    """As they stand in the live catalogue: each chip in its own manner."""
    rows = [
        sku("A4 Nvidia B200 (1 gpu slice) running in Americas", 16.11),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.9542),
        sku("H200 141GB GPU running in Americas", 9.0),
        sku("A3Ultra Instance Core running in Americas", 0.05),
        sku("A3Ultra Instance Ram running in Americas", 0.005, unit="GiBy.h"),
        sku("TpuV6e running in Columbus", 2.70),
        sku("TpuV6e attached to Spot Preemptible VMs running in Columbus", 1.4033),
        sku("DWS Defined Duration V6e running in Columbus", 1.35),
        sku("Capacity Optimized TpuV6e running in Columbus", 9.0),
        sku("Reserved V6e TPU in Columbus in Calendar Mode", 1.89),
        sku("Commitment v1: TpuV6e running in Columbus for 1 Year", 1.89),
        sku("RTX 6000 96GB running in Iowa", 1.09565),
        sku("RTX 6000 96GB attached to DWS Defined Duration VMs running in Iowa", 0.54783),
        sku("G4 Instance Core running in Iowa", 0.04891),
        sku("G4 Instance Ram running in Iowa", 0.00587, unit="GiBy.h"),
        sku("DWS Defined Duration G4 Core running in Iowa", 0.024455),
        sku("DWS Defined Duration G4 Ram running in Iowa", 0.002935 / (2**30 / 10**9), unit="GBy.h"),
        sku("Nvidia Tesla T4 GPU running in Americas", 0.35),
        sku("N1 Predefined Instance Core running in Americas", 0.031611),
        sku("N1 Predefined Instance Ram running in Americas", 0.004237, unit="GiBy.h"),
        sku("Nvidia Tesla T4 Virtual Workstation GPU running in Americas", 0.2),
        sku("Nvidia L4 GPU running in Americas", 0.0),  # a placeholder, not a gift
        sku("G2 Instance Core running in Americas", 0.02),
        sku("G2 Instance Ram running in Americas", 0.003, unit="GiBy.h"),
    ]
    built = price_list_from_skus(rows, bundled_catalogue().machines, datetime.date(2026, 11, 1))
    b200 = built.price("a4-highgpu-8g", "us-central1")
    assert (b200.on_demand, b200.spot, b200.flex_start) == (128.88, pytest.approx(39.6336), None)
    assert built.price("a3-ultragpu-8g", "us-central1").on_demand == pytest.approx(72 + 224 * 0.05 + 2952 * 0.005)
    v6e = built.price("ct6e-standard-8t", "us-central1")
    assert (v6e.on_demand, v6e.spot, v6e.flex_start) == (21.6, pytest.approx(11.2264), 10.8)
    g4 = built.price("g4-standard-48", "us-central1")
    assert (g4.on_demand, g4.flex_start) == (pytest.approx(4.4999, abs=1e-4), pytest.approx(2.25, abs=1e-4))
    assert built.price("n1-standard-4", "us-central1").on_demand == pytest.approx(0.54, abs=1e-4)
    assert not [name for name in built.machines if built.machines[name].accelerator == "l4"]


def test_refresh_reads_all_pages_and_is_used_afterwards(billing, capsys):
    rows = h100_skus()
    serve({"skus": rows[:4], "nextPageToken": "1"}, {"skus": rows[4:], "nextPageToken": ""})
    assert main(["prices", "refresh", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["path"] == str(billing)
    assert result["prices"] == 8
    assert [request.get("pageToken") for request in Billing.seen] == [None, "1"]
    assert Billing.seen[0]["key"] == SECRET
    assert Billing.seen[0]["path"] == "/v1/services/6F81-5844-456A/skus"
    assert main(["prices", "show", "--region", "us-central1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["date"] == result["date"]
    assert {row["machine"] for row in shown["usd_per_hour"]} == {f"a3-highgpu-{count}g" for count in (1, 2, 4, 8)}
    assert list(billing.parent.iterdir()) == [billing]


@pytest.mark.parametrize(
    ("status", "page", "code", "expected"),
    [
        (403, b"", 3, "answered 403; check the key"),
        (500, b"", 3, "answered 500; try again later"),
        (200, b"<html>", 3, "cannot be read"),
        (200, b"[]", 3, "not a page of SKUs"),
        (200, {"skus": 5}, 3, "not a list of SKUs"),
        (200, {"skus": []}, 2, "prices no machine"),
        (200, {"skus": [], "nextPageToken": "0"}, 3, "more than 100 pages"),
    ],
)
def test_a_bad_answer_leaves_the_old_catalogue_and_never_shows_the_key(billing, capsys, status, page, code, expected):
    billing.parent.mkdir()
    billing.write_text("old")
    Billing.status = status
    serve(page)
    assert main(["prices", "refresh"]) == code
    err = capsys.readouterr().err
    assert expected in err
    assert SECRET not in err
    assert err.count("\n") == 1
    assert billing.read_text() == "old"


def test_refresh_needs_a_key_a_server_and_a_place(billing, capsys, monkeypatch, tmp_path):
    serve({"skus": h100_skus()})
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("STAYFAST_CATALOGUE", str(blocked / "prices.json"))
    assert main(["prices", "refresh"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    monkeypatch.setenv("STAYFAST_BILLING_ENDPOINT", "http://127.0.0.1:9")
    assert main(["prices", "refresh"]) == 3
    assert "cannot be read" in capsys.readouterr().err
    monkeypatch.setenv("STAYFAST_BILLING_ENDPOINT", "file:///etc/passwd")
    assert main(["prices", "refresh"]) == 2
    capsys.readouterr()
    monkeypatch.delenv("STAYFAST_BILLING_API_KEY")
    assert main(["prices", "refresh"]) == 2
    assert "STAYFAST_BILLING_API_KEY is not set" in capsys.readouterr().err


def test_a_damaged_cache_is_named(billing, capsys):
    billing.parent.mkdir()
    billing.write_bytes(b"\xff\xfe")
    assert main(["prices", "show"]) == 2
    assert str(billing) in capsys.readouterr().err
    Path(billing).write_text("{}")
    assert main(["prices", "show"]) == 2
