"""Write ``docs/reference/rules.md`` from the rule pages; with ``--check`` only say whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from stayfast.lint.rule_pages import reference

TARGET = Path(__file__).parent.parent / "docs/reference/rules.md"


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = reference()
    if "--check" in arguments:
        return int(not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
