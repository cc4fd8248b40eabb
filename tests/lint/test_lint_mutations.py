"""One fault put into a faultless Job: exactly the right rules fire, at the right place."""

from __future__ import annotations

import pytest
from lint_cases import IGNORE, MAIN, POD, cut, dump, good_job, lint, lint_objects, put

SELECTOR = (*POD, "nodeSelector")
SPOT = "cloud.google.com/gke-spot"

# (what is done to the good Job, codes that fire, pointer of one of the findings)
MUTATIONS = {
    "long grace": (
        lambda j: put(j, (*POD, "terminationGracePeriodSeconds"), 16),
        {"SF101"},
        "/spec/template/spec/terminationGracePeriodSeconds",
    ),
    "no grace": (
        lambda j: put(j, (*POD, "terminationGracePeriodSeconds"), 0),
        {"SF101"},
        "/spec/template/spec/terminationGracePeriodSeconds",
    ),
    "long preStop": (
        lambda j: put(j, (*MAIN, "lifecycle"), {"preStop": {"exec": {"command": ["sh", "-c", "sleep 20"]}}}),
        {"SF101"},
        "/spec/template/spec/containers/0/lifecycle/preStop",
    ),
    "sleep preStop": (
        lambda j: put(j, (*MAIN, "lifecycle"), {"preStop": {"sleep": {"seconds": 15}}}),
        {"SF101"},
        "/spec/template/spec/containers/0/lifecycle/preStop",
    ),
    "sh in front": (
        lambda j: put(j, (*MAIN, "command"), ["sh", "-c", "python -m sweep"]),
        {"SF102"},
        "/spec/template/spec/containers/0/command/2",
    ),
    "script in args": (
        lambda j: put(put(j, (*MAIN, "command"), ["/bin/sh", "-c"]), (*MAIN, "args"), ["python x.py"]),
        {"SF102"},
        "/spec/template/spec/containers/0/args/0",
    ),
    "exit 0": (
        lambda j: put(j, (*MAIN, "command"), ["bash", "-c", "trap 'exit 0' TERM\npython x & wait"]),
        {"SF103"},
        "/spec/template/spec/containers/0/command/2",
    ),
    "no policy": (lambda j: cut(j, "spec", "podFailurePolicy"), {"SF104"}, "/spec"),
    "other policy": (
        lambda j: put(
            j,
            ("spec", "podFailurePolicy", "rules"),
            [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}}],
        ),
        {"SF104"},
        "/spec/podFailurePolicy",
    ),
    "no retries": (
        lambda j: put(cut(j, "spec", "podFailurePolicy"), ("spec", "backoffLimit"), 0),
        {"SF104", "SF105"},
        "/spec/backoffLimit",
    ),
    "rule order": (
        lambda j: put(
            j,
            ("spec", "podFailurePolicy", "rules"),
            [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [75]}}, IGNORE],
        ),
        {"SF106"},
        "/spec/podFailurePolicy/rules/0",
    ),
    "tolerates all": (
        lambda j: put(j, (*POD, "tolerations"), [{"operator": "Exists"}]),
        {"SF202"},
        "/spec/template/spec/tolerations/0",
    ),
    "critical": (
        lambda j: put(j, (*POD, "priorityClassName"), "system-node-critical"),
        {"SF203"},
        "/spec/template/spec/priorityClassName",
    ),
    "suspended": (lambda j: put(j, ("spec", "suspend"), True), {"SF304"}, "/spec/suspend"),
    "queue as annotation": (
        lambda j: put(j, ("metadata", "annotations"), {"kueue.x-k8s.io/queue-name": "q"}),
        {"SF304"},
        "/metadata/annotations/kueue.x-k8s.io~1queue-name",
    ),
    "queue on template": (
        lambda j: put(j, ("spec", "template", "metadata", "labels", "kueue.x-k8s.io/queue-name"), "q"),
        {"SF304"},
        "/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name",
    ),
    "unmounted": (
        lambda j: put(j, (*MAIN, "env", 0, "value"), "/elsewhere"),
        {"SF401"},
        "/spec/template/spec/containers/0/env/0",
    ),
    "unmounted flag": (
        lambda j: put(j, (*MAIN, "command"), ["python", "t.py", "--checkpoint-dir", "/other"]),
        {"SF401"},
        "/spec/template/spec/containers/0/command/2",
    ),
    "ephemeral": (
        lambda j: put(
            cut(j, "spec", "template", "metadata", "annotations"),
            (*POD, "volumes", 0),
            {"name": "ckpt", "emptyDir": {}},
        ),
        {"SF402"},
        "/spec/template/spec/containers/0/env/0",
    ),
    "no sidecar": (
        lambda j: cut(j, "spec", "template", "metadata", "annotations"),
        {"SF405"},
        "/spec/template/spec/volumes/0",
    ),
    "typo in key": (
        lambda j: put(cut(j, *SELECTOR, SPOT), (*SELECTOR, "cloud.google.com/gke-spott"), "true"),
        {"SF501", "SF503"},
        "/spec/template/spec/nodeSelector/cloud.google.com~1gke-spott",
    ),
    "key without domain": (
        lambda j: put(cut(j, *SELECTOR, SPOT), (*SELECTOR, "gke-spot"), "true"),
        {"SF501"},
        "/spec/template/spec/nodeSelector/gke-spot",
    ),
    "value not text": (
        lambda j: put(j, (*SELECTOR, SPOT), True),
        {"SF502", "SF601"},
        "/spec/template/spec/nodeSelector/cloud.google.com~1gke-spot",
    ),
    "unknown GPU": (
        lambda j: put(j, (*SELECTOR, "cloud.google.com/gke-accelerator"), "nvidia-l44"),
        {"SF502"},
        "/spec/template/spec/nodeSelector/cloud.google.com~1gke-accelerator",
    ),
    "tolerates only": (lambda j: cut(j, *SELECTOR, SPOT), {"SF503"}, "/spec/template/spec/tolerations/0"),
    "selects only": (
        lambda j: cut(j, *POD, "tolerations"),
        {"SF504"},
        "/spec/template/spec/nodeSelector/cloud.google.com~1gke-spot",
    ),
    "spot and flex": (
        lambda j: put(j, (*SELECTOR, "cloud.google.com/gke-flex-start"), "true"),
        {"SF303", "SF302", "SF505"},
        "/spec/template/spec/nodeSelector/cloud.google.com~1gke-flex-start",
    ),
    "contradiction": (
        lambda j: put(j, (*SELECTOR, "cloud.google.com/gke-provisioning"), "standard"),
        {"SF505"},
        "/spec/template/spec/nodeSelector/cloud.google.com~1gke-provisioning",
    ),
    "GPU without type": (
        lambda j: cut(j, *SELECTOR, "cloud.google.com/gke-accelerator"),
        {"SF507"},
        "/spec/template/spec/containers/0/resources",
    ),
    "type without GPU": (
        lambda j: put(j, (*MAIN, "resources"), {"requests": {"cpu": 1, "memory": "1Gi"}}),
        {"SF507"},
        "/spec/template/spec/nodeSelector/cloud.google.com~1gke-accelerator",
    ),
    "unknown field": (lambda j: put(j, ("spec", "maxParallelism"), 8), {"SF601"}, "/spec/maxParallelism"),
    "wrong type": (lambda j: put(j, ("spec", "completions"), "eight"), {"SF601"}, "/spec/completions"),
    "missing": (lambda j: cut(j, *MAIN, "name"), {"SF601"}, "/spec/template/spec/containers/0"),
    "policy and OnFailure": (
        lambda j: put(j, (*POD, "restartPolicy"), "OnFailure"),
        {"SF601"},
        "/spec/template/spec/restartPolicy",
    ),
    "no restartPolicy": (lambda j: cut(j, *POD, "restartPolicy"), {"SF601"}, "/spec/template/spec"),
    "exit code 0": (
        lambda j: put(j, ("spec", "podFailurePolicy", "rules", 1, "onExitCodes", "values"), [0]),
        {"SF601"},
        "/spec/podFailurePolicy/rules/1/onExitCodes/values",
    ),
    "too many GPUs": (
        lambda j: put(
            put(j, (*MAIN, "resources", "requests", "nvidia.com/gpu"), 16),
            (*MAIN, "resources", "limits", "nvidia.com/gpu"),
            16,
        ),
        {"SF602"},
        "/spec/template/spec/containers/0/resources/requests/nvidia.com~1gpu",
    ),
    "too many CPUs": (
        lambda j: put(j, (*MAIN, "resources", "requests", "cpu"), "40"),
        {"SF602"},
        "/spec/template/spec/containers/0/resources/requests/cpu",
    ),
    "no cpu request": (
        lambda j: cut(j, *MAIN, "resources", "requests", "cpu"),
        {"SF801"},
        "/spec/template/spec/containers/0/resources",
    ),
    "short image": (
        lambda j: put(j, (*MAIN, "image"), "us-docker.pkg.dev/project/image:v1"),
        {"SF802"},
        "/spec/template/spec/containers/0/image",
    ),
    "no class": (
        lambda j: put(j, (*POD, "priorityClassName"), "batch"),
        {"SF803"},
        "/spec/template/spec/priorityClassName",
    ),
    "two writers": (
        lambda j: cut(cut(j, "spec", "podFailurePolicy"), "spec", "podReplacementPolicy"),
        {"SF104", "SF804"},
        "/spec",
    ),
    "no rank": (
        lambda j: put(cut(j, "spec", "completionMode"), (*MAIN, "command"), ["torchrun", "train.py"]),
        {"SF805"},
        "/spec/parallelism",
    ),
    "unresolved claim": (
        lambda j: put(
            cut(j, "spec", "template", "metadata", "annotations"),
            (*POD, "volumes", 0),
            {"name": "ckpt", "persistentVolumeClaim": {"claimName": "c"}},
        ),
        {"SF404"},
        "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName",
    ),
}


def test_the_good_job_is_good():
    assert lint(dump(good_job())).findings == []


@pytest.mark.parametrize("name", MUTATIONS)
def test_exactly_the_right_rules_fire(name):
    mutate, codes, pointer = MUTATIONS[name]
    text = dump(mutate(good_job()))
    report = lint(text)
    assert {finding.rule for finding in report.findings} == codes, [f.message for f in report.findings]
    assert pointer in {finding.pointer for finding in report.findings}
    for finding in report.findings:
        assert finding.object == "Job/ml/sweep"
        last = finding.pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        line = text.split("\n")[finding.line - 1]
        if finding.pointer and not last.isdigit() and last in text and f'"{last}"' in text:
            assert f'"{last}"' in line or "is required" in finding.message or last == "restartPolicy", (finding, line)
        assert line[finding.column - 1] not in " ", (finding, line)


@pytest.mark.parametrize(
    "mutate",
    [
        lambda j: put(j, (*POD, "terminationGracePeriodSeconds"), 2),
        lambda j: put(j, (*MAIN, "command"), ["bash", "-c", "python -m sweep"]),
        lambda j: put(j, (*MAIN, "command"), ["sh", "-c", "exec python -m sweep"]),
        lambda j: put(j, (*MAIN, "command"), ["bash", "-c", "pip install x\npython -m sweep\n"]),
        lambda j: put(j, (*MAIN, "command"), ["bash", "-c", "trap 'exit 75' TERM; python x & wait"]),
        lambda j: put(j, ("spec", "backoffLimit"), 0),
        lambda j: put(j, (*POD, "priorityClassName"), "system-${X}"),
        lambda j: put(j, (*MAIN, "env", 0, "value"), "gs://bucket/run"),
        lambda j: put(j, (*MAIN, "env", 0, "value"), "$(WHERE)"),
        lambda j: put(j, (*MAIN, "image"), "us-docker.pkg.dev/${PROJECT}/image:v1"),
        lambda j: put(j, ("spec", "completions"), "${COMPLETIONS}"),
        lambda j: put(j, (*SELECTOR, "cloud.google.com/gke-tpu-partition-4x4x4-state"), "HEALTHY"),
        lambda j: put(j, (*SELECTOR, "cloud.google.com/gke-accelerator"), "nvidia-tesla-t4"),
        lambda j: put(j, (*MAIN, "resources", "requests", "nvidia.com/gpu"), "1"),
        lambda j: put(j, ("metadata", "annotations"), {"anything": "else"}),
        lambda j: put(j, (*POD, "tolerations"), [{"key": SPOT, "operator": "Exists"}]),
        lambda j: put(j, (*MAIN, "command"), ["python", "t.py", "--load-checkpoint", "/image/base.pt"]),
    ],
)  # fmt: skip
def test_harmless_changes_stay_silent(mutate):
    assert lint_objects(mutate(good_job())) == set()


FREE_FORM = {"labels", "annotations", "nodeSelector", "requests", "limits", "volumeAttributes", "matchLabels"}


def fields(value, here=()):
    """Every field that the schema knows, with its path."""
    if isinstance(value, dict) and (not here or here[-1] not in FREE_FORM):
        for key, inner in value.items():
            yield (*here, key), inner
            yield from fields(inner, (*here, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from fields(inner, (*here, index))


EVERY_FIELD = [path for path, _ in fields(good_job()) if path[0] not in ("apiVersion", "kind")]


def spelled(path):
    return "".join(f"/{part}" for part in path)


@pytest.mark.parametrize("path", EVERY_FIELD, ids=spelled)
def test_a_misspelled_field_is_found_where_it_stands(path):
    job = good_job()
    place = job
    for part in path[:-1]:
        place = place[part]
    place[f"{path[-1]}x"] = place.pop(path[-1])
    found = {entry.pointer: entry for entry in lint(dump(job)).findings if entry.rule == "SF601"}
    assert f"{spelled(path)}x" in found
    assert found[f"{spelled(path)}x"].message == f"unknown field {path[-1]}x; did you mean {path[-1]}?"


@pytest.mark.parametrize("path", EVERY_FIELD, ids=spelled)
def test_a_field_of_the_wrong_type_is_found_where_it_stands(path):
    place = good_job()
    for part in path:
        place = place[part]
    wrong = {"a": "mapping"} if isinstance(place, list) else ["a list"]
    found = [entry for entry in lint(dump(put(good_job(), path, wrong))).findings if entry.rule == "SF601"]
    assert any(entry.pointer == spelled(path) and " must be " in entry.message for entry in found)


@pytest.mark.parametrize(
    "path",
    [("spec",), ("spec", "template"), (*POD, "containers"), (*MAIN, "name"), (*MAIN, "volumeMounts", 0, "mountPath"),
     ("spec", "podFailurePolicy", "rules"), ("spec", "podFailurePolicy", "rules", 1, "onExitCodes", "values")],
    ids=spelled,
)  # fmt: skip
def test_a_required_field_that_is_missing_is_found_or_makes_the_object_a_patch(path):
    codes = lint_objects(cut(good_job(), *path))
    assert "SF601" in codes or path in (("spec",), ("spec", "template"), (*POD, "containers"))


def test_a_folder_of_faults_in_a_list_object_is_found_inside_it():
    inner = put(good_job(), (*POD, "terminationGracePeriodSeconds"), 60)
    report = lint(dump({"apiVersion": "v1", "kind": "List", "items": [good_job(), inner]}))
    assert [finding.pointer for finding in report.findings] == [
        "/items/1/spec/template/spec/terminationGracePeriodSeconds"
    ]
    assert report.objects == 2
