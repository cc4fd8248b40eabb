"""Runs in a store that was damaged, is newer than we are, or never was one; programs under exec, rehearse and doctor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from inputs.bad_inputs import Case

URL = "file://{world}/run"
LS, VERIFY, PRUNE, BILL = (
    ("checkpoints", "ls", URL),
    ("checkpoints", "verify", URL),
    ("checkpoints", "prune", URL),
    ("bill", URL),
)


def make_run(world: Path) -> None:
    """A finished run of two steps with a tracked state."""
    import stayfast

    before = dict(os.environ)
    os.environ.update(STAYFAST_METADATA="off", STAYFAST_OUTCOME_FILE=os.devnull)
    try:
        with stayfast.run(f"file://{world}/run", total_steps=2, rng=False) as run:
            run.track(state=(lambda: {"bytes": b"x" * 9000}, lambda _: None))
            for _ in run.steps():
                pass
    finally:
        os.environ.clear()
        os.environ.update(before)


def head(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """A run whose record was changed."""

    def make(world: Path) -> None:
        make_run(world)
        path = world / "run" / "HEAD.json"
        path.write_bytes(change(path.read_bytes()))

    return make


def signed(**changes: object) -> Callable[[bytes], bytes]:
    """The record with other values and a checksum that fits: written by somebody else, not damaged."""

    def change(data: bytes) -> bytes:
        from stayfast.runtime.run_record import record as heads

        body = json.loads(data)
        body |= changes
        body.pop("checksum")
        return json.dumps(body | {"checksum": heads._digest(body)}).encode()

    return change


def part(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """A run of which one stored file was changed."""

    def make(world: Path) -> None:
        make_run(world)
        files = sorted(path for path in (world / "run" / "checkpoints").rglob("*") if path.is_file())
        change(files[0])

    return make


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def run_case(name: str, argv: tuple[str, ...], says: str, make: Callable[[Path], None], **more: object) -> Case:
    """Looked at, and left as it is."""
    return Case(f"run-{name}", argv, says, make=make, **more)  # type: ignore[arg-type]


def _head_folder(world: Path) -> None:
    (world / "run" / "HEAD.json").mkdir(parents=True)


def _head_loop(world: Path) -> None:
    (world / "run").mkdir()
    (world / "run" / "HEAD.json").symlink_to("HEAD.json")


def _closed(world: Path) -> None:
    make_run(world)
    (world / "run" / "HEAD.json").chmod(0)


RECORDS = [
    run_case("record-empty", LS, "HEAD.json", head(lambda _: b""), code=1),
    run_case("record-flipped", LS, "HEAD.json", head(lambda data: data.replace(b'"step"', b'"stop"')), code=1),
    run_case("record-truncated", LS, "HEAD.json", head(lambda data: data[:-20]), code=1),
    run_case("record-binary", LS, "HEAD.json", head(lambda _: bytes(range(256))), code=1),
    run_case("record-list", LS, "HEAD.json", head(lambda _: b"[]"), code=1),
    run_case("record-deep", LS, "HEAD.json", head(lambda _: b"[" * 100_000), code=1),
    run_case("record-5000-digits", LS, "HEAD.json", head(lambda _: b'{"format": ' + b"9" * 5000 + b"}"), code=1),
    run_case("record-huge", LS, "HEAD.json", head(lambda _: b" " * (5 << 20)), code=1),
    run_case("record-newer", LS, "has format 999, this stayfast reads 1; upgrade", head(signed(format=999)), code=1),
    run_case("record-fields", BILL, "has the wrong fields", head(signed(attempts=7)), code=1),
    run_case("record-doubled", BILL, "HEAD.json", head(lambda data: data + data), code=1),
    run_case("record-is-a-folder", LS, "there is no run under", _head_folder),
    run_case("record-link-loop", LS, "HEAD.json", _head_loop, code=3),
    run_case("record-denied", LS, "permission denied", _closed, code=3, unprivileged=True),
    run_case("prune-damaged-record", PRUNE, "HEAD.json", head(lambda data: data[:-1] + b"!"), code=1),
    run_case("verify-damaged-part", VERIFY, "does not match the sha256", part(_flip), code=1, on_stdout=True),
    run_case("verify-missing-part", VERIFY, "missing", part(Path.unlink), code=1, on_stdout=True),
    run_case("verify-no-such-step", (*VERIFY, "--step", "77"), "no checkpoint of step 77 is committed", make_run),
    run_case("verify-step-text", (*VERIFY, "--step", "x"), "invalid int value: 'x'", make_run),
    run_case("bill-price", (*BILL, "--usd-per-hour", "nan"), "'nan' is not a number from 0", make_run),
    run_case("bill-plan-missing", (*BILL, "--plan", "no.json"), "no.json cannot be read", make_run),
    Case("run-action", ("checkpoints", "rm", URL), "invalid choice: 'rm'"),
    Case("run-no-url", ("checkpoints", "ls"), "the following arguments are required: URL"),
    Case("run-empty-folder", LS, "there is no run under", files={"run/x": ""}),
    Case("run-garbage-folder", PRUNE, "nothing was deleted", code=1, files={"run/checkpoints/x/part": b"\0" * 99}),
    Case(
        "run-clock-1970",
        LS,
        "STEP",
        code=0,
        make=make_run,
        now=0.0,
        on_stdout=True,
    ),
    Case("run-clock-2038", LS, "STEP", code=0, make=make_run, now=2.0**31, on_stdout=True),
    Case("run-clock-9999", LS, "STEP", code=0, make=make_run, now=253402300799.0, on_stdout=True),
    Case("prices-clock-1970", ("prices", "show"), "US dollars", code=0, now=0.0, on_stdout=True),
] + [
    run_case(f"bill-plan-{name}", (*BILL, "--plan", "plan.json"), "plan.json is not a plan", make_run, files={"plan.json": text})
    for name, text in {
        "list": "[]", "empty": "", "deep": "[" * 99_999, "no-choice": '{"options": [], "choice": null}',
        "nan": '{"choice": "spot", "options": [{"class": "spot", "cost_usd": {"p50": NaN, "p95": 1}}]}',
    }.items()
]  # fmt: skip


def execute(name: str, options: tuple[str, ...], says: str, **more: object) -> Case:
    """What is wrong before the program starts."""
    return Case(f"exec-{name}", ("exec", *options), says, **more)  # type: ignore[arg-type]


def variable(name: str, value: str, says: str) -> Case:
    """A variable that cannot be used; nothing is started."""
    return Case(f"env-{name}={value[:20]}", ("exec", "--", "touch", "started"), says, env={name: value})


PROGRAMS = [
    execute("no-command", (), "there is no command to run"),
    execute("dashes-only", ("--",), "there is no command to run"),
    execute("sync-no-url", ("--sync", "ckpt", "--", "true"), "ckpt"),
    execute("sync-no-folder", ("--sync", "=file:///x", "--", "true"), "=file:///x"),
    execute("sync-bad-url", ("--sync", "ckpt=ftp://x", "--", "true"), "has no known scheme"),
    execute("sync-bracket", ("--sync", "ckpt=gs://[", "--", "true"), "gs://["),
    execute("sync-keep-none", ("--sync", "c=file://{world}/s", "--sync-keep", "0", "--", "true"), "keeps nothing"),
    execute("sync-keep-text", ("--sync-keep", "many", "--", "true"), "invalid int value"),
    execute("both-done", ("--done-file", "a", "--done-check", "b", "--", "true"), "not allowed with argument"),
    execute("sync-file", ("--sync", "plain=file://{world}/s", "--", "true"), "plain", files={"plain": "x"}),
    execute("missing-program", ("--", "no-such-program"), "no-such-program", code=127, own_process=True),
    execute("not-executable", ("--", "./plain"), "plain", code=126, own_process=True, files={"plain": "x"}),
    execute("folder-as-program", ("--", "."), ".", code=126, own_process=True),
    variable("STAYFAST_GRACE_SECONDS", "soon", "STAYFAST_GRACE_SECONDS='soon' is not a number"),
    variable("STAYFAST_GRACE_SECONDS", "-1", "must be zero or more"),
    variable("STAYFAST_GRACE_SECONDS", "nan", "must be zero or more"),
    variable("STAYFAST_GRACE_SECONDS", "1e999", "must be zero or more"),
    variable("STAYFAST_SHUTDOWN_GRACE_CRITICAL_SECONDS", "60", "is more than STAYFAST_SHUTDOWN_GRACE_SECONDS=30"),
    variable("STAYFAST_MARGIN_SECONDS", "\x1b[2J", "is not a number"),
    variable("STAYFAST_INTERRUPTED_CODE", "256", "must be between 0 and 255"),
    variable("STAYFAST_INTERRUPTED_CODE", "7.5", "is not a whole number"),
    variable("STAYFAST_INTERRUPTED_CODE", "9" * 5000, "is not a whole number"),
    variable("STAYFAST_EXTRA_SIGNAL", "SIGKILL", "is not a signal that can be caught"),
    variable("STAYFAST_EXTRA_SIGNAL", "SIG_IGN", "is not a signal that can be caught"),
    variable("STAYFAST_EXTRA_SIGNAL", "15", "is not a signal that can be caught"),
    variable("STAYFAST_LEASE_ENDS_AT", "tomorrow", "is not an RFC 3339 instant"),
    variable("STAYFAST_LEASE_ENDS_AT", "2026-13-45T00:00:00Z", "is not an RFC 3339 instant"),
    variable("STAYFAST_LEASE_ENDS_AT", "2026-01-01T00:00:00", "is not an RFC 3339 instant"),
    variable("STAYFAST_LEASE_ENDS_AT", "99999-01-01T00:00:00Z", "is not an RFC 3339 instant"),
    variable("STAYFAST_LEASE_ENDS_AT", "2026-01-01T00:00:00+99:00", "is not an RFC 3339 instant"),
    variable("STAYFAST_METADATA", "maybe", "is not one of auto, on, off"),
    variable("GCE_METADATA_HOST", "http://x/", "is not a host"),
    variable("GCE_METADATA_HOST", "x:99999", "is not a host"),
    variable("STAYFAST_CAPACITY", "preemptible", "is not one of spot, flex-start"),
    variable("STAYFAST_USD_PER_HOUR", "free", "is not a number"),
    variable("STAYFAST_MAX_STALLED_ATTEMPTS", "0", "must be at least 1"),
    variable("STAYFAST_METRICS_PORT", "70000", "must be between 0 and 65535"),
    variable("STAYFAST_CHECKPOINT_SECONDS", "daily", "is not a number"),
    variable("JOB_COMPLETION_INDEX", "../x", "is not a completion index"),
    variable("JOB_COMPLETION_INDEX", "²", "is not a completion index"),
    variable("RANK", "3", "RANK=3 is not below WORLD_SIZE=1"),
    variable("WORLD_SIZE", "0", "must be at least 1"),
]


def rehearse(name: str, options: tuple[str, ...], says: str, **more: object) -> Case:
    """Options that make no sense, before anything is copied."""
    return Case(f"rehearse-{name}", ("rehearse", *options), says, **more)  # type: ignore[arg-type]


REHEARSALS = [
    rehearse("no-command", (), "there is no command to rehearse"),
    rehearse("kills-zero", ("--kills", "0", "--", "true"), "--kills 0 is too small"),
    rehearse("kills-text", ("--kills", "x", "--", "true"), "invalid int value: 'x'"),
    rehearse("trials-negative", ("--trials=-3", "--", "true"), "--trials -3 is too small"),
    rehearse("grace-nan", ("--grace", "nan", "--", "true"), "--grace nan is no length"),
    rehearse("grace-infinite", ("--grace", "inf", "--", "true"), "--grace inf is no length"),
    rehearse("tolerance-negative", ("--tolerance=-1", "--", "true"), "--tolerance -1.0 is no length"),
    rehearse("kinds-unknown", ("--kinds", "term,meteor", "--", "true"), "--kinds meteor is not known"),
    rehearse("kinds-empty", ("--kinds", ",", "--", "true"), "--kinds is empty"),
    rehearse("only-kill", ("--only-kill", "first", "--", "true"), "is no list of numbers"),
    rehearse("records-no-key", ("--records", "out.jsonl", "--", "true"), "--records and --key belong together"),
    rehearse("html-nowhere", ("--html", "no/x.html", "--", "true"), "no/x.html cannot be written (No such file"),
    rehearse("junit-folder", ("--junit", ".", "--", "true"), ". cannot be written (Is a directory)"),
    rehearse("ephemeral-outside", ("--ephemeral", "../x", "--", "true"), "../x"),
    rehearse("missing-program", ("--", "no-such-program"), "no-such-program", own_process=True),
    Case("doctor-nothing", ("doctor",), "give one of: a command, --image-entrypoint, -f"),
    Case("doctor-two", ("doctor", "-f", "x", "--", "true"), "give one of"),
    Case("doctor-grace", ("doctor", "--grace", "x", "--", "true"), "--grace"),
    Case("doctor-grace-nan", ("doctor", "--grace", "nan", "--", "true"), "--grace"),
    Case("doctor-open-quote", ("doctor", "--image-entrypoint", 'sh "x'), "is not a command: No closing quotation"),
    Case("doctor-empty", ("doctor", "--image-entrypoint", " "), "--image-entrypoint is empty"),
    Case("doctor-missing", ("doctor", "-f", "no.yaml"), "no.yaml"),
    Case("doctor-folder", ("doctor", "-f", "."), "Is a directory"),
    Case("doctor-no-container", ("doctor", "-f", "x.yaml"), "holds no container", files={"x.yaml": "kind: Job\n"}),
    Case("doctor-not-yaml", ("doctor", "-f", "x.yaml"), "x.yaml:2:1: not YAML", files={"x.yaml": "a: [\n"}),
    Case("doctor-binary", ("doctor", "-f", "x.yaml"), "x.yaml", files={"x.yaml": bytes(range(256))}),
    Case("doctor-odd-types", ("doctor", "-f", "x.yaml"), "holds no container", files={"x.yaml": "spec: [{containers: 7}]\n"}),
    Case("doctor-missing-program", ("doctor", "--", "no-such-program"), "no-such-program", own_process=True),
    Case("demo-items", ("demo", "--items", "0"), "--items 0 is too small"),
    Case("demo-kills", ("demo", "--kills=-1"), "--kills -1 is too small"),
    Case("init-kind", ("init", "deploy", "x"), "invalid choice: 'deploy'"),
    Case("init-taken", ("init", "train", "."), "has stayfast.yaml already", files={"stayfast.yaml": ""}),
    Case("init-file", ("init", "train", "plain"), "plain cannot be written", files={"plain": "x"}),
    Case("init-long-name", ("init", "train", "x" * 300), "File name too long"),
    Case("completion-shell", ("completion", "cmd"), "invalid choice: 'cmd'"),
    Case("command-unknown", ("rendr",), "there is no command 'rendr'; type: stayfast render"),
    Case("command-escape", ("\x1b[2J",), "there is no command"),
    Case("command-surrogate", (os.fsdecode(b"\xff"),), "there is no command"),
    Case("option-surrogate", ("plan", "--" + os.fsdecode(b"\xff")), "unrecognized arguments"),
    Case("option-newline", ("plan", "--a\nb"), "unrecognized arguments"),
    Case("option-dashes", ("queue", "status", "--queue=--"), "--queue needs a value, and -- is none"),
    Case("option-dashes-of-a-cluster", ("status", "--kubeconfig=--"), "--kubeconfig needs a value"),
    Case("output-unknown", ("plan", "--output", "xml"), "invalid choice: 'xml'"),
]  # fmt: skip


def work(name: str, task: str, says: str, *options: str, source: str = "", **more: object) -> Case:
    """A task that cannot be run; the in-pod program has started by then where the code is 1."""
    argv = ("work", task, "--queue", "sqlite://{world}/w.db", "--sink", "sqlite://{world}/w.db?table=t", *options)
    files = {"tasks.py": source, "bad_tasks.py": "def broken(:\n"}
    return Case(
        f"work-{name}", argv, says, files=files, own_process=True, leaves=("w.db", "__pycache__"), lines=3, **more
    )  # type: ignore[arg-type]


WORKERS = [
    work("no-colon", "tasks", "tasks"),
    work("empty-name", "tasks:", "tasks:"),
    work("path", "./tasks.py:x", "tasks"),
    work("chunk-zero", "tasks:x", "--chunk is 0", "--chunk", "0"),
    work("workers-zero", "tasks:x", "--workers is 0", "--workers", "0"),
    work("backoff-nan", "tasks:x", "--backoff is nan", "--backoff", "nan"),
    work("no-module", "nosuch:x", "nosuch", code=1),
    work("no-function", "tasks:x", "tasks", code=1),
    work("syntax-error", "bad_tasks:broken", "bad_tasks", code=1),
    work("not-a-task", "tasks:x", "tasks:x", code=1, source="x = 7\n"),
    work("import-raises", "tasks:x", "tasks", code=1, source="raise RuntimeError('at import')\n"),
    work("import-exits", "tasks:x", "tasks cannot be imported: SystemExit: 3", code=1, source="raise SystemExit(3)\n"),
]

CASES = RECORDS + PROGRAMS + REHEARSALS + WORKERS
