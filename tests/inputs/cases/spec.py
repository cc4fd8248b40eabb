"""stayfast.yaml: what people, editors and other tools make of it; ``plan`` reads it as all others do."""

from __future__ import annotations

import os
from pathlib import Path

from inputs.bad_inputs import Case

GOOD = """\
name: llm-7
kind: train
image: us-docker.pkg.dev/p/repo/trainer:v1
command: ["python", "train.py"]
accelerator: {type: h100, count: 8}
nodes: 2
work: {steps: 1000, seconds_per_step: 1.7}
deadline: 72h
tolerance: {interruptible: true, longest_wait: 10m}
state: {size: 14GB, checkpoints: "gs://bucket/runs/llm-7", region: us-central1}
location: {region: us-central1, zones: [us-central1-a]}
budget: 500
capacity: auto
"""
MERGES = "a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: [*a, *a]}}\n" for n in range(60))
DOS = b"\xef\xbb\xbf" + GOOD.replace("count: 8", "count: x").replace("\n", "\r\n").encode()


def field(name: str, old: str, new: str, says: str, **more: object) -> Case:
    """The good file with one thing in it changed."""
    assert old in GOOD, old
    return whole(name, GOOD.replace(old, new), says, **more)


def whole(name: str, text: str | bytes, says: str, **more: object) -> Case:
    """Another file altogether."""
    return Case(f"spec-{name}", ("plan", "-f", "stayfast.yaml"), says, files={"stayfast.yaml": text}, **more)  # type: ignore[arg-type]


def _laughs(levels: int) -> str:
    rows = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, levels)]
    return "\n".join(rows) + "\n"


def _loop(world: Path) -> None:
    (world / "stayfast.yaml").symlink_to("stayfast.yaml")


def _folder(world: Path) -> None:
    (world / "stayfast.yaml").mkdir()


NAMES = [
    field("name-capital", "name: llm-7", "name: LLM", "stayfast.yaml:1:7: name: 'LLM' is not a valid name"),
    field("name-number", "name: llm-7", "name: 7", "stayfast.yaml:1:7: name: 7 is not a text"),
    field("name-null", "name: llm-7", "name:", "name: None is not a text"),
    field("name-empty", "name: llm-7", "name: ''", "name: '' is not a text"),
    field("name-blank", "name: llm-7", "name: '   '", "is not a text"),
    field("name-long", "name: llm-7", f"name: {'a' * 300}", "is not a valid name"),
    field("name-list", "name: llm-7", "name: [a]", "name: sequence is not a text"),
    field("name-newline", "name: llm-7", 'name: "a\\nb"', "is not a valid name"),
    field("name-trailing-newline", "name: llm-7", 'name: "llm\\n"', "is not a valid name"),
    field("name-escape", "name: llm-7", 'name: "\\e[2Jx"', "is not a valid name"),
    field("name-nul", "name: llm-7", 'name: "a\\0b"', "is not a text"),
    field("name-dash-end", "name: llm-7", "name: llm-", "is not a valid name"),
    field("name-boolean", "name: llm-7", "name: yes", "name: True is not a text"),
    field("name-missing", "name: llm-7\n", "", "name is missing"),
    field("kind-wrong", "kind: train", "kind: trian", "write train"),
    field("kind-missing", "kind: train\n", "", "kind is missing"),
    field("kind-list", "kind: train", "kind: [train]", "is not one of train, batch, sweep, serve"),
    field("image-space", "trainer:v1", "trainer :v1", "is not a valid image"),
    field("image-missing", "image: us-docker.pkg.dev/p/repo/trainer:v1\n", "", "image is missing"),
    field("unknown-field", "nodes: 2", "node: 2", "there is no such field; write nodes"),
    field("unknown-field-far", "nodes: 2", "zebra: 2", "there is no such field; choose from name"),
    field("unknown-field-escape", "nodes: 2", '"\\e]0;x\\a": 2', "there is no such field"),
    field("unknown-field-bidi", "nodes: 2", '"\\u202enodes": 2', "there is no such field"),
]

COMMANDS = [
    field("command-text", '["python", "train.py"]', "python train.py", "is not a list of texts"),
    field("command-empty", '["python", "train.py"]', "[]", "is not a list of texts"),
    field("command-number", '["python", "train.py"]', "[python, 7]", "command.1: 7 is not a text"),
    field("command-nested", '["python", "train.py"]', "[[python]]", "command.0: sequence is not a text"),
    field("command-nul", '["python", "train.py"]', '["python", "a\\0"]', "command.1"),
    field("command-mapping", '["python", "train.py"]', "{python: x}", "is not a list of texts"),
]

NUMBERS = [
    field("count-zero", "count: 8", "count: 0", "accelerator.count: 0 is not a whole number from 1"),
    field("count-negative", "count: 8", "count: -8", "is not a whole number from 1"),
    field("count-half", "count: 8", "count: 0.5", "is not a whole number from 1"),
    field("count-boolean", "count: 8", "count: true", "accelerator.count: True is not a whole number"),
    field("count-text", "count: 8", "count: '8'", "accelerator.count: '8' is not a whole number"),
    field("count-nan", "count: 8", "count: .nan", "is not a whole number"),
    field("count-huge", "count: 8", "count: 1e999", "is not a whole number"),
    field("count-5000-digits", "count: 8", f"count: {'9' * 5000}", "is not a whole number"),
    field("count-not-offered", "count: 8", "count: 7", "no machine has 7 h100"),
    field("count-octal", "count: 8", "count: 010000", "no machine has 4096 h100"),
    field("nodes-zero", "nodes: 2", "nodes: 0", "nodes: 0 is not a whole number from 1"),
    field("nodes-inf", "nodes: 2", "nodes: .inf", "nodes: inf is not a whole number"),
    field("nodes-sexagesimal", "nodes: 2", "nodes: 1:30", "nodes: '1:30' is not a whole number"),
    field("nodes-2-to-64", "nodes: 2", "nodes: 18446744073709551616", "nodes: 1.8446744073709552e+19 is not a whole"),
    field("steps-boolean", "steps: 1000", "steps: on", "work.steps: True is not a whole number"),
    field("steps-negative", "steps: 1000", "steps: -1", "work.steps: -1 is not a whole number from 1"),
    field("seconds-zero", "seconds_per_step: 1.7", "seconds_per_step: 0", "0 is not a number above 0"),
    field("seconds-nan", "seconds_per_step: 1.7", "seconds_per_step: .NaN", "nan is not a number above 0"),
    field("seconds-infinite", "seconds_per_step: 1.7", "seconds_per_step: 1e999", "is not a number above 0"),
    field("seconds-text", "seconds_per_step: 1.7", "seconds_per_step: 1.7s", "'1.7s' is not a number above 0"),
    field("budget-negative", "budget: 500", "budget: -1", "budget: -1 is not a number above 0"),
    field("budget-currency", "budget: 500", "budget: $500", "budget: '$500' is not a number above 0"),
    field("budget-boolean", "budget: 500", "budget: no", "budget: False is not a number above 0"),
    field("budget-null", "budget: 500", "budget: ~", "budget: None is not a number above 0"),
]

DURATIONS = [
    field("deadline-number", "deadline: 72h", "deadline: 72", "deadline: 72 is not a duration such as 90m"),
    field("deadline-words", "deadline: 72h", "deadline: three days", "is not a duration such as 90m, 48h or 3d"),
    field("deadline-negative", "deadline: 72h", "deadline: -72h", "is not a duration"),
    field("deadline-zero", "deadline: 72h", "deadline: 0h", "is no time at all"),
    field("deadline-date", "deadline: 72h", "deadline: 2038-01-19", "is not a duration"),
    field("deadline-impossible-date", "deadline: 72h", "deadline: 2026-13-45", "is not a duration"),
    field("deadline-exponent", "deadline: 72h", "deadline: 1e999h", "is not a duration"),
    field("deadline-arabic-digits", "deadline: 72h", "deadline: ٧٢h", "is not a duration"),
    field("deadline-newline", "deadline: 72h", 'deadline: "72h\\n"', "is not a duration"),
    field("wait-list", "longest_wait: 10m", "longest_wait: [10m]", "is not a duration"),
    field("interruptible-text", "interruptible: true", "interruptible: maybe", "is neither true nor false"),
    field("interruptible-one", "interruptible: true", "interruptible: 1", "1 is neither true nor false"),
    field("size-no-unit", "size: 14GB", "size: 14", "14 is not a size such as 500MB"),
    field("size-bits", "size: 14GB", "size: 14Gb", "is not a size such as 500MB or 14GiB"),
    field("size-negative", "size: 14GB", "size: -14GB", "is not a size"),
    field("size-huge", "size: 14GB", f"size: {'9' * 40}TB", "is not a size"),
]

PLACES = [
    field("url-http", '"gs://bucket/runs/llm-7"', "https://bucket/x", "is not a valid checkpoints"),
    field("url-no-bucket", '"gs://bucket/runs/llm-7"', '"gs:///x"', "is not a valid checkpoints"),
    field("url-space", '"gs://bucket/runs/llm-7"', '"gs://bucket/a b"', "is not a valid checkpoints"),
    field("url-relative", '"gs://bucket/runs/llm-7"', "./run", "is not a valid checkpoints"),
    field("region-zone", "{region: us-central1, zones", "{region: us-central1-a, zones", "is not a valid region"),
    field("zone-elsewhere", "zones: [us-central1-a]", "zones: [europe-west4-b]", "is not in us-central1"),
    field("zone-text", "zones: [us-central1-a]", "zones: us-central1-a", "is not a list of texts"),
    field("region-unknown", "location: {region: us-central1", "location: {region: mars-north1", "mars-north1"),
    field("accelerator-unknown", "type: h100", "type: h1000", "is not in the catalogue; write h100"),
    field("accelerator-nothing-like-it", "type: h100", "type: zzzz", "is not in the catalogue; choose from"),
    field("accelerator-text", "{type: h100, count: 8}", "h100", "is not a section"),
    field("work-nothing", "{steps: 1000, seconds_per_step: 1.7}", "{}", "does not say how much work there is"),
    field("work-twice", "{steps: 1000,", "{hours: 3, steps: 1000,", "does not say how much work there is"),
    field("work-half", "{steps: 1000, seconds_per_step: 1.7}", "{steps: 1000}", "does not say how much work there is"),
    field("work-missing", "work: {steps: 1000, seconds_per_step: 1.7}\n", "", "work is missing for kind train"),
    field("capacity-wrong", "capacity: auto", "capacity: preemptible", "is not one of auto, spot"),
    field("queue-url", "capacity: auto", "queue: redis://x", "is not a valid queue"),
    field("sink-url", "capacity: auto", "sink: /tmp/x", "is not a valid sink"),
    field("service-account", "capacity: auto", "service_account: me@example.com", "is not a valid service_account"),
    field("volume-kind", "capacity: auto", "volume: {kind: floppy}", "is not one of filestore"),
    field("volume-path", "capacity: auto", "volume: {kind: gcsfuse, path: ckpt}", "is not a valid path"),
    field("cluster-version", "capacity: auto", "cluster: {version: latest}", "is not a valid version"),
    field("cluster-version-float", "capacity: auto", "cluster: {version: 1.30}", "1.3 is not a text"),
    field("namespace-path", "capacity: auto", "namespace: ../etc", "is not a valid namespace"),
    field(
        "several-mistakes-at-once",
        "count: 8}\nnodes: 2",
        "count: 0}\nnodes: x",
        "nodes: 'x' is not a whole number",
        lines=2,
    ),
]

TEXTS = [
    whole("empty", "", "one workload is expected"),
    whole("blank", "\n\n  \n", "one workload is expected"),
    whole("comment-only", "# later\n", "one workload is expected"),
    whole("null-document", "---\n", "a workload is a mapping of fields"),
    whole("list", "- a\n", "a workload is a mapping of fields"),
    whole("scalar", "hello\n", "a workload is a mapping of fields"),
    whole("two-documents", GOOD + "---\n" + GOOD, "one workload is expected, 2 documents are there"),
    whole("duplicate-key", GOOD + "name: again\n", 'duplicate key "name", first written on line 1'),
    whole("duplicate-nested", GOOD.replace("count: 8", "count: 8, count: 4"), 'duplicate key "count"'),
    whole("tab", "name:\tx\n\tkind: y\n", "stayfast.yaml:2:1: not YAML"),
    whole("unclosed", "name: [a\n", "not YAML"),
    whole("unclosed-quote", 'name: "a\n', "not YAML"),
    whole("deep-lists", "- " * 60_000, "nested more than 100 levels deep"),
    whole("deep-brackets", "[" * 100_000, "nested more than 100 levels deep"),
    whole("deep-braces", "{a: " * 50_000, "nested more than 100 levels deep"),
    whole("laughs", _laughs(40), "more than 1,000,000 values once aliases are expanded"),
    whole("merge-bomb", MERGES, "more than 100 aliases"),
    whole("alias-itself", "a: &a [*a]\n", "refers to the collection it stands in"),
    whole("alias-nowhere", "a: *b\n", "the alias *b refers to no anchor"),
    whole("huge", "a: b\n" * 700_000, "the file is larger than 3,000,000 characters"),
    whole("binary", bytes(range(256)) * 20, "is not UTF-8 text"),
    whole("utf-16", GOOD.encode("utf-16"), "is not UTF-8 text"),
    whole("latin-1", GOOD.replace("llm-7", "é").encode("latin-1"), "is not UTF-8 text"),
    whole("nul", GOOD.replace("llm-7\n", "llm\0\n", 1), "not YAML"),
    whole("escape-byte", GOOD.replace("llm-7\n", "l\x1b[2Jm\n", 1), "not YAML"),
    whole("surrogate", b"name: \xed\xa0\x80\n", "is not UTF-8 text"),
    field("python-tag", "name: llm-7", "name: !!python/object/apply:os.system [id]", "sequence is not a text"),
    whole("json-with-comma", '{"name": "x",,}', "not YAML"),
    whole("directives", "%TAG ! tag:x,2000:\n" * 200 + "---\n" + GOOD, "stayfast.yaml:1:1"),
    whole("key-list", "? [a, b]\n: c\n", "a key that is a list or mapping"),
    whole("key-null", "~: c\n", "a key that is empty"),
    whole("bom-and-crlf-mistake", DOS, "stayfast.yaml:5:34"),
]  # fmt: skip

FILES = [
    Case("spec-none-named", ("plan",), "no workload is named"),
    Case("spec-missing", ("plan", "-f", "stayfast.yaml"), "stayfast.yaml cannot be read (No such file or directory)"),
    Case("spec-empty-name", ("plan", "-f", ""), "no workload is named"),
    Case("spec-folder", ("plan", "-f", "stayfast.yaml"), "stayfast.yaml cannot be read (Is a directory)", make=_folder),
    Case("spec-link-loop", ("plan", "-f", "stayfast.yaml"), "Too many levels of symbolic links", make=_loop),
    Case("spec-pipe", ("plan", "-f", "/dev/stdin"), "/dev/stdin:2:1: not YAML", shell='echo "name: [" | "$@"'),
    Case("spec-device", ("plan", "-f", "/dev/zero"), "/dev/zero is larger than 12 MiB"),
    Case("spec-long-name", ("plan", "-f", "x" * 5000), "File name too long"),
    Case("spec-newline-name", ("plan", "-f", "a\nb\x1b[2J"), "cannot be read"),
    Case("spec-not-utf8-name", ("plan", "-f", os.fsdecode(b"\xff\xfe.yaml")), "cannot be read"),
    Case("spec-render-missing", ("render", "-f", "no.yaml"), "no.yaml cannot be read"),
    Case("spec-submit-missing", ("submit", "-f", "no.yaml", "--dry-run=client"), "no.yaml cannot be read"),
    Case(
        "spec-denied",
        ("plan", "-f", "stayfast.yaml"),
        "stayfast.yaml cannot be read (Permission denied)",
        files={"stayfast.yaml": GOOD},
        make=lambda world: (world / "stayfast.yaml").chmod(0),
        unprivileged=True,
    ),
]

CASES = NAMES + COMMANDS + NUMBERS + DURATIONS + PLACES + TEXTS + FILES
