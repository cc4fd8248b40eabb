"""``stayfast render``: files that are ours, files that are not, and directories that are out of date."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess

import pytest
import yaml
from render_cases import CASES, QUICK, SERVE, TRAIN, case, on

from stayfast.capacity.plan.planner import make_plan
from stayfast.cli.main import main
from stayfast.cluster.submission import prepare
from stayfast.render.bundle import MARKER


@pytest.fixture(autouse=True)
def quick_and_bundled(monkeypatch, tmp_path):
    """A plan of few replays, and not the catalogue of whoever runs the tests."""
    monkeypatch.setattr(prepare, "make_plan", functools.partial(make_plan, assumptions=QUICK))
    monkeypatch.delenv("STAYFAST_CATALOGUE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def spec(tmp_path):
    """A small workload, so that planning is quick."""
    path = tmp_path / "stayfast.yaml"
    path.write_text(SERVE)
    return path


@pytest.fixture
def training(tmp_path):
    path = tmp_path / "training.yaml"
    path.write_text(on(TRAIN.replace("{steps: 100000, seconds_per_step: 1.7}", "{hours: 2}"), "spot"))
    return path


def tree(directory):
    return {
        os.path.relpath(os.path.join(folder, name), directory): open(os.path.join(folder, name)).read()
        for folder, _, names in os.walk(directory)
        for name in names
    }


def test_files_are_written_and_found_up_to_date(spec, tmp_path, capsys):
    out = tmp_path / "deploy"
    assert main(["render", "-f", str(spec), "-d", str(out)]) == 0
    said = capsys.readouterr()
    assert "README.md" in said.out
    files = tree(out)
    assert {"README.md", "50-workload.yaml", "pools.sh", "pools.tf", "alerts/prometheus-rule.yaml"} <= set(files)
    assert all(MARKER in text for text in files.values())
    assert os.stat(out / "pools.sh").st_mode & stat.S_IXUSR
    assert main(["render", "-f", str(spec), "-d", str(out), "--check"]) == 0
    before = {name: os.stat(out / name).st_mtime_ns for name in files}
    assert main(["render", "-f", str(spec), "-d", str(out)]) == 0
    assert "is up to date" in capsys.readouterr().out
    assert {name: os.stat(out / name).st_mtime_ns for name in files} == before, "nothing is written for nothing"


def test_our_linter_agrees_on_the_command_line(training, tmp_path, capsys):
    out = tmp_path / "deploy"
    assert main(["render", "-f", str(training), "-d", str(out)]) == 0
    capsys.readouterr()
    assert main(["lint", "--format", "json", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


@pytest.mark.parametrize("change", ["edit", "delete", "leftover", "foreign"])
def test_check_names_what_is_out_of_date(spec, tmp_path, capsys, change):
    out = tmp_path / "deploy"
    assert main(["render", "-f", str(spec), "-d", str(out)]) == 0
    name = "50-workload.yaml"
    if change == "edit":
        (out / name).write_text((out / name).read_text() + "# more\n")
    elif change == "delete":
        (out / name).unlink()
    elif change == "leftover":
        name = "40-capacity.yaml"
        (out / name).write_text(f"# {MARKER}: once\n")
    else:
        (out / name).write_text("kind: Mine\n")
    before = tree(out)
    capsys.readouterr()
    assert main(["render", "-f", str(spec), "-d", str(out), "--check"]) == 1
    said = capsys.readouterr()
    assert name in said.err
    assert said.out == ""
    assert tree(out) == before, "a check writes nothing"
    assert main(["render", "-f", str(spec), "-d", str(out), "--check", "--json"]) == 1
    body = json.loads(capsys.readouterr().out)
    field = {"edit": "changed", "delete": "missing", "leftover": "extra", "foreign": "foreign"}[change]
    assert body[field] == [name]
    assert body["up_to_date"] is False


def test_check_of_a_directory_that_is_not_there(spec, tmp_path, capsys):
    assert main(["render", "-f", str(spec), "-d", str(tmp_path / "nowhere"), "--check"]) == 1
    assert "is missing" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_file_of_somebody_else_is_never_overwritten(spec, tmp_path, capsys):
    out = tmp_path / "deploy"
    out.mkdir()
    (out / "README.md").write_text("# my notes\n")
    assert main(["render", "-f", str(spec), "-d", str(out)]) == 2
    assert "README.md, not made by stayfast render" in capsys.readouterr().err
    assert tree(out) == {"README.md": "# my notes\n"}, "all or nothing"
    assert main(["render", "-f", str(spec), "-d", str(out), "--force"]) == 0
    assert MARKER in (out / "README.md").read_text()


def test_other_files_stay(spec, tmp_path):
    out = tmp_path / "deploy"
    out.mkdir()
    (out / "notes.txt").write_text("mine\n")
    (out / "60-mine.yaml").write_text("kind: Mine\n")
    assert main(["render", "-f", str(spec), "-d", str(out)]) == 0
    assert (out / "notes.txt").read_text() == "mine\n"
    assert main(["render", "-f", str(spec), "-d", str(out), "--check"]) == 0


def test_what_is_no_longer_part_of_it_goes(tmp_path, capsys):
    """``kubectl apply -f`` would go on applying it."""
    path, out = tmp_path / "stayfast.yaml", tmp_path / "deploy"
    text = TRAIN.replace("{steps: 100000, seconds_per_step: 1.7}", "{hours: 2}")
    path.write_text(on(text, "hybrid"))
    assert main(["render", "-f", str(path), "-d", str(out)]) == 0
    assert (out / "40-capacity.yaml").exists()
    path.write_text(on(text, "spot", "cluster: {mode: autopilot}\n"))
    capsys.readouterr()
    assert main(["render", "-f", str(path), "-d", str(out), "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert {"40-capacity.yaml", "pools.sh", "pools.tf", "patches/pin-to-on-demand.yaml"} <= set(body["removed"])
    assert not (out / "40-capacity.yaml").exists()
    assert not (out / "patches").exists()
    assert main(["render", "-f", str(path), "-d", str(out), "--check"]) == 0


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_lead_nowhere(spec, tmp_path, capsys, kind):
    out, elsewhere = tmp_path / "deploy", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    if kind == "file":
        (elsewhere / "victim").write_text(f"# {MARKER}\n")
        (out / "README.md").symlink_to(elsewhere / "victim")
    else:
        (out / "alerts").symlink_to(elsewhere)
    assert main(["render", "-f", str(spec), "-d", str(out)]) == 2
    assert capsys.readouterr().err.startswith("stayfast: ")
    assert sorted(tree(elsewhere)) == (["victim"] if kind == "file" else [])


def test_without_a_directory_the_manifests_go_to_stdout(training, capsys):
    assert main(["render", "-f", str(training)]) == 0
    said = capsys.readouterr()
    kinds = [item["kind"] for item in yaml.safe_load_all(said.out)]
    assert kinds[0] == "Namespace"
    assert kinds[-1] == "Job"
    assert main(["render", "-f", str(training), "--form", "jobset"]) == 0
    assert [item["kind"] for item in yaml.safe_load_all(capsys.readouterr().out)][-1] == "JobSet"


def test_json_holds_everything(training, capsys):
    assert main(["render", "-f", str(training), "--output", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["capacity"] == "spot"
    assert body["workload"] == "Job"
    assert body["files"]["50-workload.yaml"].startswith(f"# {MARKER}")
    assert {item["kind"] for item in body["objects"]} >= {"Job", "ServiceAccount", "PriorityClass", "ConfigMap"}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no workload is named"),
        (["-f", "SPEC", "--check"], "--check compares with a directory"),
        (["-f", "missing.yaml"], "missing.yaml"),
        (["-f", "SPEC", "-d", "FILE"], "cannot be written"),
        (["-f", "SPEC", "--form", "jobset"], "kind serve has no JobSet form"),
    ],
)
def test_mistakes_are_one_sentence(spec, tmp_path, capsys, argv, said):
    (tmp_path / "file").write_text("")
    argv = [{"SPEC": str(spec), "FILE": str(tmp_path / "file")}.get(word, word) for word in argv]
    assert main(["render", *argv]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_directory_that_may_not_be_written(spec, tmp_path, capsys):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    out = tmp_path / "deploy"
    out.mkdir(mode=0o500)
    assert main(["render", "-f", str(spec), "-d", str(out)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_image_that_cannot_be_pulled_is_an_error_before_anything_is_written(tmp_path, capsys):
    path, out = tmp_path / "stayfast.yaml", tmp_path / "deploy"
    path.write_text(SERVE.replace("project/repository/server:v1", "project/server:v1"))
    assert main(["render", "-f", str(path), "-d", str(out)]) == 2
    assert "SF802" in capsys.readouterr().err
    assert not out.exists()


def test_nothing_fits_is_exit_4(tmp_path, capsys):
    path = tmp_path / "stayfast.yaml"
    path.write_text(on(TRAIN.replace("{steps: 100000, seconds_per_step: 1.7}", "{hours: 2}"), "spot", "deadline: 1h\n"))
    assert main(["render", "-f", str(path), "-d", str(tmp_path / "deploy")]) == 4
    said = capsys.readouterr()
    assert "nothing fits llm-7" in said.err
    assert said.out == ""
    assert not (tmp_path / "deploy").exists()


def test_the_header_says_how_to_do_it_again(training, tmp_path, monkeypatch):
    """The command in the header, run, changes nothing."""
    out = tmp_path / "deploy"
    assert main(["render", "-f", str(training), "-d", str(out), "--form", "jobset"]) == 0
    line = (out / "50-workload.yaml").read_text().splitlines()[0]
    words = line.partition("run: stayfast ")[2].split()
    assert words[:3] == ["render", "-f", "training.yaml"]
    monkeypatch.chdir(tmp_path)
    assert main([str(out) if word == "DIR" else word for word in words] + ["--check"]) == 0


@pytest.mark.parametrize("name", ["train-spot", "train-queued-gang", "batch-spot", "serve-three-autopilot"])
def test_kubectl_reads_the_files(name, tmp_path):
    """Client-side, without a cluster: kubectl's own decoder, not its schemas."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    for file, text in case(name).files.items():
        if "/" not in file and file.endswith(".yaml"):
            (tmp_path / file).write_text(text)
    ended = subprocess.run(
        ["kubectl", "kustomize", "."],
        cwd=_kustomization(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": os.devnull},
    )
    assert ended.returncode == 0, ended.stderr
    assert _named(yaml.safe_load_all(ended.stdout)) == _named(case(name).objects)


def _kustomization(folder):
    names = sorted(path.name for path in folder.glob("*.yaml"))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": names}))
    return folder


def _named(items):
    return sorted((item["kind"], item["metadata"]["name"], json.dumps(item, sort_keys=True)) for item in items)


def test_every_case_can_be_asked_for_on_the_command_line(tmp_path):
    """The whole way: spec on disk, files on disk, lint, check."""
    for name, entry in CASES.items():
        path, out = tmp_path / "stayfast.yaml", tmp_path / name
        path.write_text(entry.text)
        form = ["--form", entry.form.value] if entry.form else []
        assert main(["render", "-f", str(path), "-d", str(out), *form]) == 0, name
        assert tree(out) == case(name).files
        assert main(["render", "-f", str(path), "-d", str(out), "--check", *form]) == 0


def test_two_specs_do_not_mix(tmp_path, capsys):
    """A second workload rendered into the first one's directory replaces it as a whole."""
    first, second, out = tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "deploy"
    first.write_text(SERVE)
    second.write_text(SERVE.replace("name: endpoint", "name: other").replace("namespace: serving\n", ""))
    assert main(["render", "-f", str(first), "-d", str(out)]) == 0
    assert main(["render", "-f", str(second), "-d", str(out)]) == 0
    assert not (out / "00-namespace.yaml").exists()
    assert not any("endpoint" in text for text in tree(out).values())
