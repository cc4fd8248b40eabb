"""Write ``docs/reference/library.md`` from the source; with ``--check`` only say whether it is up to date.

The source is parsed, not imported: the page is the same whether torch, Lightning or transformers are installed or not.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "stayfast"
PAGE = ROOT / "docs" / "reference" / "library.md"
HEAD = """\
# Library

Made by `python tools/make_library_reference.py` from the code. What is not on this page is not public and may change.
Errors have [a page of their own](errors.md), and so have [environment variables](environment.md).
"""

SURFACE: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "stayfast",
        (
            ("run", "runtime/runs/run.py"),
            ("RunOptions", "runtime/runs/options.py"),
            ("Run", "runtime/runs/run.py"),
            ("guard", "runtime/interruption/guard.py"),
            ("Guard", "runtime/interruption/guard.py"),
            ("task", "batch/worker/task.py"),
            ("Failed", "batch/worker/task.py"),
            ("Notice", "model/notice.py"),
            ("Cause", "model/notice.py"),
            ("Interrupted", "errors.py"),
            ("StayfastError", "errors.py"),
            ("__version__", "version.py"),
        ),
    ),
    (
        "stayfast.runtime.checkpoint.policies",
        tuple(
            (name, "runtime/checkpoint/policies.py")
            for name in (
                *("Cadence", "YoungDaly", "HazardRule", "EverySteps", "EverySeconds", "AnyOf"),
                *("Retention", "KeepLast", "KeepEvery", "KeepAny", "KeepAll"),
            )
        ),
    ),
    ("stayfast.capacity.spec", (("read_spec", "capacity/spec/reader.py"),)),
    ("stayfast.capacity.machines.prices", (("bundled_catalogue", "capacity/machines/prices.py"),)),
    ("stayfast.capacity.plan.planner", (("make_plan", "capacity/plan/planner.py"),)),
    ("stayfast.render.bundle", (("render", "render/bundle.py"),)),
    ("stayfast.cluster.submission.prepare", (("findings", "cluster/submission/prepare.py"),)),
    ("stayfast.testing", tuple((name, "testing.py") for name in ("rehearse", "Rehearsal", "interrupt_at"))),
    ("stayfast.integrations.torch", (("ResumableSampler", "integrations/torch.py"),)),
    ("stayfast.integrations.lightning", (("StayfastCallback", "integrations/lightning.py"),)),
    ("stayfast.integrations.transformers", (("StayfastCallback", "integrations/transformers.py"),)),
    (
        "stayfast.integrations.dcp",
        (
            ("StayfastWriter", "integrations/dcp.py"),
            ("StayfastReader", "integrations/dcp.py"),
            ("sharded", "integrations/dcp_sharded.py"),
        ),
    ),
)
ASKED = {  # of classes that also have methods for their framework or for the layers above
    "Guard": ("notice", "should_stop", "wait", "interrupt", "on_drain"),
    "StayfastCallback": ("run", "train"),
    "StayfastWriter": ("save",),
    "StayfastReader": ("load",),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = page()
    if "--check" in arguments:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for module, names in SURFACE:
        lines.append(f"\n## {module}\n")
        for name, file in names:
            lines += section(module, name, file)
    return "\n".join(lines).rstrip() + "\n"


def find(file: str, name: str) -> ast.stmt:
    """The definition of a name; of overloads the last, which is the real one."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    for node in reversed(tree.body):
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node
    raise SystemExit(f"{file} has no {name}")


def constants_of(file: str) -> dict[str, str]:
    """Named numbers of a module: a reader wants their values."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    simple = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).isupper()]
    return {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in simple}


def section(module: str, name: str, file: str) -> list[str]:
    """One name: how it is called, what it means, and what belongs to it."""
    node = find(file, name)
    if name == "__version__":
        return [f"### `{module}.{name}`\n", "The version, as in the release's name.\n"]
    assert isinstance(node, ast.ClassDef | Function)
    title = "Options of `stayfast.run`" if name == "RunOptions" else f"`{module}.{name}`"
    lines = [f"### {title}\n"]
    if isinstance(node, Function):
        lines.append(f"```text\n{name}{signature(node)}\n```\n")
    lines += [prose(ast.get_docstring(node) or missing(name)), ""]
    if isinstance(node, ast.ClassDef):
        rows = members(node, file)
        if rows:
            lines += ["| | |", "|---|---|"] + [f"| {cell(left)} | {cell(right)} |" for left, right in rows] + [""]
    return lines


def members(node: ast.ClassDef, file: str) -> list[tuple[str, str]]:
    """Fields, values, properties and methods that a program may use."""
    rows: list[tuple[str, str]] = []
    constants, remarks = constants_of(file), remarks_of(node, file)
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, Function) and item.name == "__init__" and node.name not in ("Run", "Guard", "Rehearsal"):
            rows.append((f"`{node.name}{signature(item)}`", "make one"))  # those three come from functions
        elif isinstance(item, Function) and not item.name.startswith("_"):
            inherited = ast.get_docstring(item) is None and bool(node.bases)  # described where it was promised
            if inherited or item.name not in ASKED.get(node.name, (item.name,)):
                continue
            is_property = any(ast.unparse(mark).endswith("property") for mark in item.decorator_list)
            shown = item.name if is_property else item.name + signature(item)
            rows.append((f"`{shown}`", prose(ast.get_docstring(item) or missing(item.name))))
        elif isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith("_"):
            default = f" = {constants.get(ast.unparse(item.value), ast.unparse(item.value))}" if item.value else ""
            rows.append((f"`{ast.unparse(item.target)}{default}`", text_after(after)))
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant):
            remark = remarks.get(item.lineno, "")
            rows.append(
                (f"`{ast.unparse(item.targets[0])}`", f"`{item.value.value}`" + (f": {remark}" if remark else ""))
            )
    return rows


def remarks_of(node: ast.ClassDef, file: str) -> dict[int, str]:
    """Line number and remark of every value of an enumeration: comments are not in the syntax tree."""
    if "Enum" not in "".join(map(ast.unparse, node.bases)):
        return {}
    lines = (SOURCE / file).read_text(encoding="utf-8").splitlines()
    return {number: line.partition("  # ")[2] for number, line in enumerate(lines, 1)}


def text_after(node: ast.stmt | None) -> str:
    """The string below an attribute, which describes it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return prose(node.value.value)
    return ""


def signature(node: Function) -> str:
    """The parameters, without self and without types that say no more than the name."""
    node.args.args = [item for item in node.args.args if item.arg not in ("self", "cls")]
    for item in [*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]:
        if item is not None:
            item.annotation = None
    text = ast.unparse(node.args).replace("float('inf')", "inf")
    return f"({text})"


def prose(text: str) -> str:
    """A docstring as Markdown: one paragraph per paragraph, code in single ticks."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`")
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def cell(text: str) -> str:
    """Safe inside a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def missing(name: str) -> str:
    """A public name must say what it is."""
    raise SystemExit(f"{name} is public and has no docstring")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
