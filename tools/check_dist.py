"""Say whether the wheel and the sdist in a folder are what they should be: ``python tools/check_dist.py dist``.

Everything of ``src/stayfast`` is in both, nothing else is in the wheel, and no file names the machine it was built on.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = [str(ROOT).encode(), str(Path.home()).encode()] if len(str(Path.home())) > 1 else [str(ROOT).encode()]


def main(arguments: list[str]) -> int:
    """Print what is wrong; 0 when nothing is."""
    folder = Path(arguments[0] if arguments else "dist")
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    problems = []
    if (len(wheels), len(archives)) != (1, 1):
        problems.append(f"{folder} holds {len(wheels)} wheels and {len(archives)} sdists, not one of each")
    else:
        problems += check_wheel(read_wheel(wheels[0])) + check_archive(read_archive(archives[0]))
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


def read_wheel(path: Path) -> dict[str, bytes]:
    """Name and bytes of every file."""
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}


def read_archive(path: Path) -> dict[str, bytes]:
    """The same of an sdist, without its top folder."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None:
                found[member.name.partition("/")[2]] = stream.read()
    return found


def source_files() -> dict[str, bytes]:
    """What lies under ``src``."""
    source = ROOT / "src"
    paths = [path for path in (source / "stayfast").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(source)): path.read_bytes() for path in paths}


def check_wheel(files: dict[str, bytes]) -> list[str]:
    """Package and metadata, no more and no less."""
    problems = compare(
        source_files(), {name: data for name, data in files.items() if name.startswith("stayfast/")}, "wheel"
    )
    strangers = [name for name in files if not name.startswith("stayfast/") and ".dist-info/" not in name]
    return problems + [f"the wheel holds {name}" for name in strangers] + marks(files, "wheel")


def check_archive(files: dict[str, bytes]) -> list[str]:
    """Source, licence and what building needs."""
    packaged = {name.removeprefix("src/"): data for name, data in files.items() if name.startswith("src/")}
    problems = compare(source_files(), packaged, "sdist")
    problems += [f"the sdist lacks {name}" for name in ("pyproject.toml", "README.md", "LICENSE") if name not in files]
    return problems + [f"the sdist holds {name}" for name in files if name.startswith("tests/")] + marks(files, "sdist")


def compare(wanted: dict[str, bytes], found: dict[str, bytes], what: str) -> list[str]:
    """Names and bytes on both sides."""
    problems = [f"the {what} lacks {name}" for name in wanted.keys() - found.keys()]
    problems += [f"the {what} holds {name}, which is not in src" for name in found.keys() - wanted.keys()]
    same = wanted.keys() & found.keys()
    return sorted(problems + [f"{name} differs in the {what}" for name in same if wanted[name] != found[name]])


def marks(files: dict[str, bytes], what: str) -> list[str]:
    """Files that name the machine."""
    return [
        f"{name} in the {what} names a path of this machine"
        for name, data in files.items()
        if any(mark in data for mark in MARKS)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
