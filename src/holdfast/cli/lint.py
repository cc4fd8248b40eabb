"""``holdfast lint``."""

from __future__ import annotations

import argparse
import gc
import json
import sys

from holdfast.cli.main import FINDINGS, OK
from holdfast.lint.bundle import Settings
from holdfast.lint.engine import lint_bundle
from holdfast.lint.sources import gather, read


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--format", default="text")


def run(args: argparse.Namespace) -> int:
    gc.disable()
    findings = []
    files = objects = 0
    for bundle in gather(args.paths):
        report = lint_bundle([read(name) for name in bundle], Settings())
        findings += report.findings
        files += report.files
        objects += report.objects
    if args.format == "json":
        json.dump({"findings": [{k: getattr(f, k) for k in ("rule","name","severity","message","file","line","column","pointer","object","fixable")} for f in findings], "files": files, "objects": objects}, sys.stdout)
    else:
        for f in findings: print(f"{f.file}:{f.line}:{f.column}: {f.severity} {f.rule} {f.message} [{f.object}]")
    return FINDINGS if any(f.severity == "error" for f in findings) else OK
