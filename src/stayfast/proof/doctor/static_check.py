"""A container's command by its text alone: enough for the forms that lose signals, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from stayfast.documents import load_documents
from stayfast.errors import UsageError
from stayfast.lint.objects.containers import containers
from stayfast.lint.objects.objects import unpack
from stayfast.lint.objects.workloads import templates
from stayfast.lint.readers.shell import exits_zero_on_term, inline_script, is_behind_init, program_without_signal
from stayfast.proof.doctor.verdict import CODES, EXIT_ZERO, IGNORED, NOT_DELIVERED, ORPHANS, OVERRUN, REMEDIES

LARGEST_BYTES = 10 << 20


def judge_command(words: list[str]) -> dict[str, Any]:
    """What the form of a command will do to SIGTERM; what the program itself does nobody can read here."""
    found: set[str] = set()
    leaves = False
    said = f"{words[0]} is PID 1 itself and gets the signal: whether it handles it only a run can tell"
    script = inline_script(words)
    if script is not None:
        step = program_without_signal(script)
        leaves = script.text.rstrip().endswith("&")
        if leaves:
            found.add(ORPHANS)
            said = f"{script.shell} puts its last command into the background and leaves with 0: the pod ends with it"
        elif step is not None and is_behind_init(words):
            found |= {NOT_DELIVERED, ORPHANS}
            said = (
                f"{words[0]} passes SIGTERM to {script.shell} alone, which ends at once: `{step.text[:80]}` never "
                "hears of it and is killed with the container"
            )
        elif step is not None:
            found |= {NOT_DELIVERED, OVERRUN}
            said = f"{script.shell} stays PID 1 and keeps the SIGTERM for itself: `{step.text[:80]}` never hears of it"
        elif exits_zero_on_term(script.text) is not None:
            found.add(EXIT_ZERO)
            said = f"the trap of {script.shell} leaves with 0: the Job would be Complete"
        else:
            said = f"the last command of {script.shell} gets the signal"
        if "trap '' TERM" in script.text or 'trap "" TERM' in script.text:
            found = (found - {NOT_DELIVERED}) | {IGNORED, OVERRUN}
            said = f"{script.shell} ignores SIGTERM, and so does everything it starts"
    codes = [code for code in CODES if code in found]
    return {
        "received": [],
        "exit_code": None,
        "ended_by": "sigkill" if OVERRUN in found else "exit",
        "seconds": None,
        "job_verdict": "complete" if EXIT_ZERO in found or leaves else "resumes",
        "problems": codes,
        "cures": {code: REMEDIES[code] for code in codes},
        "by_text": said,
        "still_starting": False,
        "ended_before_signal": False,
        "command": words,
    }


def commands_in(path: str) -> Iterator[tuple[str, list[str]]]:
    """Every container that says what it runs, with a name for it."""
    try:
        if path == "-" and sys.stdin is None:
            raise UsageError("standard input is closed", help="pipe a manifest into it, or name a file")
        if path == "-":
            text = sys.stdin.read(LARGEST_BYTES + 1)
        else:
            with open(path, encoding="utf-8-sig") as file:
                text = file.read(LARGEST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path} cannot be read ({reason})", help="name a manifest, or - for stdin") from None
    if len(text) > LARGEST_BYTES:
        raise UsageError(f"{path} is longer than any manifest", help="name a smaller one")
    for document in load_documents(text, path):
        for item in unpack(path, document):
            for template in templates(item):
                for container in containers(template.spec, template.spec_path):
                    if container.words:
                        yield f"{item.title}/{container.name}", container.words
