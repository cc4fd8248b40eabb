"""``stayfast lint`` as a real command: exit codes, inputs, options, formats, and every kind of bad input."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from lint_cases import POD, cut, good_job, put

from stayfast.cli.main import main

SRC = Path(__file__).parents[2] / "src"
PROGRAM = "import sys; from stayfast.cli.main import main; sys.exit(main(sys.argv[1:]))"


def stayfast(*words: str, cwd: Path, stdin: str = ""):
    """The command in this process; the tests called real start one of their own."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    entered = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    was_enabled = gc.isenabled()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "stdin", entered)
        try:
            code = main(["lint", *words])
        except SystemExit as error:  # argparse
            code = int(error.code or 0)
        finally:
            gc.enable() if was_enabled else None
    out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


def real_stayfast(*words: str, cwd: Path, stdin: str = ""):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "lint", *words],
        cwd=cwd,
        input=stdin.encode(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        timeout=60,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return done.returncode, out, err


def text(value) -> str:
    return yaml.safe_dump(value, sort_keys=False)


BAD = text(put(good_job(), (*POD, "containers", 0, "image"), "us-docker.pkg.dev/project/image"))
WARNING = text(put(good_job(), (*POD, "terminationGracePeriodSeconds"), 60))
GOOD = text(good_job())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "warning.yaml").write_text(WARNING)
    return tmp_path


def findings(out: str):
    return [(entry["rule"], os.path.basename(entry["file"])) for entry in json.loads(out)["findings"]]


def test_a_real_process_ends_with_the_right_code(folder):
    assert real_stayfast("good.yaml", cwd=folder) == (0, "No findings: 1 object in 1 file.\n", "")
    assert real_stayfast("bad.yaml", cwd=folder)[0] == 1
    assert real_stayfast("none.yaml", cwd=folder)[0] == 2


def test_exit_codes_follow_severity(folder):
    assert stayfast("good.yaml", cwd=folder)[0] == 0
    assert stayfast("bad.yaml", cwd=folder)[0] == 1
    assert stayfast("warning.yaml", cwd=folder)[0] == 0
    assert stayfast("warning.yaml", "--strict", cwd=folder)[0] == 1


def test_json_contract(folder):
    code, out, err = stayfast("--format", "json", ".", cwd=folder)
    report = json.loads(out)
    assert (code, err) == (1, "")
    assert (report["files"], report["objects"]) == (3, 3)
    entry = next(item for item in report["findings"] if item["rule"] == "SF802")
    assert entry == {
        "rule": "SF802",
        "name": "image-ref-invalid",
        "severity": "error",
        "message": entry["message"],
        "file": "./bad.yaml",
        "line": BAD[: BAD.index("image: us-docker")].count("\n") + 1,
        "column": 9,
        "pointer": "/spec/template/spec/containers/0/image",
        "object": "Job/ml/sweep",
        "fixable": "no",
    }


def test_text_shows_the_line_with_a_caret_and_no_colour_in_a_pipe(folder):
    _, out, _ = stayfast("bad.yaml", cwd=folder)
    lines = out.split("\n")
    place = next(number for number, line in enumerate(lines) if "image: us-docker" in line and "|" in line)
    assert lines[place + 1].index("^") == lines[place].index("image:")
    assert "\x1b" not in out
    assert "1 error" in lines[-2]


def test_standard_input_of_a_real_process(folder):
    code, out, _ = real_stayfast("--format", "json", "-", cwd=folder, stdin=BAD)
    assert code == 1
    assert findings(out) == [("SF802", "<stdin>")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing-here.yaml"], "there is no file or folder nothing-here.yaml"),
        ([], "nothing to lint"),
        (["--select", "X1", "good.yaml"], "X1 is no rule code"),
        (["--explain", "SF999"], "there is no rule SF999"),
        (["--config", "none.yaml", "good.yaml"], "cannot read the configuration none.yaml"),
        (["--baseline", "none.json", "good.yaml"], "cannot read the baseline none.json"),
        (["--baseline", "good.yaml", "good.yaml"], "good.yaml is no baseline"),
        (["--kubernetes", "1.9", "good.yaml"], "no schemas for Kubernetes 1.9"),
        (["--write-baseline", "/nowhere/b.json", "good.yaml"], "/nowhere/b.json cannot be written"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_2(folder, words, message):
    code, out, err = stayfast(*words, cwd=folder)
    assert (code, out) == (2, "")
    assert err.startswith("stayfast: ")
    assert message in err
    assert err.count("\n") == 1


def test_an_unknown_option_is_exit_2(folder):
    assert stayfast("--nonsense", cwd=folder)[0] == 2
    assert stayfast("--format", "xml", "good.yaml", cwd=folder)[0] == 2


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("ignore: SF1\n", 1),
        ("nonsense: 1\n", 1),
        ("ignore: [SF101]\npaths:\n- ignore: [SF1]\n", 3),
        ("kubernetes: '1.2'\n", 1),
        ("cluster:\n  mode: other\n", 2),
        ("cluster:\n  pools:\n  - {machine-type: x}\n", 3),
        ("cluster:\n  pools:\n  - {name: x, count: many}\n", 3),
        ("cluster: {max-accelerators: lots}\n", 1),
        ("a: 1\na: 2\n", 2),
        ("[", 1),
        ("- 1\n", 1),
    ],
)
def test_a_bad_configuration_names_file_and_line(folder, config, line):
    (folder / "stayfast-lint.yaml").write_text(config)
    code, out, err = stayfast("good.yaml", cwd=folder)
    assert (code, out) == (2, "")
    assert err.startswith(f"stayfast: stayfast-lint.yaml:{line}:"), err


def test_select_ignore_and_per_path_rules(folder):
    _, out, _ = stayfast("--format", "json", "--select", "SF1", ".", cwd=folder)
    assert findings(out) == [("SF101", "warning.yaml")]
    _, out, _ = stayfast("--format", "json", "--ignore", "SF101,SF802", ".", cwd=folder)
    assert findings(out) == []
    (folder / "mine.yaml").write_text("paths:\n- {match: '*bad.yaml', ignore: [SF8]}\n")
    _, out, _ = stayfast("--format", "json", "--config", "mine.yaml", "bad.yaml", "warning.yaml", cwd=folder)
    assert findings(out) == [("SF101", "warning.yaml")]


def test_pools_of_the_configuration_are_used(folder):
    pool = {"name": "p", "machine-type": "g2-standard-8", "accelerator": "nvidia-l4", "count": 1, "spot": True}
    config = {"cluster": {"pools": [{**pool, "taints": ["team=a:NoSchedule"]}]}}
    (folder / "stayfast-lint.yaml").write_text(text(config))
    assert findings(stayfast("--format", "json", "good.yaml", cwd=folder)[1]) == [("SF508", "good.yaml")]


def test_a_baseline_hides_what_was_accepted_and_shows_what_is_new(folder):
    code, _, err = stayfast("--write-baseline", "accepted.json", "bad.yaml", cwd=folder)
    assert code == 0
    assert "accepted 1 findings" in err
    assert stayfast("--baseline", "accepted.json", "bad.yaml", cwd=folder)[0] == 0
    (folder / "bad.yaml").write_text("# moved\n\n" + BAD)
    assert stayfast("--baseline", "accepted.json", "bad.yaml", cwd=folder)[0] == 0
    (folder / "bad.yaml").write_text(BAD + "---\n" + BAD.replace("name: sweep", "name: second"))
    assert stayfast("--baseline", "accepted.json", "bad.yaml", cwd=folder)[0] == 1


def test_each_folder_is_a_bundle_of_its_own(tmp_path):
    priority = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: batch}\nvalue: -5\n"
    job = text(put(good_job(), (*POD, "priorityClassName"), "batch"))
    for name, content in {"a/job.yaml": job, "a/class.yaml": priority, "b/job.yaml": job}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    report = json.loads(stayfast("--format", "json", ".", cwd=tmp_path)[1])
    assert [entry["file"] for entry in report["findings"]] == ["./b/job.yaml"]
    assert stayfast("--strict", "b/job.yaml", "a/class.yaml", cwd=tmp_path)[0] == 0


def test_a_broken_file_is_one_finding_and_the_rest_is_linted(folder):
    (folder / "broken.yaml").write_text("a: [1\n")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00a")
    (folder / "deep.yaml").write_text("- " * 30_000)
    (folder / "chart.yaml").write_text("a: {{ .Values.x }}\nb: [\n")
    code, out, _ = stayfast("--format", "json", ".", cwd=folder)
    assert code == 1
    found = findings(out)
    for name in ("broken.yaml", "binary.yaml", "deep.yaml", "chart.yaml"):
        assert found.count(("SF601", name)) == 1
    assert ("SF802", "bad.yaml") in found
    template = next(entry for entry in json.loads(out)["findings"] if entry["file"].endswith("chart.yaml"))
    assert template["severity"] == "advice"


def test_an_unreadable_file_is_exit_2(folder):
    (folder / "locked.yaml").symlink_to(folder / "nowhere")
    assert stayfast("locked.yaml", cwd=folder)[0] == 2


def test_other_yaml_is_left_alone(tmp_path):
    (tmp_path / "values.yaml").write_text("replicas: 3\nimage: x\n")
    (tmp_path / "list.yaml").write_text("- 1\n- {kind: of}\n")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "package.json").write_text('{"name": "x", "kind": "y"}')
    code, out, _ = stayfast("--format", "json", ".", cwd=tmp_path)
    assert (code, json.loads(out)["findings"]) == (0, [])


def test_sarif_has_what_code_scanning_reads(folder):
    report = json.loads(stayfast("--format", "sarif", ".", cwd=folder)[1])
    assert report["version"] == "2.1.0"
    (run,) = report["runs"]
    rules = [entry["id"] for entry in run["tool"]["driver"]["rules"]]
    assert rules == sorted(set(rules))
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] >= 1
        assert region["startColumn"] >= 1
        assert result["message"]["text"]


def test_github_annotations_are_escaped(folder):
    (folder / "odd, name.yaml").write_text(BAD)
    _, out, _ = stayfast("--format", "github", "odd, name.yaml", cwd=folder)
    assert out.startswith("::error file=odd%2C name.yaml,line=")
    assert "title=SF802 image-ref-invalid::" in out


def test_junit_is_xml_with_one_case_per_finding(folder):
    root = ElementTree.fromstring(stayfast("--format", "junit", ".", cwd=folder)[1])
    assert root.attrib == {"tests": "2", "failures": "2"}
    assert {case.attrib["classname"] for case in root.iter("testcase")} == {"SF802", "SF101"}
    clean = ElementTree.fromstring(stayfast("--format", "junit", "good.yaml", cwd=folder)[1])
    assert clean.attrib["failures"] == "0"


def test_fix_writes_diff_only_shows(folder):
    path = folder / "fixable.yaml"
    before = "# mine\n" + text(cut(good_job(), *POD, "tolerations"))
    path.write_text(before)
    path.chmod(0o640)
    code, out, _ = stayfast("--diff", "fixable.yaml", cwd=folder)
    assert code == 1
    assert "+      tolerations:" in out
    assert path.read_text() == before
    code, _, err = stayfast("--fix", "fixable.yaml", cwd=folder)
    assert (code, err) == (0, "stayfast: fixed 1 file\n")
    assert path.read_text().startswith("# mine\n")
    assert "gke-spot, operator" not in before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stayfast("--diff", "fixable.yaml", cwd=folder)[:2] == (0, "")
    assert sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(".")) == []


def test_fix_keeps_the_byte_order_mark(folder):
    path = folder / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + text(cut(good_job(), *POD, "tolerations")).encode())
    assert stayfast("--fix", "bom.yaml", cwd=folder)[0] == 0
    assert path.read_bytes().startswith(b"\xef\xbb\xbfapiVersion")


def test_standard_input_is_not_fixed_in_place(folder):
    code, _, err = stayfast("--fix", "-", cwd=folder, stdin=text(cut(good_job(), *POD, "tolerations")))
    assert code == 2
    assert "standard input cannot be fixed" in err


def test_explain_and_rules(folder):
    code, out, _ = stayfast("--explain", "sf104", cwd=folder)
    assert code == 0
    assert out.startswith("# SF104: disruption-counts-as-failure")
    assert len(stayfast("--rules", cwd=folder)[1].splitlines()) == 48


SUPPRESSED = [
    ("# stayfast: ignore SF101 because drains may take long\n" + WARNING, []),
    (
        WARNING.replace(
            "terminationGracePeriodSeconds: 60",
            "terminationGracePeriodSeconds: 60  # stayfast: ignore SF101 because drains",
        ),
        [],
    ),
    (
        WARNING.replace(
            "      terminationGracePeriodSeconds",
            "      # stayfast: ignore SF101, SF102 because drains\n      terminationGracePeriodSeconds",
        ),
        [],
    ),
    ("# stayfast: ignore SF101\n" + WARNING, ["SF101", "SF901"]),
    ("# stayfast: ignore SF105 because of habit\n" + WARNING, ["SF101", "SF902"]),
    (GOOD + "---\n# stayfast: ignore SF101 because drains\n" + WARNING, []),
    ("# stayfast: ignore SF101 because drains\n" + GOOD + "---\n" + WARNING, ["SF101", "SF902"]),
    (
        text(
            put(
                yaml.safe_load(WARNING),
                ("metadata", "annotations"),
                {"stayfast.dev/ignore": "SF101 because drains; SF102 because x"},
            )
        ),
        ["SF902"],
    ),
]


@pytest.mark.parametrize(("content", "codes"), SUPPRESSED)
def test_suppressions_need_a_reason_and_hold_where_they_stand(tmp_path, content, codes):
    (tmp_path / "x.yaml").write_text(content)
    report = json.loads(stayfast("--format", "json", "x.yaml", cwd=tmp_path)[1])
    assert sorted(entry["rule"] for entry in report["findings"]) == codes


def test_the_reader_may_leave(folder):
    command = f"{sys.executable} -c '{PROGRAM}' lint --rules | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True
    )
    assert b"Traceback" not in done.stderr
