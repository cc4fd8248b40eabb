"""Write ``docs/design/house.md``: chapters, rooms, what may import what, and three data paths.

From the import contract in ``pyproject.toml``, the docstrings of the rooms, and ``docs/design/data-paths.json``, which
``tests/house/paths.py`` makes. With ``--check`` it only says whether the page is up to date.
"""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/stayfast"
TARGET = ROOT / "docs/design/house.md"
GROUND = "the ground"

HEAD = """# The house

<!-- written by tools/make_house.py from the import contract and the rooms' docstrings -->

`src/stayfast` is a table of contents: a chapter is a folder, a room is a folder in it, and a module has one subject.
Each room's `__init__.py` says what belongs there, what it may import and where to start reading.

## Which chapter may import which

A line may import the lines below it, never one above; chapters that share a line do not import each other.
import-linter (`make contracts`) and a test enforce this, and the same between the rooms of a chapter.

"""

SEAMS = """
`import stayfast` loads the standard library alone, and so does opening a run on a local directory: heavy modules are
imported inside the functions that need them, and a test holds that line. Everything that touches the world goes through
one of three seams, so that tests can inject faults and time:

| Seam | Module | In tests |
|---|---|---|
| `Clock` | `clock` | `ManualClock`, which moves only when a test moves it |
| `FS` | `filesystem` | crash states, full disks, failing fsync |
| `Store` | `storage/stores/protocol` | `MemoryStore`, lost answers, two writers |
"""


def contracts() -> dict[str, list[list[str]]]:
    """The layers of each container, highest first."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = {}
    for contract in table["tool"]["importlinter"]["contracts"]:
        if contract["type"] != "layers":
            continue
        layers = [[name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]]
        for container in contract["containers"]:
            found[container] = [[name for name in layer if exists(container, name)] for layer in layers]
    return {container: [layer for layer in layers if layer] for container, layers in found.items()}


def exists(container: str, name: str) -> bool:
    """Whether the contract's name is a module or folder; the contract also lists names that are yet to come."""
    place = SOURCE.joinpath(*container.split(".")[1:], name)
    return place.is_dir() or place.with_suffix(".py").exists()


def docstring(path: Path) -> list[str]:
    """The lines of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()


def sentence(path: Path) -> str:
    """The first paragraph of a docstring."""
    lines = docstring(path)
    end = lines.index("") if "" in lines else len(lines)
    return " ".join(line.replace("``", "`").strip() for line in lines[:end])


def start(folder: Path) -> str:
    """The file where a room says that one should begin."""
    for line in docstring(folder / "__init__.py"):
        if line.startswith("Start reading: "):
            return line.removeprefix("Start reading: ").strip(".").replace("``", "`")
    return ""


def drawing(layers: list[list[str]], inside: dict[str, list[list[str]]]) -> list[str]:
    """One line per layer, with the rooms of each chapter from high to low."""
    rows = []
    for layer in layers:
        notes = []
        for name in layer:
            rooms = inside.get(f"stayfast.{name}")
            if rooms:
                notes.append(" > ".join(" | ".join(names) for names in rooms))
        rows.append(f"{' | '.join(layer):40}{'   '.join(notes)}".rstrip())
    return ["```", *rows, "```", ""]


def rooms() -> list[str]:
    """The table of every folder with its sentence."""
    rows = ["| Folder | Modules | What belongs there | Start at |", "|---|---|---|---|"]
    for init in sorted(SOURCE.rglob("__init__.py")):
        folder = init.parent
        if folder == SOURCE:
            continue
        name = str(folder.relative_to(SOURCE))
        count = sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        rows.append(f"| `{name}` | {count or ''} | {sentence(init)} | {start(folder)} |")
    ground = sorted(path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__"))
    rows.append(f"| ({GROUND}) | {len(ground)} | {', '.join(f'`{name}`' for name in ground)} | |")
    return rows


def paths() -> list[str]:
    """The files that each measured path visits, folder by folder."""
    lines = []
    for title, files in json.loads((ROOT / "docs/design/data-paths.json").read_text(encoding="utf-8")).items():
        missing = [name for name in files if not (SOURCE / name).exists()]
        if missing:
            raise SystemExit(f"docs/design/data-paths.json names {missing}: run python tests/house/paths.py again")
        lines += [f"**{title}**: {len(files)} files", ""]
        folders: dict[str, list[str]] = {}
        for name in files:
            folder, _, file = name.rpartition("/")
            folders.setdefault(folder or GROUND, []).append(file.removesuffix(".py"))
        lines += [f"- `{folder}`: {', '.join(names)}" for folder, names in folders.items()]
        lines.append("")
    return lines


def page() -> str:
    """All of it."""
    inside = contracts()
    parts = [HEAD, "\n".join(drawing(inside["stayfast"], inside)), SEAMS]
    parts += ["\n## Rooms\n\n", "\n".join(rooms()), "\n\n## Three data paths\n"]
    parts.append("\nEvery file of which at least one function was called, found by running the path.\n\n")
    return "\n".join(line.rstrip() for line in ("".join(parts) + "\n".join(paths())).splitlines()).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = page()
    if "--check" in arguments:
        return int(not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
