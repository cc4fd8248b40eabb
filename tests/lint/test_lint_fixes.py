"""Fixes: the finding goes, everything else stays, comments and formatting included; twice is the same as once."""

from __future__ import annotations

import random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from lint_cases import IGNORE, MAIN, POD, SHARED, cut, good_job, put
from test_lint_mutations import MUTATIONS

from stayfast.documents import parse_documents
from stayfast.documents.editor import Edit, apply_edits
from stayfast.lint import rule_pages
from stayfast.lint.engine import lint_bundle
from stayfast.lint.fixes import fix_sources
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.schema.crds import KINDS
from stayfast.lint.sources import Source


def find(sources):
    return lint_bundle(list(sources), LintSettings()).findings


def fix(text: str, *, unsafe: bool) -> str:
    (source,), _ = fix_sources([Source("f.yaml", text)], find, unsafe=unsafe)
    return source.text


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.split("\n") if "#" in line]


def commented(text: str) -> str:
    """A comment above every other line and behind some, the way people write them."""
    chooser = random.Random(7)
    lines = []
    for number, line in enumerate(text.split("\n")):
        if line and chooser.random() < 0.3:
            lines.append(" " * (len(line) - len(line.lstrip())) + f"# above {number}")
        lines.append(line + (f"  # behind {number}" if line and chooser.random() < 0.3 else ""))
    return "\n".join(lines)


def block(value) -> str:
    return yaml.safe_dump(value, sort_keys=False)


def flow(value) -> str:
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=None)


FIXABLE = [
    name
    for name, (mutate, _, _) in MUTATIONS.items()
    if any(finding.fix for finding in find([Source("f.yaml", block(mutate(good_job())))]))
]
SAFE = {"no policy", "rule order", "no sidecar", "value not text", "selects only", "two writers"}


def test_many_faults_are_fixable():
    assert set(FIXABLE) >= SAFE | {"sh in front", "exit 0", "no retries", "typo in key", "unknown field", "no rank"}


@pytest.mark.parametrize("write", [block, flow], ids=["block", "flow"])
@pytest.mark.parametrize("name", FIXABLE)
def test_a_fixed_file_has_no_finding_it_was_fixed_for_and_is_stable(name, write):
    mutate, _, _ = MUTATIONS[name]
    text = commented(write(mutate(good_job()))) if write is block else write(mutate(good_job()))
    before = [f for f in find([Source("f.yaml", text)]) if f.fix]
    fixed = fix(text, unsafe=True)
    assert fixed != text
    after = {(f.rule, f.pointer) for f in find([Source("f.yaml", fixed)])}
    assert not after & {(f.rule, f.pointer) for f in before}
    assert fix(fixed, unsafe=True) == fixed
    if not any(edit.operation == "remove" for f in before for edit in f.fix.edits):  # removed lines take theirs along
        assert set(comments(text)) <= set(comments(fixed))


@pytest.mark.parametrize("name", sorted(SAFE))
def test_safe_fixes_need_no_permission_and_unsafe_ones_do(name):
    mutate, _, _ = MUTATIONS[name]
    assert fix(block(mutate(good_job())), unsafe=False) != block(mutate(good_job()))


@pytest.mark.parametrize("name", sorted(set(FIXABLE) - SAFE - {"no retries"}))
def test_unsafe_fixes_wait_for_permission(name):
    mutate, _, _ = MUTATIONS[name]
    text = block(mutate(good_job()))
    assert fix(text, unsafe=False) == text


COMPUTE_CLASS = """\
apiVersion: cloud.google.com/v1
kind: ComputeClass
metadata: {name: a3}
spec:
  whenUnsatisfiable: DoNotScaleUp
  allocationStrategyDefaults: {spot: lowest-cost}
  priorities:
  - machineType: a3-megagpu-8g
    spot: true
    gpuDirect: rdma
    gpu: {type: nvidia-h100-mega-80gb, count: 8, topology: 1x8, gpuSharing: {sharingStrategy: mps}}
    storage: {bootDiskSize: 200, bootDiskProvisionedIops: 6000}
  nodePoolConfig:
    imageType: custom_containerd
    nodeDrainConfig: {respectPdbDuringNodePoolDeletion: true}
    nodeVersion: 1.36.0-gke.100
"""


def test_no_fix_touches_what_the_definition_of_a_compute_class_has():
    assert [f.message for f in find([Source("f.yaml", COMPUTE_CLASS)]) if f.rule == "SF601"] == []
    assert fix(COMPUTE_CLASS, unsafe=True) == COMPUTE_CLASS


@pytest.mark.parametrize(("api", "kind"), sorted((key.rpartition("/")[0], key.rpartition("/")[2]) for key in KINDS))
@pytest.mark.parametrize("field", ["brandNewField", "admissionCheckz", "maxPriorities", "networkConfigs"])
def test_no_fix_removes_a_field_of_a_definition_that_grows(api, kind, field):
    text = f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n  {field}: rdma\n"
    fixed = fix(text, unsafe=True)
    assert ": rdma" in fixed
    assert field in fixed or field != "brandNewField"  # the others may be one letter away from a known field


def test_one_wrong_letter_is_still_repaired():
    assert "gpuDirect: rdma" in fix(COMPUTE_CLASS.replace("gpuDirect:", "gpudirecT:"), unsafe=True)
    two = COMPUTE_CLASS.replace("gpuDirect:", "cpuDirekt:")  # may be a field that the definition has by now
    assert fix(two, unsafe=True) == two


def test_lines_that_are_not_touched_keep_their_bytes():
    text = commented(block(cut(good_job(), "spec", "podFailurePolicy")))
    fixed = fix(text, unsafe=False)
    kept = iter(fixed.split("\n"))
    assert all(line in kept for line in text.split("\n"))  # in order, nothing lost


def test_carriage_returns_survive():
    text = block(cut(good_job(), "spec", "podFailurePolicy")).replace("\n", "\r\n")
    fixed = fix(text, unsafe=False)
    assert "podFailurePolicy" in fixed
    assert fixed.count("\n") == fixed.count("\r\n")


def test_a_file_without_a_last_newline_and_several_documents():
    one = block(cut(good_job(), *POD, "tolerations"))
    text = f"# first\n{one}---\n# second\n{one}".rstrip("\n")
    fixed = fix(text, unsafe=False)
    assert fixed.count("effect: NoSchedule") == 2
    assert find([Source("f.yaml", fixed)]) == []


def test_literal_scripts_are_edited_in_place():
    script = "set -e  # stop early\n\ncd /x\n\npython train.py --a 1\n"
    job = put(good_job(), (*MAIN, "command"), ["sh", "-c", "SCRIPT"])
    lines = "".join(f"          {line}\n" if line else "\n" for line in script.split("\n")[:-1])
    text = block(job).replace("- SCRIPT\n", "- |\n" + lines)
    assert parse_documents(text).documents[0].value["spec"]["template"]["spec"]["containers"][0]["command"][2] == script
    fixed = fix(text, unsafe=True)
    assert fixed == text.replace("python train.py", "exec python train.py")


@pytest.mark.parametrize("code", [code for code in rule_pages.codes() if code not in ("SF901", "SF902")])
def test_fixing_the_examples_of_all_pages_never_makes_them_worse(code):
    (_, text), *_ = rule_pages.page(code).code_blocks("Example")
    before = find([Source("f.yaml", text)])
    fixed = fix(text, unsafe=True)
    after = find([Source("f.yaml", fixed)])
    assert len([f for f in after if f.severity == "error"]) <= len([f for f in before if f.severity == "error"])
    assert fix(fixed, unsafe=True) == fixed


def test_fixing_public_manifests_keeps_their_comments_and_is_stable():
    folder = SHARED / "corpus"
    if not folder.is_dir():
        pytest.skip("the corpus of public manifests is not here")
    files = sorted(path for path in folder.rglob("*.yaml"))
    changed = 0
    for path in random.Random(3).sample(files, k=60):
        text = path.read_text()
        fixed = fix(text, unsafe=True)
        changed += fixed != text
        kept = set(fixed.split("\n"))
        assert [line for line in text.split("\n") if line.lstrip().startswith("#") and line not in kept] == []
        assert fix(fixed, unsafe=True) == fixed
        assert not [finding for finding in find([Source("f.yaml", fixed)]) if finding.fix]
    assert changed > 5


def test_the_failure_rules_move_as_one_piece():
    fail = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [137]}}
    text = commented(block(put(good_job(), ("spec", "podFailurePolicy", "rules"), [fail, IGNORE])))
    fixed = fix(text, unsafe=False)
    value = parse_documents(fixed).documents[0].value
    assert value["spec"]["podFailurePolicy"]["rules"] == [IGNORE, fail]


# ---- edits on arbitrary documents -------------------------------------------------------------------------------

_KEYS = st.sampled_from(["a", "b", "key", "no", "x-y", "1"])
_SCALARS = st.sampled_from([0, 1, True, None, "text", "no", "", "a: b", "# c", "é", "multi\nline\n", "'q'", "- x"])
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


def paths(value, here=()):
    yield here, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*here, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*here, index))


@st.composite
def documents_and_edits(draw):
    tree = {"root": draw(_TREES), "tail": 1}
    path, _ = draw(st.sampled_from(list(paths(tree))))
    operation = draw(st.sampled_from(["set", "append", "prepend", "remove", "rename", "first"]))
    new = draw(_TREES)
    if operation == "set":
        edit = Edit("set", path, new, key=draw(_KEYS))
    elif operation in ("append", "prepend"):
        edit = Edit(operation, path, new)
    elif operation == "rename":
        edit = Edit("rename", path, draw(_KEYS))
    else:
        edit = Edit(operation, path)
    style = draw(st.sampled_from([False, None, True]))
    return yaml.safe_dump(tree, sort_keys=False, default_flow_style=style, allow_unicode=True), edit


def expected(value, edit):
    """The reference: the same edit on plain values."""
    import copy

    value = copy.deepcopy(value)
    place = value
    steps = edit.path if edit.operation in ("set", "append", "prepend") else edit.path[:-1]
    for part in steps:
        place = place[part]
    if edit.operation == "set":
        place[edit.key] = edit.value
    elif edit.operation == "append":
        place.append(edit.value)
    elif edit.operation == "prepend":
        place.insert(0, edit.value)
    elif edit.operation == "rename":
        place[edit.value] = place.pop(edit.path[-1])
    elif edit.operation == "first":
        place.insert(0, place.pop(edit.path[-1]))
    return value


@settings(max_examples=500, deadline=None)
@given(documents_and_edits())
def test_an_edit_changes_exactly_what_it_says_or_nothing(case):
    text, edit = case
    before = parse_documents(text).documents[0].value
    text_after = apply_edits(f"# top\n{text}# end\n", 0, (edit,))
    if text_after is None:
        return
    assert text_after.startswith("# top\n")
    assert "# end" in text_after
    after = parse_documents(text_after).documents[0].value
    if edit.operation != "remove":
        assert after == expected(before, edit)
    else:
        assert after != before


def test_edits_that_people_need_do_work():
    """The property above would hold for an editor that refuses everything."""
    text = "a:\n  b: 1  # one\n  c: [1, 2]\nd:\n- x: 1\n  w: 2\n- z: 3\n"
    cases = [
        (Edit("set", ("a",), 5, key="b"), {"a": {"b": 5, "c": [1, 2]}, "d": [{"x": 1, "w": 2}, {"z": 3}]}),
        (
            Edit("set", ("a",), {"k": ["v"]}, key="n"),
            {"a": {"b": 1, "c": [1, 2], "n": {"k": ["v"]}}, "d": [{"x": 1, "w": 2}, {"z": 3}]},
        ),
        (
            Edit("set", ("d", 0), "u", key="v"),
            {"a": {"b": 1, "c": [1, 2]}, "d": [{"x": 1, "w": 2, "v": "u"}, {"z": 3}]},
        ),
        (Edit("append", ("a", "c"), 3), {"a": {"b": 1, "c": [1, 2, 3]}, "d": [{"x": 1, "w": 2}, {"z": 3}]}),
        (Edit("append", ("d",), {"q": 1}), {"a": {"b": 1, "c": [1, 2]}, "d": [{"x": 1, "w": 2}, {"z": 3}, {"q": 1}]}),
        (
            Edit("prepend", ("d",), {"q": [{"r": 1}]}),
            {"a": {"b": 1, "c": [1, 2]}, "d": [{"q": [{"r": 1}]}, {"x": 1, "w": 2}, {"z": 3}]},
        ),
        (Edit("remove", ("d", 0)), {"a": {"b": 1, "c": [1, 2]}, "d": [{"z": 3}]}),
        (Edit("remove", ("d", 0, "x")), {"a": {"b": 1, "c": [1, 2]}, "d": [{"w": 2}, {"z": 3}]}),
        (Edit("remove", ("d", 1, "z")), {"a": {"b": 1, "c": [1, 2]}, "d": [{"x": 1, "w": 2}]}),
        (Edit("remove", ("a", "c", 1)), {"a": {"b": 1, "c": [1]}, "d": [{"x": 1, "w": 2}, {"z": 3}]}),
        (Edit("rename", ("a", "b"), "e"), {"a": {"e": 1, "c": [1, 2]}, "d": [{"x": 1, "w": 2}, {"z": 3}]}),
        (Edit("first", ("d", 1)), {"a": {"b": 1, "c": [1, 2]}, "d": [{"z": 3}, {"x": 1, "w": 2}]}),
    ]
    for edit, value in cases:
        after = apply_edits(text, 0, (edit,))
        assert after is not None, edit
        assert parse_documents(after).documents[0].value == value
        assert "# one" in after
