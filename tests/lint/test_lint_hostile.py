"""What people and machines put in front of a linter: pipes, loops, bombs, closed descriptors. One finding each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import xml.dom.minidom
from pathlib import Path

import pytest

from stayfast.lint.readers.gcloud import pools_in_text

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {tolerations: [{operator: Exists}], containers: [{name: c, image: x}]}
"""
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))


def stayfast(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "stayfast", "lint", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, timeout=60, **options)


@pytest.fixture
def folder(tmp_path):
    bad = tmp_path / "k8s"
    bad.mkdir()
    for name, data in {
        "nul.yaml": b"a: \0b\n",
        "crlf.yaml": b"\xef\xbb\xbf" + POD.replace("\n", "\r\n").encode(),
        "tab.yaml": b"a:\n\t- b\n",
        "utf16.yaml": POD.encode("utf-16"),
        "binary.yaml": bytes(range(256)) * 8,
        "deep.yaml": b"- " * 25_000,
        "laughs.yaml": LAUGHS.encode(),
        "huge.yaml": b"a: b\n" * 700_000,
        "merge.yaml": b"a: &a {<<: *a}\n",
        "ok.yaml": POD.encode(),
        "new\nline.yaml": POD.encode(),
        "empty.yaml": b"",
    }.items():
        (bad / name).write_bytes(data)
    (bad / "loop").symlink_to(".")
    (bad / "self.yaml").symlink_to("self.yaml")
    (bad / "nowhere.yaml").symlink_to("not-there.yaml")
    (bad / "folder.yaml").mkdir()
    os.mkfifo(bad / "pipe.yaml")
    return tmp_path


def test_each_broken_file_is_one_finding_and_the_rest_is_linted(folder):
    done = stayfast("--format", "json", "k8s", cwd=folder)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    findings = json.loads(done.stdout)["findings"]
    broken = {Path(entry["file"]).name for entry in findings if entry["rule"] == "SF601"}
    expected = "nul tab utf16 binary deep laughs huge merge self nowhere"
    assert broken == {f"{name}.yaml" for name in expected.split()}
    linted = {Path(entry["file"]).name for entry in findings if entry["rule"] == "SF202"}
    assert linted == {"ok.yaml", "crlf.yaml", "new\nline.yaml"}
    assert len(findings) == len(broken) + len(linted)


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "junit"])
def test_every_format_stays_readable(folder, form):
    done = stayfast("--format", form, "k8s", cwd=folder)
    assert done.returncode == 1
    text = done.stdout.decode("utf-8")
    assert max(map(len, text.splitlines())) < 2_000
    if form in ("json", "sarif"):
        json.loads(text)
    elif form == "junit":
        xml.dom.minidom.parseString(text)
    elif form == "github":
        assert all(line.startswith("::") for line in text.splitlines())


def test_a_named_pipe_is_read_when_it_is_named(tmp_path):
    os.mkfifo(tmp_path / "rendered.yaml")
    writer = threading.Thread(target=lambda: (tmp_path / "rendered.yaml").write_text(POD))
    writer.start()
    done = stayfast("--format", "json", "rendered.yaml", cwd=tmp_path)
    writer.join(30)
    assert [entry["rule"] for entry in json.loads(done.stdout)["findings"]] == ["SF202"]


def test_a_named_file_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "self.yaml").symlink_to("self.yaml")
    (tmp_path / "ok.yaml").write_text(POD)
    done = stayfast("ok.yaml", "self.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_descriptor_is_no_traceback(tmp_path, closed):
    (tmp_path / "ok.yaml").write_text(POD)
    arguments = "-" if closed == 0 else "ok.yaml"
    shell = f'exec "{sys.executable}" -m stayfast lint {arguments} {closed}{"<" if closed == 0 else ">"}&-'
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, timeout=60)
    assert b"Traceback" not in done.stderr
    assert done.returncode == (2 if closed == 0 else 0)


def test_a_reader_that_goes_away_is_no_failure(folder):
    shell = f'"{sys.executable}" -m stayfast lint k8s | head -n 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, timeout=60)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_listed_is_a_finding(tmp_path):
    (tmp_path / "shut").mkdir(mode=0o000)
    (tmp_path / "ok.yaml").write_text(POD)
    done = stayfast("--format", "json", ".", cwd=tmp_path)
    assert {entry["rule"] for entry in json.loads(done.stdout)["findings"]} == {"SF202", "SF601"}


HOSTILE_POOLS = {
    "comments.tf": "/* " * 60_000,
    "quotes.tf": '"' * 200_000,
    "open.tf": 'resource "google_container_node_pool" "a" {\n' * 4_000,
    "module.tf": 'module "a" {\nsource = "kubernetes-engine"\nnode_pools = [ {' * 4_000,
    "taints.tf": 'resource "google_container_node_pool" "a" {\nnode_config {\n' + "taint {\n" * 20_000 + "}\n" * 20_002,
    "newlines.tf": 'resource "google_container_node_pool" "a" {\nnode_config {' + "\n" * 100_000 + "x",
    "locals.tf": "locals {\n" * 20_000,
    "commands.sh": "gcloud container node-pools create " * 5_000,
    "lines.sh": "gcloud container node-pools create p \\\n" * 5_000,
}


@pytest.mark.parametrize("name", HOSTILE_POOLS)
def test_pools_are_read_in_linear_time(name):
    """CPU time, far above what it takes (0.2 s) and far below what it took when it was quadratic (minutes)."""
    started = time.process_time()
    pools_in_text(HOSTILE_POOLS[name], name)
    assert time.process_time() - started < 20
