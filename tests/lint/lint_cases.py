"""Shared by the lint tests: a workload without a fault, ways to change it, and the linter in one call."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from stayfast.lint.engine import Report, lint_bundle
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.sources import Source

SHARED = Path(__file__).resolve().parents[3] / "shared" / "lint"

SPOT_TOLERATION = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


def good_job() -> dict[str, Any]:
    """A Spot Job about which there is nothing to say."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sweep", "namespace": "ml", "labels": {"team": "a"}},
        "spec": {
            "completionMode": "Indexed",
            "completions": 8,
            "parallelism": 2,
            "backoffLimit": 6,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    copy.deepcopy(IGNORE),
                    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75, 143]}},
                ]
            },
            "template": {
                "metadata": {"labels": {"app": "sweep"}, "annotations": {"gke-gcsfuse/volumes": "true"}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 15,
                    "nodeSelector": {
                        "cloud.google.com/gke-spot": "true",
                        "cloud.google.com/gke-accelerator": "nvidia-l4",
                    },
                    "tolerations": [dict(SPOT_TOLERATION)],
                    "containers": [
                        {
                            "name": "main",
                            "image": "us-docker.pkg.dev/project/repository/image:v1",
                            "command": ["python", "-m", "sweep"],
                            "env": [{"name": "CHECKPOINT_DIR", "value": "/ckpt/run"}],
                            "resources": {
                                "requests": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": 1},
                                "limits": {"nvidia.com/gpu": 1},
                            },
                            "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
                        }
                    ],
                    "volumes": [
                        {
                            "name": "ckpt",
                            "csi": {
                                "driver": "gcsfuse.csi.storage.gke.io",
                                "volumeAttributes": {"bucketName": "my-bucket"},
                            },
                        }
                    ],
                },
            },
        },
    }


POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", 0)


def put(value: dict[str, Any], path: tuple[Any, ...], new: Any) -> dict[str, Any]:
    """A copy with something set."""
    value = copy.deepcopy(value)
    place = value
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = new
    return value


def cut(value: dict[str, Any], *path: Any) -> dict[str, Any]:
    """A copy with something removed."""
    value = copy.deepcopy(value)
    place = value
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    return value


def dump(*objects: dict[str, Any]) -> str:
    """Objects as a text of several documents; JSON is YAML, and positions still count."""
    return "\n---\n".join(json.dumps(value, indent=2) for value in objects) + "\n"


def lint(*texts: str, settings: LintSettings | None = None, **named: str) -> Report:
    """Lint texts as one bundle."""
    sources = [Source(f"f{index}.yaml", text) for index, text in enumerate(texts)]
    sources += [Source(name.replace("__", "."), text) for name, text in named.items()]
    return lint_bundle(sources, settings or LintSettings())


def fired(*texts: str, **named: Any) -> set[str]:
    """Codes that fire."""
    return {finding.rule for finding in lint(*texts, **named).findings}


def lint_objects(*objects: dict[str, Any], **named: Any) -> set[str]:
    """Codes that fire on objects."""
    return fired(dump(*objects), **named)
