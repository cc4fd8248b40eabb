"""What a release depends on: a CycloneDX SBOM of the locked versions, and the licences as a page of the docs.

python tools/make_sbom.py sbom dist/stayfast.cdx.json     from requirements/all.txt: the same lock, the same bytes
python tools/make_sbom.py licences                        docs/reference/dependencies.md, from what is installed
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "all.txt"
PAGE = ROOT / "docs" / "reference" / "dependencies.md"
KNOWN = {"torch": "BSD-3-Clause"}  # its metadata holds the whole text
HEAD = """\
# Dependencies and their licences

Made by `python tools/make_sbom.py licences`. stayfast itself is Apache-2.0. The library and `stayfast exec` need the
Python standard library alone; the rest comes with the command line or with an extra. `requirements/base.txt`,
`all.txt` and `test.txt` lock every version with its hashes (`pip install --require-hashes -r requirements/base.txt`),
`make dist` writes a CycloneDX SBOM beside the wheel, and `make audit` asks the vulnerability service about the locks.

| Package | For | Licence |
|---|---|---|
"""


class Locked(NamedTuple):
    """One line of a lock."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def read_lock(text: str) -> list[Locked]:
    """Every requirement of a lock file, with its hashes."""
    found = []
    for block in re.split(r"\n(?=\S)", text.strip()):
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)\s*(?:;\s*([^\\\n]+?))?\s*\\?\n", block + "\n")
        if match is None:
            raise SystemExit(f"{block.splitlines()[0]!r} is no line of a lock")
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
        found.append(Locked(match[1].lower(), match[2], match[3] or "", hashes))
    return found


def sbom(lock: list[Locked], version: str) -> dict[str, Any]:
    """CycloneDX 1.6; no clock and no dice in it, so that two builds of one commit agree."""
    seed = hashlib.sha256(json.dumps([version, *lock]).encode()).digest()[:16]
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{item.name}@{item.version}",
            "name": item.name,
            "version": item.version,
            "purl": f"pkg:pypi/{item.name}@{item.version}",
            "properties": [
                *({"name": "stayfast:sha256", "value": value} for value in item.hashes),
                *([{"name": "stayfast:marker", "value": item.marker}] if item.marker else []),
            ],
        }
        for item in sorted(lock)
    ]
    itself = {"type": "library", "bom-ref": "stayfast", "name": "stayfast", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=seed, version=4)}",
        "version": 1,
        "metadata": {"component": {**itself, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": "stayfast", "dependsOn": [item["bom-ref"] for item in components]}],
    }


def direct() -> dict[str, str]:
    """What pyproject.toml names, and what for; the test tools are not shipped and not listed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"the command line": project["dependencies"]}
    wanted |= {f"`stayfast[{name}]`": rows for name, rows in project["optional-dependencies"].items() if name != "test"}
    found: dict[str, list[str]] = {}
    for purpose, rows in wanted.items():
        for row in rows:
            name = re.split(r"[\[<>=!~; ]", row)[0]
            if name != "stayfast":
                found.setdefault(name, []).append(purpose)
    return {name: ", ".join(purposes) for name, purposes in found.items()}


def licence(name: str) -> str:
    """What the installed package says of itself."""
    if name in KNOWN:
        return KNOWN[name]
    about = importlib.metadata.metadata(name)
    said = about.get("License-Expression") or about.get("License") or ""
    classified = [row.rpartition(" :: ")[2] for row in about.get_all("Classifier", []) if row.startswith("License ::")]
    if not said or len(said) > 60 or "\n" in said:
        said = ", ".join(classified) or "see the package"
    return said


def main(arguments: list[str]) -> int:
    """Write one of the two."""
    if arguments[:1] == ["sbom"] and len(arguments) == 2:
        version = re.search(r'__version__ = "(.+)"', (ROOT / "src" / "stayfast" / "version.py").read_text())
        assert version is not None
        Path(arguments[1]).write_text(json.dumps(sbom(read_lock(LOCK.read_text()), version[1]), indent=1) + "\n")
        return 0
    if arguments == ["licences"]:
        rows = [f"| {name} | {purpose} | {licence(name)} |\n" for name, purpose in sorted(direct().items(), key=str)]
        PAGE.write_text(HEAD + "".join(rows))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
