"""What the machine does to a command: closed streams, full and read-only disks, no home, no folder, no permission."""

from __future__ import annotations

from pathlib import Path

from inputs.bad_inputs import Case
from inputs.cases.runs import make_run
from inputs.cases.spec import GOOD

ITEMS = '{"key": "a"}\n'
WRONG = GOOD.replace("count: 8", "count: x")
ENQUEUE = ("enqueue", "--queue", "sqlite://{world}/w.db", "-")

# A disk of 40 kB in a mount namespace of its own, with what is to survive on it. The listing before and after must be
# the same: whatever could not be written has left nothing, and what was there is whole.
FULL_DISK = """\
mkdir disk && mount -t tmpfs -o size=40k tmpfs disk || exit 99
cp keep.txt disk/ && head -c 60000 /dev/zero > disk/filler 2>/dev/null
find disk -type f ! -name '*-wal' ! -name '*-shm' ! -empty -exec sha256sum {} + | sort > before.txt
"$@"; code=$?
find disk -type f ! -name '*-wal' ! -name '*-shm' ! -empty -exec sha256sum {} + | sort > after.txt
diff before.txt after.txt >&2 || exit 98
exit $code
"""
UNSHARED = f"exec unshare -m sh -c '{FULL_DISK.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}' sh \"$@\""
READ_ONLY = UNSHARED.replace('"$@"; code', 'mount -o remount,ro disk; "$@"; code', 1)


def stream(name: str, argv: tuple[str, ...], says: str, shell: str, code: int = 2, **more: object) -> Case:
    """In a shell that bends the standard streams."""
    return Case(f"stream-{name}", argv, says, code, shell=shell, **more)  # type: ignore[arg-type]


def disk(name: str, argv: tuple[str, ...], says: str, shell: str = UNSHARED, code: int = 2, **more: object) -> Case:
    """On a disk without space."""
    files = {"keep.txt": "old\n", **more.pop("files", {})}  # type: ignore[dict-item]
    leaves = ("disk", "before.txt", "after.txt")
    return Case(f"disk-{name}", argv, says, code, files, shell=shell, root_only=True, leaves=leaves, **more)  # type: ignore[arg-type]


def denied(name: str, argv: tuple[str, ...], says: str, code: int = 2, **more: object) -> Case:
    """In a folder that may only be read."""
    return Case(f"denied-{name}", argv, says, code, unprivileged=True, make=_shut, **more)  # type: ignore[arg-type]


def _shut(world: Path) -> None:
    (world / "shut").mkdir()
    (world / "shut").chmod(0o500)


def _dark(world: Path) -> None:
    make_run(world)
    (world / "run" / "checkpoints").chmod(0)


STREAMS = [
    stream("stdin-closed-enqueue", ENQUEUE, "standard input is closed", 'exec "$@" <&-', leaves=("w.db",)),
    stream("stdin-closed-lint", ("lint", "-"), "standard input is closed", 'exec "$@" <&-'),
    stream("stdin-closed-doctor", ("doctor", "-f", "-"), "standard input is closed", 'exec "$@" <&-'),
    stream("stdin-closed-plan", ("plan", "-f", "h.yaml"), "h.yaml:5:34", 'exec "$@" <&-', files={"h.yaml": WRONG}),
    stream("stdout-closed-help", ("--help",), "", 'exec "$@" >&-', 0, cure=False),
    stream("stdout-closed-bad-input", ("plan", "-f", "no"), "no cannot be read", 'exec "$@" >&-'),
    stream("stdout-closed-lint", ("lint", "a.yaml"), "", 'exec "$@" >&-', 1, files={"a.yaml": "{"}, on_stdout=True),
    stream("stdout-closed-json", ("prices", "show", "--json"), "", 'exec "$@" >&-', 0),
    stream("stdout-full", ("--help",), "the output could not be written: No space left", 'exec "$@" >/dev/full', 1, cure=False),
    stream("stdout-full-prices", ("prices", "show", "--json"), "could not be written", 'exec "$@" >/dev/full', 1, cure=False),
    stream("stdout-full-lint", ("lint", "--rules"), "could not be written", 'exec "$@" >/dev/full', 1, cure=False),
    stream("reader-leaves", ("lint", "--rules"), "", '"$@" | head -c 1 >/dev/null', 0),
    stream("reader-is-gone", ("prices", "show"), "", 'mkfifo p; exec 3<>p; exec 4>p; exec 3<&-; rm p; exec "$@" >&4', 0),
    stream("stderr-closed", ("plan", "-f", "no"), "", 'exec "$@" 2>&-', on_stdout=True),
    stream("stderr-full", ("plan", "-f", "no"), "", 'exec "$@" 2>/dev/full', on_stdout=True),
    stream("all-closed", ("plan", "-f", "no"), "", 'exec "$@" <&- >&- 2>&-', on_stdout=True),
    stream("ascii-locale", ("plan", "-f", "ü.yaml"), "cannot be read", 'LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 exec "$@"'),
    stream("latin-1-output", ("plan", "-f", "h.yaml"), "is not a section", 'PYTHONIOENCODING=latin-1 exec "$@"', files={"h.yaml": GOOD.replace("{type: h100, count: 8}", '"日本"')}),
    stream("ascii-output-of-results", ("lint", "a.yaml"), "", 'LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONIOENCODING=ascii exec "$@"', 1, files={"a.yaml": "é: {"}, on_stdout=True),
]  # fmt: skip

SURROUNDINGS = [
    Case("place-no-home", ("plan", "-f", "no"), "no cannot be read", env={"HOME": None}, own_process=True),
    Case("place-no-home-status", ("status",), "there is no kubeconfig", 3, env={"HOME": None}, own_process=True),
    Case("place-home-is-a-file", ("plan", "-f", "no"), "no cannot be read", env={"HOME": "/dev/null"}, own_process=True),
    Case("place-no-such-user", ("plan", "-f", "no"), "no cannot be read", shell='unset HOME; exec setpriv --reuid=54321 --clear-groups "$@"', root_only=True),
    Case("place-no-such-user-refresh", ("prices", "refresh"), "there is no home directory", env={"STAYFAST_BILLING_API_KEY": "k"}, shell='unset HOME; exec setpriv --reuid=54321 --clear-groups "$@"', root_only=True),
    Case("place-cwd-deleted-plan", ("plan", "-f", "h.yaml"), "h.yaml cannot be read", shell='mkdir d; cd d; rmdir ../d; exec "$@"'),
    Case("place-cwd-deleted-init", ("init", "train", "."), "check the folder", shell='mkdir d; cd d; rmdir ../d; exec "$@"'),
    Case("place-cwd-deleted-lint", ("lint", "k8s"), "there is no file or folder k8s", shell='mkdir d; cd d; rmdir ../d; exec "$@"'),
    Case("place-cwd-deleted-rehearse", ("rehearse", "--", "true"), "folder", shell='mkdir d; cd d; rmdir ../d; exec "$@"'),
    Case("place-cwd-deleted-enqueue", ("enqueue", "--queue", "sqlite://./w.db", "x"), "folder", shell='mkdir d; cd d; rmdir ../d; exec "$@"'),
    Case("place-cwd-deleted-dashboard", ("dashboard", "run", "--port", "0"), "folder", shell='mkdir d; cd d; rmdir ../d; exec "$@"'),
    Case("place-file-size-limit", ("init", "train", "new"), "cannot be written (File too large)", shell='ulimit -f 0; exec "$@"', leaves=("new",)),
    Case("place-variable-not-utf8", ("exec", "--", "true"), "is not a number", shell="STAYFAST_GRACE_SECONDS=$(printf '\\377') exec \"$@\""),
    Case("place-argument-not-utf8", ("plan", "-f"), "cannot be read", shell="exec \"$@\" $(printf '\\377\\376')"),
]  # fmt: skip

DISKS = [
    disk("plan-html", ("plan", "-f", "h.yaml", "--replays", "8", "--html", "disk/keep.txt"), "disk/keep.txt cannot be written (No space left", files={"h.yaml": GOOD.replace("deadline: 72h\n", "")}),
    disk("render", ("render", "-f", "h.yaml", "-d", "disk/out"), "cannot be written (No space left", files={"h.yaml": GOOD}),
    disk("init", ("init", "train", "disk/new"), "cannot be written (No space left"),
    disk("enqueue", ("enqueue", "--queue", "sqlite://{world}/disk/w.db", "i.jsonl"), "no space left", code=3, files={"i.jsonl": ITEMS}),
    disk("baseline", ("lint", "--write-baseline", "disk/keep.txt", "a.yaml"), "disk/keep.txt cannot be written (No space left", files={"a.yaml": "{"}),
    disk("read-only-render", ("render", "-f", "h.yaml", "-d", "disk/out"), "cannot be written (Read-only file system", READ_ONLY, files={"h.yaml": GOOD}),
    disk("read-only-init", ("init", "train", "disk/new"), "cannot be written (Read-only file system", READ_ONLY),
    disk("read-only-baseline", ("lint", "--write-baseline", "disk/keep.txt", "a.yaml"), "cannot be written (Read-only", READ_ONLY, files={"a.yaml": "{"}),
    disk("read-only-enqueue", ("enqueue", "--queue", "sqlite://{world}/disk/w.db", "i.jsonl"), "disk/w.db", READ_ONLY, files={"i.jsonl": ITEMS}),
]  # fmt: skip

DENIED = [
    denied("render", ("render", "-f", "h.yaml", "-d", "shut/out"), "cannot be written (Permission denied)", files={"h.yaml": GOOD}),
    denied("init", ("init", "batch", "shut/new"), "cannot be written (Permission denied)"),
    denied("enqueue", ("enqueue", "--queue", "sqlite://{world}/shut/w.db", "i.jsonl"), "shut/w.db", files={"i.jsonl": ITEMS}),
    denied("baseline", ("lint", "--write-baseline", "shut/b.json", "a.yaml"), "shut/b.json cannot be written", files={"a.yaml": "{"}),
    denied("html", ("rehearse", "--html", "shut/x.html", "--", "true"), "shut/x.html cannot be written (Permission denied)"),
    denied("token-file", ("dashboard", ".", "--port", "0", "--allow-actions", "--token-file", "shut/token"), "shut/token"),
    Case("denied-verify", ("checkpoints", "verify", "file://{world}/run"), "permission denied", 3, make=_dark, unprivileged=True),
    Case("denied-cd", ("lint", "."), "cannot be read: Permission denied", 1, make=lambda world: (world / "k8s").mkdir(mode=0), unprivileged=True, on_stdout=True),
]  # fmt: skip

CASES = STREAMS + SURROUNDINGS + DISKS + DENIED
