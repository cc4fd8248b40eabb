"""Enough shell to answer two questions: does SIGTERM reach the program, and does its trap end in exit 0?

As PID 1 a shell ignores a SIGTERM that it has no trap for. dash (``sh``) always stays PID 1 in front of the program;
bash replaces itself with the last command of ``-c`` when that is a plain one. Measured on 13 forms, 2026-08.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh"))
_TAKES_COMMAND = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*\Z")
_INIT_PROGRAMS = frozenset(("tini", "dumb-init", "catatonit"))
_PREFIXES = frozenset(("exec", "env", "nohup", "time", "sudo", "stdbuf", "nice", "then", "do", "else", "if", "while",
                       "until", "elif", "!", "{", "("))  # fmt: skip
_COMPOUND_STARTS = frozenset(("if", "while", "until", "for", "case", "{", "(", "select"))
_COMPOUND_ENDS = frozenset(("fi", "done", "esac", "}", ")"))
# Short or without state: nothing is lost when their SIGTERM goes missing.
_SHORT_NAMES = """
echo printf sleep date mkdir cd export set source . ls cat cp mv rm ln touch chmod chown test [ [[ true false
exit return wait kill hostname printenv env unset ulimit apt apt-get yum dnf apk pip pip3 uv git curl wget tar
unzip gunzip gcloud gsutil nvidia-smi ldconfig sed awk grep egrep cut head tail tee sort tr wc seq read local
declare nslookup ping host dig huggingface-cli hf kubectl sysctl mount umount df du free ps uname whoami id
which command type let shift trap pushd popd conda activate service sshd ssh-keygen mktemp jq sync openssl
base64 xargs find uniq rev basename dirname function fi done esac } ) : eval shopt alias umask stat realpath
nproc lscpu lspci modprobe iptables ip ifconfig nc make cmake bc typeset readonly break continue getopts mapfile
install ldd file md5sum sha256sum diff logger tty stty clear npm for case select in ssh scp rsync pgrep pkill
setcap update-ca-certificates
"""
_SHORT = frozenset(_SHORT_NAMES.split())
# The program that matters, where a script runs several.
_TRAINS = re.compile(r"(?<!s)train|fine-?tun|torchrun|mpirun|accelerate launch|deepspeed", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_TERM = re.compile(r"\b(?:SIG)?TERM\b|(?<![\w-])15(?!\w)", re.IGNORECASE)
_TRAP = re.compile(r"""\btrap\s+(?:--\s+)?("(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)\s+([A-Za-z0-9 ]+)""")


class Script(NamedTuple):
    """An inline script and the shell that runs it."""

    shell: str
    text: str
    word: int  # index of the script among command + args


class Step(NamedTuple):
    """One command of a script."""

    text: str
    after: str  # what follows: newline, ;, &&, ||, |, & or nothing
    piped: bool
    nested: bool
    position: int


def inline_script(words: list[str]) -> Script | None:
    """The script in ``[bash, -c, script]`` and its relatives."""
    start = 0
    if is_behind_init(words):
        if _base(words[0]) == "dumb-init" or "-g" in words[1:3]:
            return None  # signals go to the whole process group
        start = next((index for index, word in enumerate(words) if _base(word) in SHELLS), len(words))
    if start < len(words) and _base(words[start]) == "env":
        start += 1
    if start >= len(words) or _base(words[start]) not in SHELLS:
        return None
    for index in range(start + 1, len(words) - 1):
        if _TAKES_COMMAND.match(words[index]):
            return Script(_base(words[start]), words[index + 1], index + 1)
        if not words[index].startswith(("-", "+")) and not re.fullmatch(r"[-+][a-z]*o", words[index - 1]):
            return None
    return None


def is_behind_init(words: list[str]) -> bool:
    """Whether an init is PID 1, so that a shell behind it ends by SIGTERM like any other process."""
    return bool(words) and _base(words[0]) in _INIT_PROGRAMS


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def program_without_signal(script: Script) -> Step | None:
    """The program whose SIGTERM the shell keeps for itself, if there is one."""
    if _traps_term(script.text):
        return None
    steps = split(script.text)
    programs = [step for step in steps if _is_program(step.text)]
    if not programs:
        return None
    main = next((step for step in reversed(programs) if _TRAINS.search(step.text)), programs[-1])
    if first_words(main.text)[:1] == ["exec"] and not main.piped:
        return None
    if script.shell in ("bash", "zsh", "ksh"):
        is_last = not any(step.position > main.position for step in steps)
        if is_last and not main.piped and not main.nested and main.after != "&":
            return None
    return main


def _traps_term(script: str) -> bool:
    return any(_TERM.search(match.group(2)) for match in _TRAP.finditer(script))


def first_words(command: str) -> list[str]:
    """The words of a command, without leading assignments (``X=$(a b)`` is one, spaces and all)."""
    index = 0
    while match := _ASSIGNMENT.match(command, index):
        index = match.end()
        while index < len(command) and not command[index].isspace():
            if command[index] in "\"'`":
                index += _quoted(command, index)
            elif command[index : index + 2] in ("$(", "${"):
                index += _balanced(command, index + 1) + 1
            else:
                index += 1
        while index < len(command) and command[index].isspace():
            index += 1
    return command[index:].split()


def _is_program(command: str) -> bool:
    words = first_words(command)
    while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0]) or words[0].startswith("-")):
        if words[0] in ("if", "while", "until", "elif") and len(words) > 1 and words[1] in ("!", "[", "[["):
            return False
        words.pop(0)
    if words and words[0] == "timeout":
        words = [word for word in words[1:] if not re.match(r"-|[0-9]", word)]
    if not words:
        return False
    name = _base(words[0].strip("\"'"))
    if not name or name in _SHORT or name.endswith("()") or words[0][0] in "#<>)}|&;" or "=" in name:
        return False
    return not (len(words) > 1 and words[1].startswith("()"))


def split(script: str) -> list[Step]:
    """The commands of a script, in order; quotes, substitutions and here-documents stay inside their command."""
    steps: list[Step] = []
    text = script.replace("\\\n", "  ")
    depth, start, index, pipe = 0, 0, 0, False
    length = len(text)
    while index <= length:
        token, width = _separator(text, index)
        if token is None:
            index += width
            continue
        command = text[start:index].strip()
        if command:
            words = first_words(command)
            opens = bool(words) and (words[0] in _COMPOUND_STARTS or words[0][0] == "(" or command.endswith(("{", "(")))
            depth += opens
            steps.append(Step(command, token, pipe or token == "|", depth > 0, start))
            closes = bool(words) and (words[0] in _COMPOUND_ENDS or command[-1] in ")}")
            depth = max(0, depth - (closes and not opens) - (opens and closes))
            pipe = token == "|"
        index += width
        start = index
        if token == "\n" and "<<" in command:
            index = start = _skip_here_document(text, command, index)
        if width == 0:
            break
    return steps


def _separator(text: str, index: int) -> tuple[str | None, int]:
    """The separator at ``index`` and its width, or ``(None, how far to go on)``."""
    if index >= len(text):
        return "", 0
    character = text[index]
    if character in "\"'`":
        return None, _quoted(text, index)
    if character == "\\":
        return None, 2
    if character == "$" and text[index : index + 2] in ("$(", "${"):
        return None, _balanced(text, index + 1) + 1
    if character == "#" and (index == 0 or text[index - 1] in " \t\n;"):
        end = text.find("\n", index)
        return None, (len(text) if end < 0 else end) - index
    if character in "\n;":
        return (character, 2) if text[index : index + 2] == ";;" else (character, 1)
    if text[index : index + 2] in ("&&", "||"):
        return text[index : index + 2], 2
    if character == "|":
        return "|", 2 if text[index : index + 2] == "|&" else 1
    if character == "&" and text[index - 1 : index] not in (">", "<") and text[index + 1 : index + 2] != ">":
        return "&", 1
    return None, 1


def _quoted(text: str, index: int) -> int:
    quote = text[index]
    end = index + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote != "'" else 1
    return end + 1 - index


def _balanced(text: str, index: int) -> int:
    """Width of ``(...)`` or ``{...}`` that opens at ``index``."""
    opening, closing = text[index], {"(": ")", "{": "}"}[text[index]]
    depth, end = 0, index
    while end < len(text):
        if text[end] in "\"'" and text[end - 1] != "\\":
            end += _quoted(text, end)
            continue
        depth += (text[end] == opening) - (text[end] == closing)
        end += 1
        if depth == 0:
            break
    return end - index


def _skip_here_document(text: str, command: str, index: int) -> int:
    match = re.search(r"<<-?\s*[\"']?(\w+)", command)
    if match is None:
        return index
    end = re.compile(rf"^\s*{re.escape(match.group(1))}\s*$", re.MULTILINE).search(text, index)
    return len(text) if end is None else end.end()


def exits_zero_on_term(script: str) -> int | None:
    """Offset of the ``exit 0`` that a TERM trap runs, if there is one."""
    for match in _TRAP.finditer(script):
        if not _TERM.search(match.group(2)):
            continue
        body, offset = match.group(1), match.start(1)
        if body[0] in "\"'":
            found = list(re.finditer(r"\bexit\s+0\b", body))
        else:
            function = re.search(rf"(?:\bfunction\s+)?\b{re.escape(body)}\s*(?:\(\))?\s*([{{(])", script)
            if function is None:
                continue
            opening = function.start(1)
            body, offset = script[opening : opening + _balanced(script, opening)], opening
            found = list(re.finditer(r"\bexit\s+0\b", body))
        if found:
            return offset + found[-1].start()
    return None
