"""Whatever a cluster, a network or a kubeconfig does: one sentence and a command, nothing that steers a terminal."""

from __future__ import annotations

import json
import random
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.certificates import make, server_context
from cluster.scenarios import NOW, at, condition, ended, job, node, pod, request, unschedulable, workload
from servers.api_server import ApiServer, Fault
from stayfast.cli.main import main
from stayfast.clock import ManualClock, SystemClock
from stayfast.cluster.kubernetes import exec_plugin
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS, JOBS, NODES, PODS, PROVISIONING_REQUESTS, WORKLOADS
from stayfast.cluster.observed.live_snapshot import LiveSnapshot
from stayfast.cluster.observed.snapshot import take_snapshot
from stayfast.cluster.watch.alert_store import AlertState, ConfigMapAlertStorage
from stayfast.cluster.watch.alerts import Alert

Write = Callable[..., Path]
SUBMIT = """\
name: a
kind: train
image: x.dev/p/r/i:v1
command: [python, t.py]
accelerator: {type: l4, count: 1}
work: {steps: 10, seconds_per_step: 1}
state: {size: 1GB, checkpoints: "s3://b/x"}
capacity: on-demand
"""
# The plan of a submit is replayed for seconds: here only once, without a kubeconfig.
COMMANDS = (["explain", "x"], ["status"], ["logs", "x"], ["cancel", "x"], ["check-cluster"], ["watch", "--once"],
            ["lint", "--cluster"])  # fmt: skip
NAMED = [arguments[0] for arguments in COMMANDS]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pauses between tries are another test's business."""
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stayfast.yaml").write_text(SUBMIT)


def said(capsys: Any, arguments: list[str]) -> str:
    """What a command says when it cannot reach its cluster."""
    code = main(arguments)
    out, err = capsys.readouterr()
    lines = [text for text in err.splitlines() if not text.startswith("stayfast: a: on-demand")]
    assert (code, out) == (3, ""), (code, out, err)
    assert len(lines) == 1, err
    assert err.isprintable() or err.replace("\n", "").isprintable()
    assert "Traceback" not in err
    return str(lines[0])


TROUBLE: dict[str, tuple[Callable[[ApiServer], None], str, str]] = {
    "expired": (lambda server: setattr(server, "tokens", {"other"}), "does not accept these credentials", "kubectl"),
    "hangs up": (lambda server: server.faults.append(Fault("drop", times=999)), "cannot be reached", "kubectl"),
    "html": (lambda server: server.faults.append(Fault("garbage", times=999)), "no object", "kubectl config view"),
    "html error": (lambda server: server.faults.append(Fault("html", times=999)), "failed to", "readyz"),
    "5xx storm": (lambda server: server.faults.append(Fault("503", times=999)), "failed to", "readyz"),
    "busy": (lambda server: server.faults.append(Fault("429", times=999)), "too busy", "readyz"),
    "torn": (lambda server: server.faults.append(Fault("torn", times=999)), "cannot be reached", "kubectl"),
}


@pytest.mark.parametrize("trouble", sorted(TROUBLE))
@pytest.mark.parametrize("arguments", COMMANDS, ids=NAMED)
def test_servers(server: ApiServer, kubeconfig: Write, capsys: Any, arguments: list[str], trouble: str) -> None:
    kubeconfig(user="{token: mine}")
    begin, words, cure = TROUBLE[trouble]
    begin(server)
    sentence = said(capsys, arguments)
    assert words in sentence
    assert cure in sentence


def plugin(tmp_path: Path, code: str) -> str:
    path = tmp_path / "plugin"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{{exec: {{command: '{path}', apiVersion: client.authentication.k8s.io/v1}}}}"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "is not installed"),
        ("sys.stderr.write('\\x1b[2Jlog in first\\n'); sys.exit(1)", "log in first"),
        ("time.sleep(9)", "did not answer"),
        ("print('\\x1b[31mgarbage')", "printed no ExecCredential"),
        ("sys.stdout.buffer.write(bytes(range(256)) * 9)", "printed no ExecCredential"),
    ],
    ids=["missing", "failing", "hanging", "garbage", "binary"],
)
@pytest.mark.parametrize("arguments", [["status"], ["watch", "--once"]], ids=["status", "watch"])
def test_plugins(
    server: ApiServer, kubeconfig: Write, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], code: str | None, words: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(exec_plugin, "PLUGIN_SECONDS", 1.0)
    missing = "{exec: {command: none-such-plugin, apiVersion: client.authentication.k8s.io/v1}}"
    kubeconfig(user=missing if code is None else plugin(tmp_path, code))
    sentence = said(capsys, arguments)
    assert words in sentence
    assert ";" in sentence  # and what to do


@pytest.mark.parametrize(
    "text",
    ["", "a: [", "- 1", "{", "\x00", "current-context: x", "contexts: {}", "users: [[[[", "\xff\xfe", "a: &a [*a]"],
)
@pytest.mark.parametrize("arguments", COMMANDS, ids=NAMED)
def test_kubeconfigs(capsys: Any, tmp_path: Path, monkeypatch: Any, arguments: list[str], text: str) -> None:
    (tmp_path / "config").write_text(text, encoding="latin-1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    said(capsys, arguments)


@pytest.mark.parametrize("arguments", COMMANDS, ids=NAMED)
def test_no_kubeconfig_and_no_such_context(
    kubeconfig: Write, capsys: Any, tmp_path: Path, monkeypatch: Any, arguments: list[str]
) -> None:
    kubeconfig()
    assert "it has: test" in said(capsys, [*arguments, "--context", "prod\x1b[0m"])
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "get-credentials" in said(capsys, arguments)
    if arguments == ["status"]:
        assert "get-credentials" in said(capsys, ["submit", "-f", "stayfast.yaml"])


def test_another_certificate(tmp_path: Path, capsys: Any) -> None:
    _, issuer = make("test authority")
    cert, _ = make("server", issuer, host="127.0.0.1")
    other, _ = make("other")
    (tmp_path / "ca.pem").write_text(other.chain)
    with ApiServer(tls=server_context(tmp_path, cert)) as server:
        (tmp_path / "config").write_text(
            "current-context: gke_p_us-central1_c\ncontexts: [{name: gke_p_us-central1_c, context: {cluster: c}}]\n"
            f"clusters: [{{name: c, cluster: {{server: '{server.url}', certificate-authority: ca.pem}}}}]\n"
        )
        sentence = said(capsys, ["status", "--kubeconfig", str(tmp_path / "config")])
    assert "a certificate that the kubeconfig does not trust" in sentence
    assert "get-credentials c --location us-central1 --project p" in sentence


def test_forbidden_and_missing(server: ApiServer, kubeconfig: Write, capsys: Any) -> None:
    kubeconfig()
    server.allowed = set()
    for arguments in (["status"], ["logs", "x"], ["cancel", "x"]):
        assert "kubectl auth can-i" in said(capsys, arguments)


def test_a_watch_that_is_cut_in_the_middle_of_a_line(server: ApiServer, client: Client) -> None:
    server.faults.append(Fault("half_event", "watch"))
    following = LiveSnapshot(client, "default", [PODS])
    following.start()
    try:
        for _ in range(500):
            if "pods" in following.snapshot().unseen:
                break
            time.sleep(0.01)
        assert following.snapshot().unseen["pods"]
        server.add(PODS, {"metadata": {"name": "later"}})
        for _ in range(1500):
            if following.snapshot().of(PODS):
                break
            time.sleep(0.01)
        assert [item["metadata"]["name"] for item in following.snapshot().of(PODS)] == ["later"]
    finally:
        following.stop()


EVIL = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x9b1m\u202egnp\r\n\u2028\x00é…漢"


def evil_world() -> list[tuple[Any, dict[str, Any]]]:
    """Everything that anybody can write into objects, with terminal codes in it; the server does not look."""
    labels = {"stayfast.dev/run": f"run{EVIL}", EVIL: EVIL}
    marks = {EVIL: EVIL, "stayfast.dev/lease-ends-at": EVIL}
    waits = pod("waits", conditions=unschedulable(f"0/1 nodes: {EVIL}"), ago=99_999)
    gone = pod("gone", phase="Failed", containerStatuses=ended(1, reason=EVIL, message=EVIL))
    values: list[tuple[Any, dict[str, Any]]] = [
        (JOBS, job(status={"conditions": [condition(EVIL, "True", EVIL, EVIL)]})),
        (PODS, waits), (PODS, gone), (NODES, node(f"n{EVIL}")),
        (WORKLOADS, workload(condition("QuotaReserved", "False", EVIL, EVIL))),
        (PROVISIONING_REQUESTS, request(condition("Failed", "True", EVIL, EVIL))),
    ]  # fmt: skip
    for _, value in values:
        value["metadata"] |= {"labels": {**value["metadata"].get("labels", {}), **labels}, "annotations": marks}
    values[0][1]["metadata"]["name"] = f"train{EVIL}"
    return values


@pytest.mark.parametrize(
    "arguments",
    [["status", "-A"], ["explain", "waits", "-n", "ml"], ["watch", "-A", "--once"], ["check-cluster"],
     ["explain", "provisioningrequest/job-train-a1-prov-1", "-n", "ml"], ["logs", "train", "-n", "ml"],
     ["cancel", "train", "-n", "ml"]],
    ids=lambda arguments: " ".join(arguments[:2]),
)  # fmt: skip
def test_nothing_in_a_cluster_steers_a_terminal(
    server: ApiServer, kubeconfig: Write, capsys: Any, arguments: list[str]
) -> None:
    kubeconfig()
    for resource, value in evil_world():
        server.add(resource, value, "ml")
    main(arguments)
    out, err = capsys.readouterr()
    text = (out + err).replace("\n", "")
    assert text.isprintable(), repr([character for character in text if not character.isprintable()])
    main([*arguments, "--json"])
    out, err = capsys.readouterr()
    assert err.replace("\n", "").isprintable()
    if out:
        assert "\x1b" not in out  # JSON escapes it
        json.loads(out.splitlines()[0])


def test_thousands_of_pods_with_holes(server: ApiServer, kubeconfig: Write, capsys: Any) -> None:
    kubeconfig()
    dice = random.Random(7)
    for number in range(1500):
        value = pod(f"p{number}", owner=f"job-{number % 7}", phase=dice.choice(["Pending", "Running", "Failed", "é"]))
        for _ in range(3):
            part = value[dice.choice(["metadata", "spec", "status"])]
            if isinstance(part, dict) and part:
                part.pop(dice.choice(sorted(part)), None)
        if dice.random() < 0.2:
            value[dice.choice(["spec", "status"])] = dice.choice([None, {}, [], 3])
        value["metadata"] = {**value["metadata"], "name": f"p{number}", "labels": {"stayfast.dev/run": "r"}}
        server.add(PODS, value, "ml")
    for number in range(7):
        server.add(JOBS, job(f"j{number}", uid=f"job-{number}"), "ml")
    assert main(["status", "-A", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 7
    assert main(["watch", "-A", "--once", "--act", "copy-lease,split-parallelism", "--dry-run"]) in (0, 1)


class TestTwoWatches:
    """One ConfigMap, two processes: what one has told the other does not."""

    LATE = Alert("pending", "ml", "train", "late", subject="u")
    OTHER = Alert("pending", "ml", "other", "late", subject="v")

    def test_each_alert_is_told_once(self, server: ApiServer, client: Client) -> None:
        server.add(CONFIG_MAPS, {"metadata": {"name": "w"}})
        one, two = (AlertState(ConfigMapAlertStorage(client, "default", "w")) for _ in range(2))
        assert one.compare([self.LATE], NOW).begun == [self.LATE]
        assert two.compare([self.LATE], NOW).begun == []
        assert two.compare([self.LATE, self.OTHER], NOW + 1).begun == [self.OTHER]
        assert one.compare([self.LATE, self.OTHER], NOW + 2).begun == []
        kept = json.loads(server.objects.table(CONFIG_MAPS)["default", "w"]["data"]["alerts.json"])
        assert set(kept) == {self.LATE.key, self.OTHER.key}

    def test_a_map_that_is_always_changed_does_not_stop_it(self, server: ApiServer, client: Client) -> None:
        server.add(CONFIG_MAPS, {"metadata": {"name": "w"}})
        state = AlertState(ConfigMapAlertStorage(client, "default", "w"))
        server.faults.append(Fault("409", "patch", times=99))
        assert state.compare([self.LATE], NOW).begun == [self.LATE]

    def test_one_that_went_away_is_no_end(self, server: ApiServer, client: Client) -> None:
        server.add(CONFIG_MAPS, {"metadata": {"name": "w"}})
        state = AlertState(ConfigMapAlertStorage(client, "default", "w"))
        server.objects.delete(CONFIG_MAPS, "default", "w", None)
        assert state.compare([self.LATE], NOW).begun == [self.LATE]


class TestClocks:
    """Ages are told by the server's clock, which wrote the times."""

    @pytest.mark.parametrize("ahead", [0.0, 3.0, 3600.0, -3600.0, 86_400.0])
    def test_a_look_uses_the_servers_time(self, server: ApiServer, client: Client, ahead: float) -> None:
        server.ahead_seconds = ahead
        clock = SystemClock()
        found = take_snapshot(client, "default", [PODS], now=clock.wall())
        expected = ahead if abs(ahead) > 30 else 0.0
        assert found.now - clock.wall() == pytest.approx(expected, abs=20)

    def test_a_watch_says_so_once(
        self, server: ApiServer, kubeconfig: Write, capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kubeconfig()
        server.ahead_seconds = 7190.0
        main(["watch", "--once"])
        err = capsys.readouterr().err
        assert "this machine's clock is 120 min behind the API server's" in err

    @pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Foo 9999 99:99:99 GMT", "\x1b[0m", "Thu, 01 Jan 1970"])
    def test_dates_that_are_none(self, client: Client, date: str) -> None:
        client._clock = ManualClock(wall=NOW)
        client._track_clock_skew(date)
        assert client.skew_seconds == 0.0 or date.startswith("Thu")

    def test_a_lease_by_a_skewed_watcher(self, server: ApiServer, client: Client) -> None:
        from stayfast.cluster.watch.alerts import find_alerts
        from stayfast.cluster.watch.manifests import WATCHED

        clock = SystemClock()
        server.ahead_seconds = -86_400.0  # our own clock is a day ahead: every lease would seem to be over
        ends = {"node.gke.io/machine-termination-datetime": at(NOW - (clock.wall() - 86_400 + 1800))}
        server.add(NODES, node("n1", metadata={"annotations": ends}))
        server.add(JOBS, job(), "ml")
        server.add(PODS, pod(phase="Running", node="n1"), "ml")
        found = find_alerts(take_snapshot(client, None, WATCHED, now=clock.wall()))
        assert [alert.code for alert in found] == ["lease-ending"]
