"""``stayfast watch``: told once, also over restarts; acting only when asked; with exactly the rights it is given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cluster.scenarios import (
    NOW,
    TEMPLATE,
    at,
    classes_map,
    condition,
    job,
    node,
    numbered,
    pod,
    queued_job,
    request,
    stopped,
    workers,
    workload,
)
from faults.cluster_rights import USED, granted
from faults.counts import record
from faults.tiers import GOALS, conclude
from servers.api_server import ApiServer
from stayfast.cli.main import main
from stayfast.clock import ManualClock, SystemClock
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import (
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from stayfast.cluster.observed.live_snapshot import LiveSnapshot
from stayfast.cluster.observed.snapshot import take_snapshot
from stayfast.cluster.watch.actions.action import ACTIONS
from stayfast.cluster.watch.alert_store import QUIET_SECONDS, AlertState, ConfigMapAlertStorage, FileAlertStorage
from stayfast.cluster.watch.alerts import Alert
from stayfast.cluster.watch.manifests import WATCHED, manifests, rights
from stayfast.cluster.watch.watcher import Watcher, WatchOptions
from stayfast.cluster.watch.webhook import Webhook
from stayfast.errors import SettingError, UsageError
from stayfast.model.labels import CLASS_NUMBER, REQUEUED_LEASE, RUN_LABEL

SOURCE = Path(__file__).resolve().parents[2] / "src"
LEASE = "stayfast.dev/lease-ends-at"
LATE = Alert("pending", "ml", "train", "has waited too long", "evidence", "uid-1")


class Receiver(ThreadingHTTPServer):
    """A webhook that answers as a test says."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.bodies = list(answers), []  # type: ignore[var-annotated]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(outer.answers.pop(0) if outer.answers else 200)
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Retry-After", "3")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/services/T0/secret"


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    opened: list[Receiver] = []

    def make(*answers: int) -> Receiver:
        opened.append(Receiver(*answers))
        return opened[-1]

    yield make
    for item in opened:
        item.shutdown()
        item.server_close()


class TestState:
    def test_told_once_and_again_only_after_it_was_over(self) -> None:
        state = AlertState()
        assert state.compare([LATE], NOW).begun == [LATE]
        assert state.compare([LATE._replace(sentence="has waited longer")], NOW + 10) == ([], [])
        assert state.compare([], NOW + 20) == ([], [])  # it may only flutter
        assert state.compare([LATE], NOW + 30) == ([], [])
        assert state.compare([], NOW + 31 + QUIET_SECONDS) == ([], [LATE.key])
        assert state.compare([LATE], NOW + 40 + QUIET_SECONDS).begun == [LATE]

    def test_a_restart_tells_nothing_twice(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state.json")
        assert AlertState(FileAlertStorage(path)).compare([LATE], NOW).begun == [LATE]
        assert AlertState(FileAlertStorage(path)).compare([LATE], NOW + 10).begun == []

    def test_a_long_alert_stays_known_over_a_restart(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state.json")
        state = AlertState(FileAlertStorage(path))
        for minute in range(60):
            state.compare([LATE], NOW + 60 * minute)
        again = AlertState(FileAlertStorage(path))
        assert again.compare([], NOW + 3700) == ([], [])  # seen a few minutes ago: one look without it is not its end
        assert again.compare([LATE], NOW + 3710) == ([], [])

    def test_in_a_config_map(self, server: ApiServer, client: Client) -> None:
        with pytest.raises(UsageError, match="kubectl create configmap w -n default"):
            AlertState(ConfigMapAlertStorage(client, "default", "w"))
        server.add(CONFIG_MAPS, {"metadata": {"name": "w"}})
        AlertState(ConfigMapAlertStorage(client, "default", "w")).compare([LATE], NOW)
        assert AlertState(ConfigMapAlertStorage(client, "default", "w")).compare([LATE], NOW).begun == []

    @pytest.mark.parametrize("text", ["[", "[1]", '{"a": "x"}', "[" * 100_000, "3"])
    def test_damage_is_one_sentence(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "state.json"
        path.write_text(text)
        with pytest.raises(UsageError, match="damaged"):
            AlertState(FileAlertStorage(str(path)))

    def test_a_place_that_cannot_be_written_does_not_stop_the_watch(self, tmp_path: Path) -> None:
        state = AlertState(FileAlertStorage(str(tmp_path / "none" / "state.json")))
        assert state.compare([LATE], NOW).begun == [LATE]


class TestWebhook:
    def test_slack_takes_it(self, receiver: Callable[..., Receiver]) -> None:
        hook = receiver()
        assert Webhook(hook.url).send(LATE) is None
        [body] = hook.bodies
        assert body["text"] == "[pending] ml/train: has waited too long (evidence)"
        assert body["code"] == "pending"

    def test_it_is_tried_again_as_the_server_asks(self, receiver: Callable[..., Receiver]) -> None:
        hook, clock = receiver(500, 429), ManualClock()
        started = clock.monotonic()
        assert Webhook(hook.url, clock=clock).send(LATE) is None
        assert len(hook.bodies) == 3
        assert clock.monotonic() - started == 6

    def test_a_refusal_is_final_and_a_redirect_is_not_followed(self, receiver: Callable[..., Receiver]) -> None:
        hook = receiver(404, 302)
        assert Webhook(hook.url).send(LATE) == "HTTP 404"
        assert Webhook(hook.url).send(LATE) == "HTTP 302"
        assert len(hook.bodies) == 2

    def test_nobody_there(self) -> None:
        assert Webhook("http://127.0.0.1:9/secret", clock=ManualClock()).send(LATE) == "ConnectionRefusedError"

    @pytest.mark.parametrize(
        "url", ["", "http://hooks.example.org/x", "ftp://x", "https:///x", "http://[::1", "file:///etc"]
    )
    def test_addresses_that_are_not_used_nor_shown(self, url: str) -> None:
        with pytest.raises(SettingError, match="STAYFAST_WEBHOOK_URL") as caught:
            Webhook(url)
        assert not url or url not in str(caught.value)


def fill(server: ApiServer) -> None:
    """A run that waits too long, one whose machine ends soon, and a request that is stuck."""
    server.add(JOBS, job(), "ml")
    server.add(PODS, pod(ago=9999), "ml")
    server.add(JOBS, job("flex", uid="job-2"), "ml")
    server.add(PODS, pod("flex-x", owner="job-2", run="flex", phase="Running", node="n1"), "ml")
    server.add(NODES, node("n1", metadata={"annotations": {"node.gke.io/machine-termination-datetime": at(-1800)}}))
    server.add(
        JOBS,
        {**queued_job(uid="job-3", ago=60), "metadata": {**queued_job(uid="job-3", ago=60)["metadata"], "name": "q"}},
        "ml",
    )
    server.add(WORKLOADS, workload(condition("QuotaReserved"), owner="job-3"), "ml")
    server.add(PROVISIONING_REQUESTS, request(condition("Accepted", ago=90_000), ago=90_000), "ml")


def watchman(client: Client, **duties: Any) -> Watcher:
    return Watcher(client, AlertState(), WatchOptions(**duties), clock=ManualClock(wall=NOW))


@pytest.fixture
def observed(server: ApiServer, client: Client) -> Callable[[], Any]:
    fill(server)
    return lambda: take_snapshot(client, None, WATCHED, now=NOW, labels=RUN_LABEL)


class TestLook:
    def test_alerts_metrics_and_no_action_unless_asked(
        self, server: ApiServer, client: Client, observed: Callable[[], Any]
    ) -> None:
        man = watchman(client)
        found, page = man.look(observed())
        assert [alert.code for alert in found.news.begun] == ["lease-ending", "pending", "provisioning-stuck"]
        assert found.deeds == []
        assert {verb for verb, _ in server.used} == {"list"}
        assert 'stayfast_runs{namespace="ml",phase="pending"} 1' in page
        assert 'stayfast_alerts{namespace="ml",code="pending"} 1' in page
        assert 'stayfast_oldest_pending_seconds{namespace="ml"} 9999' in page
        assert "stayfast_watch_looks_total 1" in page
        again, _ = man.look(observed())
        assert again.news.begun == []

    def test_the_lease_is_written_into_the_pod_once(
        self, server: ApiServer, client: Client, observed: Callable[[], Any]
    ) -> None:
        man = watchman(client, actions={"copy-lease"}, dry_run=True)
        [(deed, result)] = man.look(observed())[0].deeds
        assert (deed.action, result) == ("copy-lease", "would be done")
        assert LEASE not in (server.objects.table(PODS)["ml", "flex-x"]["metadata"].get("annotations") or {})
        man = watchman(client, actions={"copy-lease"})
        [(deed, result)] = man.look(observed())[0].deeds
        assert result == "done"
        assert server.objects.table(PODS)["ml", "flex-x"]["metadata"]["annotations"][LEASE] == at(-1800)
        assert man.look(observed())[0].deeds == []

    def test_a_stuck_request_is_deleted_by_uid(
        self, server: ApiServer, client: Client, observed: Callable[[], Any]
    ) -> None:
        [(deed, result)] = watchman(client, actions={"recreate-request"}).look(observed())[0].deeds
        assert (deed.name, result) == ("job-train-a1-prov-1", "done")
        assert server.objects.table(PROVISIONING_REQUESTS) == {}

    def test_an_action_that_fails_is_said_and_tried_again(
        self, server: ApiServer, client: Client, observed: Callable[[], Any]
    ) -> None:
        man, before = watchman(client, actions={"recreate-request"}), observed()
        server.allowed = set()
        assert man.look(before)[0].deeds[0][1].startswith("failed: not allowed to delete provisioningrequests")
        server.allowed = None
        assert man.look(before)[0].deeds[0][1] == "done"

    def test_events_are_written_on_the_job(
        self, server: ApiServer, client: Client, observed: Callable[[], Any]
    ) -> None:
        assert watchman(client, events=True).look(observed())[0].troubles == []
        events = list(server.objects.table(EVENTS).values())
        assert {event["reason"] for event in events} == {"LeaseEnding", "Pending", "ProvisioningStuck"}
        pending = next(event for event in events if event["reason"] == "Pending")
        assert pending["involvedObject"]["uid"] == "job-1"

    def test_a_webhook_that_is_down_is_tried_at_the_next_look(
        self, client: Client, observed: Callable[[], Any], receiver: Callable[..., Receiver]
    ) -> None:
        hook = receiver(*[404] * 3)
        man = watchman(client, webhook=Webhook(hook.url))
        found, _ = man.look(observed())
        assert len(found.troubles) == 3
        assert "secret" not in " ".join(found.troubles)
        assert len(man.look(observed())[0].news.begun) == 3
        assert man.look(observed())[0].news.begun == []
        assert len(hook.bodies) == 6


ALL = set(ACTIONS.names())
GRANTED = {
    (verb, f"{plural}.{group}" if group else plural)
    for (group, plural), verbs in granted(ALL, events=True).items()
    for verb in verbs
}
"""From the manifests themselves, word for word."""


def give_something_to_do(server: ApiServer) -> None:
    """A reason for every action."""
    for name, kind in (("move", "Job"), ("gang", "JobSet")):
        again = numbered(1, kind, name)
        server.add(CONFIG_MAPS, classes_map(again, run=name), "ml")
    server.add(JOBS, job("move", uid="job-4"), "ml")
    server.add(PODS, pod("move-x", owner="job-4", run="move", ago=9999), "ml")
    gang = queued_job(uid="js-1", ago=99_999)
    gang["metadata"] |= {"name": "gang", "labels": {**gang["metadata"]["labels"], RUN_LABEL: "gang"}}
    server.add(JOB_SETS, gang, "ml")
    server.add(WORKLOADS, workload(condition("QuotaReserved"), owner="js-1", name="w-gang"), "ml")
    asked = request(condition("Accepted", ago=50_000), ago=50_000, owner="wl-w-gang")
    asked["metadata"] |= {"name": "w-gang-1", "uid": "pr-2"}
    server.add(PROVISIONING_REQUESTS, asked, "ml")
    many = workers(uid="job-5")
    many[0]["metadata"] |= {"name": "wide", "labels": {RUN_LABEL: "wide"}}
    for item in many[1:]:
        item["metadata"] |= {"ownerReferences": [{"kind": "Job", "uid": "job-5"}], "labels": {RUN_LABEL: "wide"}}
        server.add(PODS, item, "ml")
    server.add(JOBS, many[0], "ml")
    out = stopped("DeactivatedDueToRequeuingLimitExceeded")
    out["metadata"] |= {"name": "w-out", "uid": "wl-out", "ownerReferences": [{"kind": "JobSet", "uid": "js-2"}]}
    server.add(WORKLOADS, out, "ml")
    back = stopped("Deactivated", **{REQUEUED_LEASE.replace("/", "_"): at(60)})
    back["metadata"] |= {"name": "w-back", "uid": "wl-back", "ownerReferences": [{"kind": "JobSet", "uid": "js-2"}]}
    back["metadata"]["creationTimestamp"] = at(1)  # the newest of its JobSet is its own
    server.add(WORKLOADS, back, "ml")
    again = queued_job(uid="js-2")
    again["metadata"] |= {"name": "again", "labels": {**again["metadata"]["labels"], RUN_LABEL: "again"}}
    again["spec"] = {
        "suspend": True,
        "replicatedJobs": [{"name": "node", "template": {"spec": {"template": TEMPLATE}}}],
    }
    server.add(JOB_SETS, again, "ml")


def is_moved(server: ApiServer, name: str) -> bool:
    found = {**server.objects.table(JOBS), **server.objects.table(JOB_SETS)}.get(("ml", name))
    return found is not None and CLASS_NUMBER in found["metadata"].get("annotations", {})


class TestRights:
    """Granted equals used; whatever is taken away is missed."""

    def round(self, server: ApiServer, client: Client) -> list[str]:
        """All that the Deployment does; returns what went wrong."""
        fill(server)
        give_something_to_do(server)
        server.add(CONFIG_MAPS, {"metadata": {"name": "stayfast-watch"}}, "ops")
        following = LiveSnapshot(client, None, WATCHED, labels=RUN_LABEL)
        following.start()
        problems = []
        try:
            state = AlertState(ConfigMapAlertStorage(client, "ops", "stayfast-watch"))
            man = Watcher(client, state, WatchOptions(actions=ALL, events=True), clock=ManualClock(wall=NOW))
            snapshot = following.snapshot()
            snapshot.now = NOW
            found, _ = man.look(snapshot)
            self.wait_for_watches(server, following)
            problems += [*following.snapshot().unseen.values(), *found.troubles]
            problems += [result for _, result in found.deeds if result != "done"]
            # What was deleted in the first look is made anew in the second.
            found, _ = man.look(take_snapshot(client, None, WATCHED, now=NOW, labels=RUN_LABEL))
            problems += [result for _, result in found.deeds if result != "done"]
            problems += [f"{name} was not made anew" for name in ("move", "gang") if not is_moved(server, name)]
            kept = server.objects.table(CONFIG_MAPS)["ops", "stayfast-watch"].get("data")
            problems += [] if kept else ["the state was not kept"]
        except Exception as error:
            problems.append(str(error))
        finally:
            following.stop()
        return problems

    @staticmethod
    def wait_for_watches(server: ApiServer, following: LiveSnapshot) -> None:
        for _ in range(200):
            watched = {title for verb, title in server.used if verb == "watch"}
            if len(watched) == len(WATCHED) or following.snapshot().unseen:
                return
            SystemClock().sleep(0.02)

    def test_granted_is_used(self, server: ApiServer, client: Client) -> None:
        server.allowed = GRANTED
        assert self.round(server, client) == []
        assert server.used == GRANTED

    @pytest.mark.parametrize("right", sorted(GRANTED), ids=" ".join)
    def test_every_right_is_needed(self, server: ApiServer, client: Client, right: tuple[str, str]) -> None:
        server.allowed = GRANTED - {right}
        assert self.round(server, client) != []
        record("O", injected=1)

    @pytest.mark.faults
    def test_every_right_was_taken_away_once(self, request: pytest.FixtureRequest) -> None:
        if len(request.session.items) < len(GRANTED):
            pytest.skip("only some of this class's tests were run")
        assert GOALS["O"]["pr"] == len(GRANTED) == sum(map(len, USED.values()))
        conclude("O")

    def test_no_wildcards_no_secrets_and_less_when_less_is_asked(self) -> None:
        for group, plural in rights(ALL, events=True):
            assert "*" not in group + plural
            assert plural != "secrets"
        assert rights(set(), events=False).keys() == {(kind.group, kind.plural) for kind in WATCHED}
        assert all(verbs == {"list", "watch"} for verbs in rights(set(), events=False).values())

    def test_the_manifests_pass_strict_validation_and_are_restricted(self, server: ApiServer, client: Client) -> None:
        from stayfast.cluster.submission.preflight import dry_run_objects, resolve_resources

        server.add(CONFIG_MAPS, {"metadata": {"name": "x"}}, "ops")
        objects = manifests("ops", "image:v1", ALL, events=True, webhook_secret="hook")
        placed, problems = resolve_resources(client, objects, "ops")
        assert problems + dry_run_objects(client, placed, force=False, absent=set()) == []
        pod_spec = objects[-1]["spec"]["template"]["spec"]
        assert pod_spec["securityContext"]["runAsNonRoot"] is True
        assert pod_spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "hook" in json.dumps(pod_spec["containers"][0]["env"])


class TestCommand:
    @pytest.fixture(autouse=True)
    def _now(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SystemClock, "wall", lambda self: NOW)

    def test_one_look(self, server: ApiServer, kubeconfig: Callable[..., Path], capsys: Any, tmp_path: Path) -> None:
        kubeconfig()
        fill(server)
        state = str(tmp_path / "state.json")
        assert main(["watch", "-A", "--once", "--state", state]) == 1
        out, err = capsys.readouterr()
        assert "ALERT [pending] ml/train" in err
        assert out.splitlines()[0].split()[:3] == ["NAMESPACE", "RUN", "PHASE"]
        assert main(["watch", "-A", "--once", "--state", state, "--json"]) == 1
        out, err = capsys.readouterr()
        assert err == ""
        found = json.loads(out)
        assert (len(found["alerts"]), found["new"]) == (3, [])
        assert main(["watch", "-n", "default", "--once"]) == 0

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--act", "explode"], "there is no action 'explode'"),
            (["--manifests"], "needs an image"),
            (["--state", "a", "--state-configmap", "b"], "one place"),
        ],
    )
    def test_mistakes(self, kubeconfig: Callable[..., Path], capsys: Any, arguments: list[str], words: str) -> None:
        kubeconfig()
        assert main(["watch", *arguments]) == 2
        assert words in capsys.readouterr().err

    def test_manifests_are_yaml_that_reads_back(self, capsys: Any) -> None:
        from stayfast.documents import load_documents

        assert main(["watch", "--manifests", "--image", "i:v1", "-n", "ops", "--act", "copy-lease"]) == 0
        found = [document.value for document in load_documents(capsys.readouterr().out, "out")]
        assert [item["kind"] for item in found][-1] == "Deployment"
        assert found == manifests("ops", "i:v1", {"copy-lease"}, events=False)


def test_a_real_process_follows_serves_metrics_and_leaves_on_ctrl_c(
    server: ApiServer, kubeconfig: Callable[..., Path], receiver: Callable[..., Receiver]
) -> None:
    config, hook = kubeconfig(), receiver()
    command = [sys.executable, "-m", "stayfast", "watch", "-A", "--interval-seconds", "0.2", "--metrics-port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "KUBECONFIG": str(config), "STAYFAST_WEBHOOK_URL": hook.url}
    process = subprocess.Popen(
        [*command, "--pending-seconds", "1"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stdout is not None
        address = process.stderr.readline().split("metrics on ")[1].strip()
        assert address.startswith("http://127.0.0.1:")
        fill(server)
        lines = [process.stdout.readline() for _ in range(3)]
        assert any("ml/train: pending" in line for line in lines)
        for _ in range(300):
            page = urllib.request.urlopen(address, timeout=10).read().decode()
            if hook.bodies and "stayfast_alerts{" in page:
                break
            SystemClock().sleep(0.05)
        assert "# TYPE stayfast_runs gauge" in page
        assert any("pending" in body["text"] for body in hook.bodies)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address.replace("/metrics", "/etc/passwd"), timeout=10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "Traceback" not in err
        assert hook.url not in out + err
    finally:
        process.kill()
        process.communicate()
