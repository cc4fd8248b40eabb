"""A plan as one page that opens without a network: a table, the spread of costs, and one replay."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from stayfast.capacity.plan.options import Option
from stayfast.capacity.plan.planner import Plan
from stayfast.capacity.policies.values import Mode
from stayfast.capacity.replay.scenario import Outcome

COLOURS = {Mode.IDLE: "#d9d9d9", Mode.SPOT: "#2a9d8f", Mode.ON_DEMAND: "#e76f51", Mode.FLEX_START: "#457b9d"}
LABELS = {Mode.IDLE: "waiting", Mode.SPOT: "Spot", Mode.ON_DEMAND: "on-demand", Mode.FLEX_START: "flex-start"}
WIDTH, HEIGHT, BINS = 720, 130, 40

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}tr.chosen{background:#e8f5f1;font-weight:600}tr.out{color:#777}
svg{width:100%;height:auto}.note{color:#555;font-size:.9rem}
@media(prefers-color-scheme:dark){body{background:#161616;color:#eee}td,th{border-color:#444}tr.chosen{background:#12352f}
tr.out,.note{color:#aaa}svg text{fill:#ddd}}
"""


def to_html(plan: Plan, replayed: Outcome | None) -> str:
    """The whole page."""
    name = html.escape(plan.spec.name)
    chosen = html.escape(plan.choice or "nothing fits")
    title = f"{name}: {chosen}"
    body = [
        f"<h1>{title}</h1>",
        f"<p>{plan.spec.nodes} × {html.escape(plan.machine.name)} in {html.escape(plan.region)}</p>",
        _list("Why", plan.because),
        _table(plan),
        "<h2>What it may cost</h2>",
        *(_histogram(option, plan) for option in plan.options if option.costs is not None),
        _timeline(replayed) if replayed else "",
        _list("What would change the answer", [flip.sentence for flip in plan.flips]),
        _list("Advice", plan.advice),
        _note(plan),
    ]
    head = f'<meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">'
    head = f"<head>{head}<style>{_STYLE}</style></head>"
    return f'<!doctype html><html lang="en">{head}<body>{"".join(body)}</body></html>\n'


def _note(plan: Plan) -> str:
    replays = f"{plan.assumptions.windows} replays of each class, seed {plan.assumptions.seed}"
    interval = f"Checkpoint every {_seconds(plan.interval.interval_seconds)}: {html.escape(plan.interval.because)}"
    return f'<p class="note">Based on {html.escape(plan.basis)}; {replays}. {interval}.</p>'


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if math.isfinite(value) else "never"


def _list(title: str, sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return f"<h2>{title}</h2><ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in sentences) + "</ul>"


def _table(plan: Plan) -> str:
    rows = []
    for option in plan.options:
        mark = "chosen" if option.kind == plan.choice else "" if option.feasible else "out"
        cells = [option.kind.value, _money(option.usd_per_hour), *_figures(option)]
        rows.append(f'<tr class="{mark}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    names = ("class", "per hour", "cost p50", "cost p95", "finish p50", "finish p95", "goodput", "in time")
    return "<table><tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>" + "".join(rows) + "</table>"


def _figures(option: Option) -> list[str]:
    if option.cost_usd is None or option.finish_hours is None or option.goodput is None or option.met_share is None:
        return ["-"] * 6
    hours = [f"{value:.1f} h" if math.isfinite(value) else "not done" for value in
             (option.finish_hours.p50, option.finish_hours.p95)]  # fmt: skip
    costs = [_money(option.cost_usd.p50), _money(option.cost_usd.p95)]
    return [*costs, *hours, f"{option.goodput:.1%}", f"{option.met_share:.1%}"]


def _money(value: float | None) -> str:
    return "-" if value is None else f"${value:,.2f}"


def _histogram(option: Option, plan: Plan) -> str:
    top = max(float(other.costs.max()) for other in plan.options if other.costs is not None) or 1.0
    counts = [0] * BINS
    for cost in option.costs.tolist():
        counts[min(BINS - 1, int(cost / top * BINS))] += 1
    high, step = max(counts), WIDTH / BINS
    bars = "".join(
        f'<rect x="{index * step:.1f}" y="{HEIGHT - 20 - count / high * (HEIGHT - 40):.1f}" width="{step - 1:.1f}" '
        f'height="{count / high * (HEIGHT - 40):.1f}" fill="{_colour(option)}"/>'
        for index, count in enumerate(counts)
        if count
    )
    labels = f'<text x="0" y="14" font-size="14">{html.escape(option.kind.value)}</text>'
    labels += f'<text x="0" y="{HEIGHT - 4}" font-size="12">$0</text>'
    labels += f'<text x="{WIDTH}" y="{HEIGHT - 4}" font-size="12" text-anchor="end">{_money(top)}</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="costs of {option.kind.value}">{bars}{labels}</svg>'
    )


def _colour(option: Option) -> str:
    return {
        "spot": COLOURS[Mode.SPOT],
        "flex-start": COLOURS[Mode.FLEX_START],
        "on-demand": COLOURS[Mode.ON_DEMAND],
    }.get(option.kind.value, "#6d597a")


def _timeline(outcome: Outcome) -> str:
    total = sum(ticks for _, _, ticks in outcome.timeline) or 1
    at, bars = 0, []
    for mode, _, ticks in outcome.timeline:
        x, width = at / total * WIDTH, ticks / total * WIDTH
        bars.append(f'<rect x="{x:.2f}" y="20" width="{width:.2f}" height="40" fill="{COLOURS[mode]}"/>')
        at += ticks
    used = dict.fromkeys(mode for mode, _, _ in outcome.timeline)
    legend = "".join(
        f'<rect x="{index * 120}" y="75" width="12" height="12" fill="{COLOURS[mode]}"/>'
        f'<text x="{index * 120 + 18}" y="86" font-size="12">{LABELS[mode]}</text>'
        for index, mode in enumerate(used)
    )
    hours = (outcome.paid_seconds + outcome.waiting_seconds) / 3600
    legend += '<text x="0" y="14" font-size="12">0 h</text>'
    legend += f'<text x="{WIDTH}" y="14" font-size="12" text-anchor="end">{hours:.1f} h</text>'
    finish = "not done" if outcome.finish_hours is None else f"done after {outcome.finish_hours:.1f} h"
    text = f"{finish}, {_money(outcome.cost_usd)}, {outcome.interruptions} interruptions"
    drawing = f'<svg viewBox="0 0 {WIDTH} 95" role="img" aria-label="timeline">{"".join(bars)}{legend}</svg>'
    return f"<h2>One replay</h2><p>{text}</p>{drawing}"
