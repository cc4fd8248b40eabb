"""Manifests and settings of the linter, kubeconfigs, and the options of everything that talks to a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from inputs.bad_inputs import Case
from inputs.cases.spec import GOOD

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: x}
spec: {containers: [{name: c, image: x}]}
"""
CONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: u, user: {token: abc}}]
"""


def finding(name: str, data: str | bytes, says: str, file: str = "k8s/a.yaml", **more: object) -> Case:
    """Broken YAML is a finding, not an error."""
    return Case(f"lint-{name}", ("lint", "--format", "json", "k8s"), says, 1, {file: data}, on_stdout=True, **more)  # type: ignore[arg-type]


def option(name: str, given: tuple[str, ...], says: str, **more: object) -> Case:
    """A manifest that is fine, and an option that is not."""
    files = {"a.yaml": POD, **more.pop("files", {})}  # type: ignore[dict-item]
    return Case(f"lint-{name}", ("lint", *given), says, files=files, **more)  # type: ignore[arg-type]


def settings(name: str, text: str | bytes, says: str) -> Case:
    """A configuration of the linter."""
    return option(f"config-{name}", ("--config", "c.yaml", "a.yaml"), says, files={"c.yaml": text})


def _fifo_folder(world: Path) -> None:
    os.mkfifo(world / "k8s" / "pipe.yaml")


def _closed(world: Path) -> None:
    (world / "a.yaml").chmod(0)


def _closed_folder(world: Path) -> None:
    (world / "shut").mkdir(mode=0o500)


MANIFESTS = [
    finding("empty-mapping", "{", "not YAML"),
    finding("tab", "a:\n\t- b\n", "not YAML"),
    finding("deep", "- " * 60_000, "nested more than 100 levels deep"),
    finding("binary", bytes(range(256)), "not UTF-8 text"),
    finding("utf-16", POD.encode("utf-16"), "not UTF-8 text"),
    finding("nul", "a: \0\n", "control characters"),
    finding("duplicate-key", POD + "kind: Job\n", "duplicate key"),
    finding("alias-loop", "a: &a [*a]\n", "refers to the collection"),
    finding("huge", "a: b\n" * 700_000, "larger than 3,000,000 characters"),
    finding("directives", "%TAG ! x:\n" * 200 + "---\na: b\n", "begin with %"),
    finding("many-documents", "---\na: b\n" * 10_001, "documents in one file"),
    finding("fifo-is-passed-over", "{", "not YAML", make=_fifo_folder),
    finding("newline-in-name", "{", "not YAML", file="k8s/a\nb.yaml"),
    finding("not-utf8-name", "{", "not YAML", file="k8s/" + os.fsdecode(b"\xff.yaml")),
    finding("merge-nonsense", "a:\n  <<: 7\n", "merges a mapping"),
]

LINT = [
    option("nothing", (), "nothing to lint"),
    option("missing", ("no.yaml",), "there is no file or folder no.yaml"),
    option("missing-escape", ("\x1b[2J.yaml",), "there is no file or folder"),
    option("missing-long", ("x" * 5000,), "there is no file or folder"),
    option("format", ("--format", "xml", "a.yaml"), "invalid choice: 'xml'"),
    option("select-unknown", ("--select", "SF999", "a.yaml"), "SF999"),
    option("select-nonsense", ("--select", "../x", "a.yaml"), "../x"),
    option("ignore-unknown", ("--ignore", "E501", "a.yaml"), "E501"),
    option("explain-unknown", ("--explain", "SF999"), "SF999"),
    option("explain-path", ("--explain", "../../etc/passwd"), "etc/passwd"),
    option("explain-newline", ("--explain", "SF101\n"), "SF101"),
    option("kubernetes-version", ("--kubernetes", "9.99", "a.yaml"), "no schemas for Kubernetes 9.99"),
    option("kubernetes-path", ("--kubernetes", "../x", "a.yaml"), "no schemas for Kubernetes ../x"),
    option("config-missing", ("--config", "no.yaml", "a.yaml"), "cannot read the configuration no.yaml"),
    option("baseline-missing", ("--baseline", "no.json", "a.yaml"), "cannot read the baseline no.json"),
    option("baseline-garbage", ("--baseline", "b.json", "a.yaml"), "b.json", files={"b.json": "["}),
    option("baseline-list", ("--baseline", "b.json", "a.yaml"), "b.json", files={"b.json": "[7]"}),
    option("baseline-deep", ("--baseline", "b.json", "a.yaml"), "b.json", files={"b.json": "[" * 99_999}),
    option("baseline-folder", ("--write-baseline", ".", "a.yaml"), "."),
    option("baseline-nowhere", ("--write-baseline", "no/b.json", "a.yaml"), "no/b.json cannot be written"),
    option("cluster-and-fix", ("--cluster", "--fix", "a.yaml"), "--cluster only looks"),
    option("fix-stdin", ("--fix", "--unsafe-fixes", "-"), "standard input cannot be fixed in place",
           stdin=b"apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {template: {spec: {restartPolicy: Always, "
                 b"containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}], "
                 b"nodeSelector: {cloud.google.com/gke-spot: 'true'}}}}\n"),
    option("denied", ("a.yaml",), "cannot read a.yaml: Permission denied", make=_closed, unprivileged=True),
    settings("not-yaml", "{", "c.yaml:1"),
    settings("list", "[]", "c.yaml"),
    settings("unknown-field", "selct: [SF1]\n", "selct"),
    settings("wrong-type", "select: 7\n", "select"),
    settings("unknown-rule", "ignore: [SF999]\n", "SF999"),
    settings("binary", bytes(range(256)), "it is not UTF-8 text"),
    settings("deep", "- " * 60_000, "nested more than 100 levels deep"),
]  # fmt: skip


def kube(name: str, text: str | bytes, says: str, *argv: str, code: int = 3, **more: object) -> Case:
    """A kubeconfig, met by ``status``."""
    command = argv or ("status",)
    return Case(f"kube-{name}", (*command, "--kubeconfig", "k.yaml"), says, code, {"k.yaml": text}, **more)  # type: ignore[arg-type]


def changed(old: str, new: str) -> str:
    """The good configuration with one thing in it changed."""
    assert old in CONFIG, old
    return CONFIG.replace(old, new)


KUBECONFIGS = [
    Case("kube-none", ("status",), "there is no kubeconfig here and this is no pod", 3),
    Case("kube-missing", ("status", "--kubeconfig", "no"), "there is no kubeconfig no", 3),
    Case("kube-folder", ("status", "--kubeconfig", "."), "there is no kubeconfig .", 3),
    Case("kube-variable", ("status",), "k.yaml", 3, {"k.yaml": "{"}, {"KUBECONFIG": "{world}/k.yaml"}),
    kube("not-yaml", "{", "k.yaml:1"),
    kube("list", "[]", "k.yaml"),
    kube("empty", "", "the kubeconfig chooses no context"),
    kube("binary", bytes(range(256)), "k.yaml"),
    kube("deep", "- " * 60_000, "k.yaml"),
    kube("no-context", changed("current-context: here\n", ""), "context"),
    kube("context-unknown", changed("current-context: here", "current-context: there"), "there"),
    kube("context-list", changed("context: {cluster: c, user: u}", "context: [c]"), "context"),
    kube("cluster-unknown", changed("{cluster: c, user", "{cluster: d, user"), "'d'"),
    kube("user-unknown", changed("user: u}}", "user: v}}"), "'v'"),
    kube("no-server", changed('{server: "https://127.0.0.1:9"}', "{}"), "server"),
    kube("server-ftp", changed("https://127.0.0.1:9", "ftp://x"), "ftp://x"),
    kube("server-bracket", changed("https://127.0.0.1:9", "https://["), "https://["),
    kube("server-port", changed("127.0.0.1:9", "127.0.0.1:99999"), "99999"),
    kube("server-number", changed('"https://127.0.0.1:9"', "7"), "7"),
    kube("token-newline", changed("token: abc", 'token: "a\\nb"'), "token"),
    kube("token-file-missing", changed("token: abc", "tokenFile: no"), "no"),
    kube("ca-garbage", changed('127.0.0.1:9"', '127.0.0.1:9", certificate-authority-data: "!!!"'), "certificate-auth"),
    kube("ca-missing", changed('127.0.0.1:9"', '127.0.0.1:9", certificate-authority: no.pem'), "no.pem"),
    kube("cert-garbage", changed("token: abc", "client-certificate-data: eA==, client-key-data: eA=="), "client"),
    kube("exec-missing", changed("token: abc", "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such, interactiveMode: Never}"), "no-such"),
    kube("exec-list", changed("token: abc", "exec: [7]"), "exec"),
    kube("exec-version", changed("token: abc", "exec: {apiVersion: v9, command: 'true'}"), "v9"),
    kube("auth-provider", changed("token: abc", "auth-provider: {name: gcp}"), "auth-provider"),
    kube("refused", CONFIG, "127.0.0.1:9"),
    kube("run-name", CONFIG, "is no name of a run", "logs", "../x", code=2),
    kube("cancel-name", CONFIG, "is no name of a run", "cancel", "a b", code=2),
    kube("tail-text", CONFIG, "'many' is not a whole number", "logs", "x", "--tail", "many", code=2),
    kube("watch-interval", CONFIG, "--interval-seconds", "watch", "--interval-seconds", "0", code=2),
    kube("watch-act", CONFIG, "there is no action 'explode'", "watch", "--act", "explode", code=2),
    kube("watch-port", CONFIG, "'99999' is not a port", "watch", "--metrics-port", "99999", code=2),
    kube("watch-both-states", CONFIG, "--state", "watch", "--state", "a", "--state-configmap", "b", code=2),
    kube("watch-manifests-no-image", CONFIG, "--image", "watch", "--manifests", code=2),
    kube("watch-webhook", CONFIG, "STAYFAST_WEBHOOK_URL", "watch", "--once", code=2, env={"STAYFAST_WEBHOOK_URL": "http://["}),
    kube("watch-state-garbage", CONFIG, "s.json", "watch", "--once", "--state", "s.json", code=2, make=lambda world: (world / "s.json").write_text("[")),
    Case("cluster-describe-missing", ("check-cluster", "--offline", "--describe", "no"), "no", 2),
    Case("cluster-describe-garbage", ("check-cluster", "--offline", "--describe", "d"), "d", 2, {"d": "["}),
    Case("cluster-describe-list", ("check-cluster", "--offline", "--describe", "d"), "d", 2, {"d": "[1]"}),
    Case("cluster-describe-deep", ("check-cluster", "--offline", "--describe", "d"), "d", 2, {"d": "[" * 99_999}),
    Case("cluster-describe-binary", ("check-cluster", "--offline", "--describe", "d"), "d", 2, {"d": bytes(range(256))}),
    Case("cluster-offline-alone", ("check-cluster", "--offline"), "--describe", 2),
    Case("cluster-require", ("check-cluster", "--offline", "--describe", "d", "--require", "magic"), "magic", 2, {"d": "{}"}),
    Case("submit-no-file", ("submit",), "no workload is named", 2),
    Case("submit-timeout", ("submit", "-f", "h.yaml", "--timeout-seconds", "nan"), "'nan' is not a number above 0", 2),
    Case("submit-dry-run", ("submit", "-f", "h.yaml", "--dry-run=perhaps"), "invalid choice: 'perhaps'", 2),
    Case("dashboard-port", ("dashboard", "--port", "99999"), "port", 2),
    Case("dashboard-bind", ("dashboard", ".", "--bind", "not an address", "--port", "0"), "not an address", 2),
    Case("dashboard-url", ("dashboard", "ftp://x", "--port", "0"), "ftp://x", 2),
    Case("dashboard-price", ("dashboard", "--usd-per-hour", "nan"), "'nan' is not a number from 0", 2),
    Case("render-check-alone", ("render", "-f", "h.yaml", "--check"), "--check compares with a directory", 2, {"h.yaml": GOOD}),
    Case("render-form", ("render", "-f", "h.yaml", "--form", "cronjob"), "invalid choice: 'cronjob'", 2),
]  # fmt: skip

CASES = MANIFESTS + LINT + KUBECONFIGS
