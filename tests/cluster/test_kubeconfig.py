"""Kubeconfigs as people have them: several files, plugins, certificates, proxies, and what can be wrong."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.certificates import make, server_context
from servers.api_server import ApiServer
from stayfast.clock import ManualClock
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.credentials import TokenFile
from stayfast.cluster.kubernetes.endpoint import Endpoint, in_cluster, proxy_for
from stayfast.cluster.kubernetes.exec_plugin import ExecCredential, ExecPlugin
from stayfast.cluster.kubernetes.kubeconfig import find_endpoint
from stayfast.cluster.kubernetes.resources import PODS
from stayfast.errors import ClusterAccessError, ClusterConfigError, ClusterUnreachableError

SECRET = "s3cr3t-token-that-must-never-be-shown"
CONTEXT = "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n"
Write = Callable[..., Path]


def works(access: Endpoint) -> bool:
    with Client(access) as client:
        return client.list(PODS, "default") == []


class TestFiles:
    def test_a_token(self, server: ApiServer, kubeconfig: Write) -> None:
        server.tokens = {SECRET}
        kubeconfig(user=f'{{token: "{SECRET}"}}', namespace="ml")
        access = find_endpoint()
        assert works(access)
        assert (access.namespace, access.context) == ("ml", "test")
        assert SECRET not in repr(access)

    def test_a_token_that_expired_is_one_sentence_without_the_token(self, server: ApiServer, kubeconfig: Write) -> None:
        server.tokens = {"another"}
        kubeconfig(user=f'{{token: "{SECRET}"}}')
        with pytest.raises(ClusterAccessError, match="does not accept these credentials") as caught:
            works(find_endpoint())
        assert SECRET not in str(caught.value)

    def test_a_token_file_beside_the_kubeconfig(self, server: ApiServer, kubeconfig: Write, tmp_path: Path) -> None:
        server.tokens = {SECRET}
        (tmp_path / "token").write_text(SECRET + "\n")
        kubeconfig(user="{tokenFile: token}")
        assert works(find_endpoint())

    def test_the_first_of_several_files_wins(
        self, server: ApiServer, kubeconfig: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        second = kubeconfig(user="{token: second}", name="second")
        first = tmp_path / "first"
        first.write_text("users: [{name: u, user: {token: first}}]\ncurrent-context: test\n")
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}{os.pathsep}{first}{os.pathsep}{second}")
        server.tokens = {"first"}
        assert works(find_endpoint())

    def test_another_context(self, kubeconfig: Write) -> None:
        kubeconfig()
        with pytest.raises(ClusterConfigError, match="no context 'prod'; it has: test"):
            find_endpoint(context="prod")

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("", "chooses no context"),
            ("current-context: a", "no context 'a'"),
            ("a: [", "not usable.*not YAML"),
            ("- 1", "not a mapping"),
            ("contexts: 3", "contexts in the kubeconfig .* is not a list"),
            ("current-context: a\ncontexts: [{name: a, context: {cluster: zz}}]", "names the cluster 'zz'"),
            (
                CONTEXT + "clusters: [{name: c, cluster: {server: 'ftp://x'}}]",
                "no address of an API server",
            ),
            (
                CONTEXT + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: '%%'}}]",
                "certificate-authority-data in the kubeconfig is not base64",
            ),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path: Path, text: str, sentence: str) -> None:
        path = tmp_path / "config"
        path.write_text(text)
        with pytest.raises(ClusterConfigError, match=sentence):
            find_endpoint(kubeconfig=str(path), environment={})

    @pytest.mark.parametrize(
        ("user", "sentence"),
        [
            ("{auth-provider: {name: gcp}}", "dropped in 1.26.*get-credentials"),
            ("{exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}}", "has the version"),
            ("{exec: {apiVersion: client.authentication.k8s.io/v1}}", "names no command"),
            ('{token: "a\\nX-Evil: 1"}', "characters no token has"),
            ("{client-certificate-data: YQ==}", "without its key"),
            ("{client-certificate: /none, client-key: /none}", "cannot be read"),
            ("{as: somebody, as-groups: [g]}", "impersonates groups"),
            ('{as: "a\\r\\nX: 1"}', "cannot stand in a header"),
        ],
    )
    def test_users_that_cannot_work(self, kubeconfig: Write, user: str, sentence: str) -> None:
        kubeconfig(user=user)
        with pytest.raises(ClusterConfigError, match=sentence):
            find_endpoint()

    def test_no_kubeconfig_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(ClusterConfigError, match="no kubeconfig here and this is no pod; run: gcloud container"):
            find_endpoint(environment={"HOME": str(tmp_path)})
        with pytest.raises(ClusterConfigError, match="there is no kubeconfig /none"):
            find_endpoint(kubeconfig="/none")

    def test_impersonation_is_sent(self, server: ApiServer, kubeconfig: Write) -> None:
        kubeconfig(user="{as: auditor}")
        assert works(find_endpoint())
        assert server.headers_seen[-1]["impersonate-user"] == "auditor"

    def test_a_server_behind_a_path(self, server: ApiServer) -> None:
        with (
            Client(Endpoint(server.url + "/k8s/clusters/c-1")) as client,
            pytest.raises(Exception, match="there is no"),
        ):
            client.list(PODS, "default")
        assert server.seen[-1][1] == "/k8s/clusters/c-1/api/v1/namespaces/default/pods"

    @pytest.mark.parametrize(
        "server",
        ["http://" + "a" * 70 + ".example", "https://a..b", "http://127.0.0.1:1", "https://.:443", "http://x:99999"],
    )
    def test_names_that_lead_nowhere_are_sentences(self, server: str) -> None:
        from stayfast.cluster.kubernetes.endpoint import Tls

        for name in (None, ".bad", "b" * 80):
            with pytest.raises((ClusterUnreachableError, ClusterConfigError)):
                Client(Endpoint(server, tls=Tls(server_name=name)), clock=ManualClock()).list(PODS)


class TestPod:
    def test_the_account_of_the_pod(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(SECRET)
        (tmp_path / "namespace").write_text("ml\n")
        environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
        access = in_cluster(environment, folder=str(tmp_path))
        assert access is not None
        assert (access.server, access.namespace) == ("https://[fd00::1]:443", "ml")
        assert in_cluster({}, folder=str(tmp_path)) is None
        assert in_cluster(environment, folder=str(tmp_path / "none")) is None

    def test_its_token_is_read_again(self, tmp_path: Path) -> None:
        path, clock = tmp_path / "token", ManualClock()
        path.write_text("one")
        credential = TokenFile(str(path), clock=clock)
        assert credential.headers() == {"Authorization": "Bearer one"}
        path.write_text("two")
        assert credential.headers() == {"Authorization": "Bearer one"}
        clock.advance(61)
        assert credential.headers() == {"Authorization": "Bearer two"}
        assert credential.renew() is False  # nothing newer in the file: asking again would be of no use
        path.write_text("three")
        assert credential.headers() == {"Authorization": "Bearer three"}

    def test_a_401_reads_it_at_once(self, server: ApiServer, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("old")
        server.tokens = {"old"}
        access = Endpoint(server.url, credential=TokenFile(str(path)))
        with Client(access) as client:
            client.list(PODS)
            server.tokens = {"new"}
            path.write_text("new")
            assert client.list(PODS) == []  # answered, although the token was read a moment ago

    def test_a_token_file_that_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(ClusterConfigError, match="No such file"):
            TokenFile(str(tmp_path / "none")).headers()


PLUGIN = f"""#!{sys.executable}
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "calls"), "a") as file:
    file.write(json.dumps([sys.argv[1:], os.environ["KUBERNETES_EXEC_INFO"], os.environ.get("EXTRA")]) + "\\n")
exec(open(os.path.join(here, "body")).read())
"""


class Plugin:
    """A credential plugin whose answer a test decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "plugin"
        self.path.write_text(PLUGIN)
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def answers(self, version: str = "v1", **status: str) -> None:
        body = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential", "status": status}
        (self.folder / "body").write_text(f"print({json.dumps(json.dumps(body))})")

    def does(self, code: str) -> None:
        (self.folder / "body").write_text(code)

    @property
    def calls(self) -> list[list[object]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    folder = tmp_path / "bin"
    folder.mkdir()
    return Plugin(folder)


def exec_user(command: str, version: str = "v1", more: str = "") -> str:
    return f"{{exec: {{command: '{command}', apiVersion: client.authentication.k8s.io/{version}{more}}}}}"


class TestPlugin:
    @pytest.mark.parametrize("version", ["v1", "v1beta1"])
    def test_its_token_is_used_and_kept(
        self, server: ApiServer, kubeconfig: Write, plugin: Plugin, version: str
    ) -> None:
        plugin.answers(version, token=SECRET)
        server.tokens = {SECRET}
        more = ", args: [--x, '$(touch pwned)'], env: [{name: EXTRA, value: e}], provideClusterInfo: true"
        kubeconfig(user=exec_user("bin/plugin", version, more), cluster=", tls-server-name: other")
        access = find_endpoint()
        assert works(access)
        assert works(access)
        [[arguments, info, extra]] = plugin.calls
        assert (arguments, extra) == (["--x", "$(touch pwned)"], "e")
        spec = json.loads(str(info))["spec"]
        assert spec["interactive"] is False
        assert spec["cluster"] == {"server": server.url, "tls-server-name": "other"}
        assert not os.path.exists("pwned")

    def test_without_being_asked_nothing_is_said_about_the_cluster(self, kubeconfig: Write, plugin: Plugin) -> None:
        plugin.answers(token="t")
        kubeconfig(user=exec_user(str(plugin.path)))
        assert works(find_endpoint())
        assert "cluster" not in json.loads(str(plugin.calls[0][1]))["spec"]

    def test_an_expired_token_is_made_anew(self, plugin: Plugin) -> None:
        clock = ManualClock()
        plugin.answers(token="one", expirationTimestamp="2023-11-14T23:13:20Z")  # an hour after the clock's start
        credential = ExecCredential(ExecPlugin(str(plugin.path), "client.authentication.k8s.io/v1"), clock=clock)
        assert credential.headers() == credential.headers() == {"Authorization": "Bearer one"}
        plugin.answers(token="two")
        clock.advance(3600)
        assert credential.headers() == {"Authorization": "Bearer two"}
        assert len(plugin.calls) == 2

    def test_a_401_asks_it_once_more_and_not_again(self, server: ApiServer, kubeconfig: Write, plugin: Plugin) -> None:
        plugin.answers(token="one")
        server.tokens = {"two"}
        kubeconfig(user=exec_user(str(plugin.path)))
        with Client(find_endpoint()) as client:
            with pytest.raises(ClusterAccessError, match="401"):
                client.list(PODS)
            assert len(plugin.calls) == 2
            plugin.answers(token="two")
            client.list(PODS)
        assert len(plugin.calls) == 3

    def test_one_that_is_not_installed(self, kubeconfig: Write) -> None:
        kubeconfig(user=exec_user("gke-gcloud-auth-plugin-none"))
        with pytest.raises(ClusterConfigError, match=r"not installed; install it"):
            works(find_endpoint())
        kubeconfig(user=exec_user("/none/gke-gcloud-auth-plugin"))
        with pytest.raises(ClusterConfigError, match="run: gcloud components install gke-gcloud-auth-plugin"):
            works(find_endpoint())
        kubeconfig(user=exec_user("none-such", more=", installHint: 'get it\n  there'"))
        with pytest.raises(ClusterConfigError, match="says: get it there"):
            works(find_endpoint())

    @pytest.mark.parametrize(
        ("code", "sentence"),
        [
            (
                "sys.stderr.write('please run gcloud auth login\\n'); sys.exit(1)",
                "code 1: please run gcloud auth login",
            ),
            (f"print('{SECRET}')", "printed no ExecCredential"),
            ("print('{}')", "printed no ExecCredential"),
            ("print('[' * 200000)", "printed no ExecCredential"),
            (
                "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'status': {}}))",
                "neither a token nor a certificate",
            ),
            (
                "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1beta1', 'status': {'token': 'x'}}))",
                "answered in another version",
            ),
            ("sys.stderr.write('token eyJ" + "a" * 80 + " is bad'); sys.exit(3)", r"token \[hidden\] is bad"),
        ],
    )
    def test_its_failures_are_sentences_without_secrets(
        self, kubeconfig: Write, plugin: Plugin, code: str, sentence: str
    ) -> None:
        plugin.does(code)
        kubeconfig(user=exec_user(str(plugin.path)))
        with pytest.raises((ClusterAccessError, ClusterConfigError), match=sentence) as caught:
            works(find_endpoint())
        assert SECRET not in str(caught.value)

    def test_one_that_must_ask_a_person(self, kubeconfig: Write, plugin: Plugin) -> None:
        kubeconfig(user=exec_user(str(plugin.path), more=", interactiveMode: Always"))
        with pytest.raises(ClusterAccessError, match="no terminal here"):
            works(find_endpoint())


class TestTls:
    def test_authority_certificate_and_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(scratch))
        ca, issuer = make("test authority")
        cert, _ = make("server", issuer, host="kubernetes.internal")
        person, _ = make("person", issuer)
        with ApiServer(tls=server_context(tmp_path, cert, client_ca=ca.chain)) as server:
            path = tmp_path / "config"

            def write(name: str, user: str) -> Endpoint:
                authority = f"certificate-authority-data: {base64.b64encode(ca.chain.encode()).decode()}"
                path.write_text(
                    "current-context: t\ncontexts: [{name: t, context: {cluster: c, user: u}}]\n"
                    f"clusters: [{{name: c, cluster: {{server: '{server.url}', {authority}{name}}}}}]\n"
                    f"users: [{{name: u, user: {user}}}]\n"
                )
                return find_endpoint(kubeconfig=str(path), environment={})

            chain, key = (base64.b64encode(text.encode()).decode() for text in person)
            user = f"{{client-certificate-data: {chain}, client-key-data: {key}}}"
            assert works(write(", tls-server-name: kubernetes.internal", user))
            assert works(write(", insecure-skip-tls-verify: true", user))
            with pytest.raises(ClusterUnreachableError, match="certificate verify failed"):
                works(write("", user))  # the certificate carries another name
            with pytest.raises(ClusterUnreachableError):
                works(write(", tls-server-name: kubernetes.internal", "{}"))  # a client without a certificate
            assert list(scratch.iterdir()) == [], "a key was left behind"

    def test_another_authority_is_refused(self, tmp_path: Path) -> None:
        ca, issuer = make("test authority")
        cert, _ = make("server", issuer, host="127.0.0.1")
        other, _ = make("other")
        from stayfast.cluster.kubernetes.endpoint import Tls

        with ApiServer(tls=server_context(tmp_path, cert)) as server:
            assert works(Endpoint(server.url, tls=Tls(ca_data=ca.chain)))
            with pytest.raises(ClusterUnreachableError, match="certificate verify failed"):
                works(Endpoint(server.url, tls=Tls(ca_data=other.chain)))
            assert works(Endpoint(server.url, tls=Tls(ca_data=other.chain, skip_verify=True)))  # as the kubeconfig says
            with pytest.raises(ClusterConfigError, match="not a usable certificate"):
                works(Endpoint(server.url, tls=Tls(ca_data="nonsense")))


class TestProxy:
    def test_which_proxy(self) -> None:
        env = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".corp,10.0.0.0/8,exact.org"}
        assert proxy_for("https://34.1.2.3", None, env) == "http://proxy:3128"
        assert proxy_for("https://34.1.2.3", "http://mine:1", env) == "http://mine:1"
        for server in ("https://10.1.2.3", "https://a.corp", "https://exact.org", "https://sub.exact.org",
                       "https://127.0.0.1:6443", "https://localhost"):  # fmt: skip
            assert proxy_for(server, None, env) is None, server
        assert proxy_for("https://corp", None, env) == "http://proxy:3128"
        assert proxy_for("https://x", None, {"https_proxy": "proxy:1"}) == "http://proxy:1"
        with pytest.raises(ClusterConfigError, match="only http://") as caught:
            proxy_for("https://x", "socks5://user:hunter2@p:1", {})
        assert "hunter2" not in str(caught.value)

    def test_requests_go_through_it(self, server: ApiServer) -> None:
        asked: list[str] = []
        listener = socket.create_server(("127.0.0.1", 0))
        port = int(server.url.rpartition(":")[2])

        def proxy() -> None:
            client, _ = listener.accept()
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            asked.append(head.decode())
            upstream = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=pump, args=(client, upstream), daemon=True).start()
            pump(upstream, client)

        def pump(source: socket.socket, target: socket.socket) -> None:
            while data := source.recv(65536):
                target.sendall(data)

        threading.Thread(target=proxy, daemon=True).start()
        url = f"http://me:p%40ss@127.0.0.1:{listener.getsockname()[1]}"
        assert works(Endpoint(server.url, proxy_url=url))
        listener.close()
        assert asked[0].startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.")
        assert "Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss").decode() in asked[0]
