"""The zoo: programs in tests/rehearse/programs with the options that fit them and the verdict that each must get."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from stayfast.proof.rehearse.differences import Comparison
from stayfast.proof.rehearse.schedule import DEFAULT_KINDS, InterruptionKind

PROGRAMS = Path(__file__).resolve().parent / "programs"
PYTHON = sys.executable
RESULT = Comparison(globs=("result.txt",))
RECORDS = Comparison(records=("out.jsonl",), key=("id",))
ROWS = Comparison(records=("out.db?table=r",), key=("id",))


class Animal(NamedTuple):
    """One program and what must be found about it."""

    name: str
    command: tuple[str, ...]
    codes: frozenset[str] = frozenset()
    comparison: Comparison = RESULT
    kinds: tuple[InterruptionKind, ...] = DEFAULT_KINDS
    grace_seconds: float = 5.0
    ephemeral: tuple[str, ...] = ()
    disk_limit_bytes: int | None = None
    needs: str = ""
    rare: bool = False
    """Its kind is in the zoo already: one seed is enough in CI."""

    @property
    def title(self) -> str:
        """Its name, and what is hostile around it."""
        hostile = "-disk" if self.disk_limit_bytes else ""
        return self.name + hostile

    @property
    def can_run(self) -> bool:
        return not self.needs or shutil.which(self.needs) is not None


def python(name: str, *codes: str, **more: object) -> Animal:
    return Animal(name, (PYTHON, f"{name}.py"), frozenset(codes), **more)  # type: ignore[arg-type]


SHORT_GRACE = {"grace_seconds": 0.4}
RARE = {"rare": True}
KILLS = {"kinds": (InterruptionKind.KILL, InterruptionKind.KILL_DURING_RESUME)}
LONG = ("env", "STEPS=60")

ZOO = (
    python("right_by_hand"),
    python("leaves_children"),
    python("prints_a_lot"),
    python("reads_stdin"),
    python("short_one"),
    python("stayfast_train"),
    python("torn_checkpoint", "resume-crash"),
    python("newest_file", "resume-crash"),
    python("exits_zero", "exit-zero-unfinished"),
    python("ephemeral_checkpoint", "no-progress", ephemeral=("scratch",)),
    python("writes_at_the_end", "no-progress"),
    python("removes_then_renames", "no-progress"),
    python("forgets_rng", "result-differs"),
    python("forgets_loader", "result-differs"),
    python("torn_result", "result-differs"),
    python("appends_twice", "duplicate-records", comparison=RECORDS),
    python("loses_records", "missing-records", comparison=RECORDS),
    python("no_fencing", "stale-writer", kinds=(InterruptionKind.OVERLAP, InterruptionKind.FREEZE)),
    python("one_at_a_time", kinds=(InterruptionKind.OVERLAP, InterruptionKind.FREEZE), **RARE),
    python("ignores_sigterm", "grace-overrun", **SHORT_GRACE)._replace(command=(*LONG, PYTHON, "ignores_sigterm.py")),
    python("deadlocks_in_handler", "grace-overrun", **SHORT_GRACE)._replace(
        command=(*LONG, PYTHON, "deadlocks_in_handler.py")
    ),
    Animal(
        "shell_wrapper",
        ("sh", "-c", f"STEPS=60 {PYTHON} right_by_hand.py; echo done"),
        frozenset({"grace-overrun"}),
        **SHORT_GRACE,  # type: ignore[arg-type]
    ),
    python("sorts_by_clock", **KILLS, **RARE),
    python("leaves_temporaries", **RARE),
    python("leaves_temporaries", "resume-crash", disk_limit_bytes=250_000, **RARE),
    python("stayfast_train", disk_limit_bytes=1_000_000, **RARE),
    Animal("exec_around_exits_zero", (PYTHON, "-m", "stayfast", "exec", "--", PYTHON, "exits_zero.py")),
    Animal("right_shell", ("bash", "right_shell.sh")),
    Animal("torn_shell", ("bash", "torn_shell.sh"), frozenset({"resume-crash"})),
    Animal("fills_by_redirect", ("bash", "fills_by_redirect.sh"), frozenset({"result-differs"}), rare=True),
    Animal("right_perl", ("perl", "right_perl.pl"), needs="perl"),
    Animal("exits_zero_perl", ("perl", "exits_zero.pl"), frozenset({"exit-zero-unfinished"}), needs="perl"),
    Animal("right_node", ("node", "right_node.js"), needs="node"),
    Animal("torn_node", ("node", "torn_node.js"), frozenset({"resume-crash"}), needs="node"),
    python("right_threads", **RARE),
    python("long_to_start", **RARE),
    python("imports_a_lot", **RARE),
    python("pool_ignores_sigterm", "grace-overrun", **SHORT_GRACE, **RARE),
    python("cancelled_asyncio", "exit-zero-unfinished", **RARE),
    python("logs_only", "no-progress", **RARE),
    python("prepares_once", "no-progress", **RARE),
    python("shards_once", "no-progress", **RARE),
    python("keeps_its_table", comparison=ROWS, **RARE),
    python("empties_its_table", "no-progress", comparison=ROWS, **RARE),
    python("counts_before_commit", "missing-records", comparison=ROWS, **RARE),
    python("claims_twice", "duplicate-records", comparison=RECORDS, **RARE),
    python("two_directories", "result-differs", **RARE),
    Animal("stale_lock", ("perl", "stale_lock.pl"), frozenset({"resume-crash"}), needs="perl", rare=True),
    Animal("trap_cleans_up", ("bash", "trap_cleans_up.sh"), frozenset({"no-progress"}), rare=True),
)
