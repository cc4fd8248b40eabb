"""Names that Kubernetes and GKE accept, that two runs never share, and that nothing hostile can hide in."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from urllib.parse import parse_qsl, urlsplit

from stayfast.capacity.spec.fields import NAME
from stayfast.capacity.spec.workload import WorkloadSpec
from stayfast.errors import UsageError
from stayfast.text.safe import printable

REPLICATED_JOB = "node"
LONGEST_LABEL = 63
LONGEST_POOL = 40


def check_names(spec: WorkloadSpec) -> None:
    """Refuse names that would not survive YAML, shell, Terraform or the API server."""
    for field, value in (("name", spec.name), ("namespace", spec.namespace)):
        if not re.fullmatch(NAME, value):
            raise UsageError(
                f"{field} {value[:60]!r} is not a Kubernetes name", help="use lower-case letters, digits and dashes"
            )


def check_pod_name(spec: WorkloadSpec) -> None:
    """JobSet refuses a set whose longest pod name would not be a DNS label."""
    longest = f"{spec.name}-{REPLICATED_JOB}-0-{spec.nodes - 1}-abcde"
    if len(longest) > LONGEST_LABEL:
        room = LONGEST_LABEL - (len(longest) - len(spec.name))
        raise UsageError(f"name {spec.name} is too long for a JobSet", help=f"use at most {room} characters")


def scoped(namespace: str, name: str) -> str:
    """For objects without a namespace; the digest tells ``a`` + ``b-c`` from ``a-b`` + ``c``."""
    return _with_digest(f"{namespace}-{name}", f"{namespace}/{name}", LONGEST_LABEL)


def pool_name(name: str, suffix: str) -> str:
    """A node pool's name, which GKE limits to 40 characters."""
    plain = f"{name}-{suffix}"
    if len(plain) <= LONGEST_POOL:
        return plain
    return _with_digest(name, name, LONGEST_POOL - len(suffix) - 1) + f"-{suffix}"


def _with_digest(text: str, identity: str, longest: int) -> str:
    mark = hashlib.sha256(identity.encode()).hexdigest()[:6]
    return f"{text[: longest - 7].rstrip('-')}-{mark}"


def digest(spec: WorkloadSpec, *decisions: object) -> str:
    """Of everything the objects were made from, wherever the file lies."""
    values = {key: value for key, value in dataclasses.asdict(spec).items() if key != "where"}
    text = json.dumps([values, [str(item) for item in decisions]], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def has_secret(url: str | None) -> bool:
    """Whether a URL carries a password, which belongs in no manifest."""
    if url is None:
        return False
    parts = urlsplit(url)
    secret_query = any("password" in key.lower() or "secret" in key.lower() for key, _ in parse_qsl(parts.query))
    return parts.password is not None or secret_query


def one_line(text: str) -> str:
    """A text from outside, for a comment: nothing in it can end the line."""
    return printable(text)[:200]
