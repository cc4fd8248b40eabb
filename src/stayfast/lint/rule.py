"""What a rule is, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from stayfast.errors import UsageError
from stayfast.lint.finding import Hit
from stayfast.lint.objects.bundle import Bundle

RuleFunction = Callable[[Any, Bundle], Iterable[Hit]]

POD, OBJECT, BUNDLE = "pod", "object", "bundle"


class Rule(NamedTuple):
    """A check with its code, its name, and what it is called with: each pod, each object, or the bundle once."""

    code: str
    name: str
    scope: str
    kinds: frozenset[str]  # object rules: only these kinds (empty: all)
    check: RuleFunction


RULES: list[Rule] = []


def rule(code: str, name: str, scope: str, *kinds: str) -> Callable[[RuleFunction], RuleFunction]:
    """Enter a check into the table."""

    def register(check: RuleFunction) -> RuleFunction:
        if any(known.code == code and known.name != name for known in RULES):
            raise UsageError(f"{code} already stands for another name", help="codes are never reused")
        RULES.append(Rule(code, name, scope, frozenset(kinds), check))
        return check

    return register
