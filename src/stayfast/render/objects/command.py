"""The container's command: always a list, never a shell in front, and a truthful exit code behind launchers."""

from __future__ import annotations

import itertools
import os.path
import re

LAUNCHERS = frozenset(
    ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "srun", "composer", "colossalai")
)
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash", "busybox"))
_LAUNCHER_MODULES = re.compile(r"torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher.*")
_TASK = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def container_command(command: tuple[str, ...]) -> list[str]:
    """What the container runs; launchers and shells rewrite exit codes and keep signals, so exec stands outside."""
    program = os.path.basename(command[0])
    if program == "stayfast":
        return list(command)
    if len(command) == 1 and _TASK.fullmatch(command[0]):
        return ["stayfast", "work", *command]
    if program in LAUNCHERS or program in SHELLS or _module(command):
        return ["stayfast", "exec", "--", *command]
    return list(command)


def is_torchrun(command: tuple[str, ...]) -> bool:
    """Whether the launcher is torch's own, under either of its names."""
    words = command[3:] if command[:3] == ("stayfast", "exec", "--") else command
    return bool(words) and (os.path.basename(words[0]) == "torchrun" or "torch.distributed" in _module(words))


def _module(command: tuple[str, ...]) -> str:
    """The launcher module of ``python -m``, or nothing."""
    if not os.path.basename(command[0]).startswith("python"):
        return ""
    for word, following in itertools.pairwise(command):
        if word == "-m":
            return following if _LAUNCHER_MODULES.fullmatch(following) else ""
    return ""
