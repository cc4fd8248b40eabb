"""Suite O in small: the rights that the manifests grant are those that the watch is known to use, word for word."""

from __future__ import annotations

import time

from faults.tiers import Lost
from stayfast.cluster.watch.actions.action import ACTIONS
from stayfast.cluster.watch.manifests import manifests

READ = {"list", "watch"}
USED: dict[tuple[str, str], set[str]] = {
    ("", "configmaps"): READ | {"get", "patch"},
    ("", "events"): {"create"},
    ("", "nodes"): READ,
    ("", "pods"): READ | {"patch"},
    ("autoscaling.x-k8s.io", "provisioningrequests"): READ | {"delete"},
    ("apps", "deployments"): READ,
    ("batch", "jobs"): READ | {"create", "delete", "patch"},
    ("jobset.x-k8s.io", "jobsets"): READ | {"create", "delete", "patch"},
    ("kueue.x-k8s.io", "workloads"): READ | {"delete", "patch"},
}
"""With all actions and events switched on; a run against the pretended API server uses each of these."""


def granted(actions: set[str], *, events: bool) -> dict[tuple[str, str], set[str]]:
    """From the text that would be applied."""
    found: dict[tuple[str, str], set[str]] = {}
    for item in manifests("ops", "image:v1", actions, events=events):
        for rule in item.get("rules", []):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def run(seed: int, seconds: float) -> int:
    """Compare, for everything switched on and for nothing; how many rights were looked at."""
    until, looked = time.monotonic() + seconds, 0
    while not looked or time.monotonic() < until:
        everything = granted(set(ACTIONS.names()), events=True)
        if everything != USED:
            odd = sorted(key for key in everything.keys() | USED.keys() if everything.get(key) != USED.get(key))
            raise Lost(f"seed {seed}: granted is not what is used: {[(key, everything.get(key)) for key in odd][:3]}")
        for (group, resource), verbs in granted(set(), events=False).items():
            if not verbs <= READ | {"get", "patch"} or (verbs - READ and resource != "configmaps"):
                raise Lost(f"seed {seed}: {verbs} on {resource}.{group} although nothing was asked for")
            looked += len(verbs)
        looked += sum(map(len, everything.values()))
    return looked
