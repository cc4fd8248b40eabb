"""What a reader of the verdict has to know besides: what was not compared, not possible, or came too late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stayfast.proof.rehearse.baseline import Baseline
from stayfast.proof.rehearse.facts import TrialObservation
from stayfast.proof.rehearse.trial import TrialSettings
from stayfast.proof.rehearse.verdict import counted_failures


def result_notes(
    setting: TrialSettings, source: str, baseline: Baseline, facts: Sequence[TrialObservation]
) -> Iterator[str]:
    """Sentences for the end of a report."""
    if setting.comparison.is_empty:
        yield "nothing was compared: name what has to be the same with --compare, --records or --check"
    if there := setting.comparison.was_there(source, baseline.work):
        yield (
            f"{there[0]} was there before and is the same afterwards: a run that is finished already proves little; "
            "rehearse where earlier runs have left no result and no checkpoints"
        )
    if baseline.why_no_namespace and setting.namespace:
        yield f"no PID namespace ({baseline.why_no_namespace}): PID 1 is imitated from outside"
    if not baseline.watched:
        yield (
            f"system calls cannot be held here: files are watched by {baseline.means}, so that short moments "
            "between two writes may be missed, and writes outside are not noticed"
        )
    if told := counted_failures(facts, setting.backoff_limit):
        yield told
    missed = sum(len(fact.plan.kills) - len(fact.delivered) for fact in facts)
    if missed:
        yield f"{missed} of {sum(len(fact.plan.kills) for fact in facts)} kills came after the program had finished"
    ignored = sorted(setting.comparison.unstable)
    if ignored:
        yield f"fields that differ by themselves were left out: {', '.join(ignored)}"
