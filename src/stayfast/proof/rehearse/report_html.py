"""The rehearsal as one page without scripts: the verdict, the reasons, and every attempt on a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from stayfast.proof.rehearse.facts import AttemptObservation, TrialObservation
from stayfast.proof.rehearse.rehearsal import RehearsalResult
from stayfast.proof.rehearse.report import amount, measures
from stayfast.proof.rehearse.verdict import CODES, reasons_of, reproduce

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
code { background: #f2f3f5; padding: .1rem .3rem; border-radius: 3px; word-break: break-all }
.survives { color: #116329 } .fails { color: #a40e26 }
.row { display: flex; align-items: center; gap: .6rem; margin: .25rem 0 }
.name { width: 4.5rem } .codes { width: 14rem; color: #a40e26 }
.line { position: relative; flex: 1; height: 1.3rem; background: #f2f3f5 }
.ran, .grace { position: absolute; top: 0; height: 100%; min-width: 2px; border-right: 1px solid #fff }
.ran { background: #57a5ff } .done { background: #2da44e } .failed { background: #cf222e }
.killed { background: #8250df } .term { background: #bf8700 }
.grace { background: repeating-linear-gradient(45deg, #e3b341 0 4px, #fff8c5 4px 8px) }
@media (prefers-color-scheme: dark) { body { background: #14171b; color: #dfe3e8 } code, .line { background: #22272e } }
"""


def as_html(result: RehearsalResult, flags: Sequence[str]) -> str:
    """A whole document."""
    return "\n".join(_parts(result, flags))


def _parts(result: RehearsalResult, flags: Sequence[str]) -> Iterator[str]:
    word = "survives" if result.survives else "fails"
    kills = sum(len(trial.delivered) for trial in result.trials)
    command = escape(" ".join(result.options.command))
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Rehearsal: {word}</title>'
    yield f"<style>{_STYLE}</style></head><body>"
    yield f'<h1 class="{word}">{word}</h1><p><code>{command}</code></p>'
    counts = f"{amount(kills, 'interruption')} in {amount(len(result.trials), 'trial')}"
    yield (
        f"<p>{counts}, seed {result.options.seed}, grace {result.options.grace_seconds:g} s, "
        f"baseline {result.profile.seconds:.1f} s.</p>"
    )
    if result.reasons:
        yield "<h2>Reasons</h2><ul>"
        for reason in result.reasons:
            again = reproduce(reason, seed=result.options.seed, options=flags, command=result.options.command)
            moments = "; ".join(str(kill) for kill in reason.kills)
            yield (
                f"<li><b>{reason.code}</b>: {escape(CODES[reason.code])}<br>{escape(reason.detail)}<br>"
                f"{escape(moments)}<br><code>{escape(again)}</code></li>"
            )
        yield "</ul>"
    yield "<h2>Attempts</h2>"
    scale = max((trial.seconds for trial in result.trials), default=1.0) or 1.0
    confirmed = {reason.code for reason in result.reasons}
    for trial in result.trials:
        codes = [reason.code for reason in reasons_of(result.baseline, trial) if reason.code in confirmed]
        yield _row(trial, codes, scale)
    yield (
        f"<p>The whole width is {scale:.1f} s. Green finished, purple was killed, yellow got SIGTERM (hatched: "
        "its grace), red failed. Point at a bar to read it.</p><h2>Measured</h2><ul>"
    )
    yield from (f"<li>{escape(key)}: {value}</li>" for key, value in measures(result).items() if value is not None)
    yield from (f"<li>{escape(note)}</li>" for note in result.notes)
    yield "</ul></body></html>"


def _row(trial: TrialObservation, codes: Sequence[str], scale: float) -> str:
    bars = "".join(_bar(fact, scale) for fact in trial.attempts)
    return (
        f'<div class="row"><span class="name">trial {trial.plan.number}</span>'
        f'<div class="line">{bars}</div><span class="codes">{escape(", ".join(codes))}</span></div>'
    )


def _bar(fact: AttemptObservation, scale: float) -> str:
    def share(seconds: float) -> str:
        return f"{100 * seconds / scale:.2f}%"

    kind = "done" if fact.code == 0 else "failed"
    if fact.kind is not None:
        kind = "killed" if fact.safe_seconds is None and not fact.overran else "term"
    told = f"attempt {fact.number}: {fact.seconds:.2f} s, left with {fact.code}"
    if fact.kind is not None:
        told += f"; {fact.kind} {fact.at}"
    left, title = share(fact.began_seconds), escape(told, quote=True)
    bar = f'<div class="ran {kind}" style="left:{left};width:{share(fact.ran_seconds)}" title="{title}"></div>'
    rest = fact.seconds - fact.ran_seconds
    if kind == "term" and rest > 0:
        begin = share(fact.began_seconds + fact.ran_seconds)
        bar += f'<div class="grace" style="left:{begin};width:{share(rest)}" title="{title}"></div>'
    return bar
