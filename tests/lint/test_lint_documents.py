"""The manifests of the capacity guide: every fault in them is reported, and mending what is printed leaves no error."""

from __future__ import annotations

import pytest
from lint_cases import SHARED

from stayfast.lint.engine import lint_bundle
from stayfast.lint.fixes import fix_sources
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.sources import Source

DOCUMENTS = SHARED / "documents"


def sources(*names: str) -> list[Source]:
    if not DOCUMENTS.is_dir():
        pytest.skip("the guide's manifests are not here")
    return [Source(name, (DOCUMENTS / name).read_text()) for name in names]


def find(texts):
    return lint_bundle(list(texts), LintSettings()).findings


FAULTS = {
    # file: (rule, words that the message must contain)
    ("01-spot-hpsearch.yaml",): [
        ("SF401", "/mnt/checkpoints"),
        ("SF802", "project/repository/image"),
        ("SF104", "DisruptionTarget"),
        ("SF503", "does not ask for them"),
    ],
    ("01a-spot-nodepool.sh",): [("SF602", "g2-standard-8 has 1 nvidia-l4, not 2")],
    ("02-flex-start-distributed.yaml",): [
        ("SF303", "queued provisioning"),
        ("SF802", "us-docker.pkg.dev/ai-labs/dl-training:cuda12"),
        ("SF805", "not Indexed"),
        ("SF804", "podReplacementPolicy"),
    ],
    ("03-config-template.yaml",): [("SF506", "provisioning-tier"), ("SF303", "2 pods"), ("SF802", "trainer:latest")],
    ("pitfall6-maxparallelism.yaml",): [("SF601", "did you mean parallelism?")],
    ("01-spot-hpsearch.yaml", "pitfall7-pdb.yaml"): [
        ("SF702", "no voluntary eviction"),
        ("SF704", "does not stop the loss"),
    ],
}


@pytest.mark.parametrize("names", FAULTS, ids=" ".join)
def test_every_fault_is_named(names):
    found = find(sources(*names))
    for rule, words in FAULTS[names]:
        assert any(entry.rule == rule and words in entry.message for entry in found), (rule, words)


MENDS = [
    # what a person does with the advice that no fix can follow
    ("us-docker.pkg.dev/ml-registry/", "us-docker.pkg.dev/project/ml-registry/"),
    ("us-docker.pkg.dev/ai-labs/", "us-docker.pkg.dev/project/ai-labs/"),
    ("us-docker.pkg.dev/ai-platform/", "us-docker.pkg.dev/project/ai-platform/"),
    ('value: "/mnt/checkpoints"', "value: gs://bucket/runs/sweep"),
]


@pytest.mark.parametrize(
    "name",
    [
        "01-spot-hpsearch.yaml",
        "02-flex-start-distributed.yaml",
        "03-config-template.yaml",
        "pitfall6-maxparallelism.yaml",
    ],
)
def test_fixes_and_advice_lead_to_no_error(name):
    original = sources(name)
    fixed, count = fix_sources(original, find, unsafe=True)
    assert count > 0
    text = fixed[0].text
    for old, new in MENDS:
        text = text.replace(old, new)
    left = find([Source(name, text)])
    assert [entry for entry in left if entry.severity == "error"] == []
    assert text.splitlines()[0] == original[0].text.splitlines()[0]  # the comment on top


@pytest.mark.parametrize("name", ["fixed/01-spot-hpsearch.yaml", "fixed/02-flex-start-distributed.yaml"])
def test_the_corrected_manifests_are_clean(name):
    assert [entry for entry in find(sources(name)) if entry.severity != "advice"] == []
