// The first page: what there is, how it fares, what it costs.
import { legend, span, stack, strip } from "/assets/charts.js";
import { ago, chip, clock, count, duration, el, fill, percent, setText, usd } from "/assets/dom.js";

const ORDER = { running: 0, failed: 1, interrupted: 2, stopped: 2, broken: 3, waiting: 4, finished: 5 };
const WINDOWS = [["all", "all time"], ["3600", "last hour"], ["86400", "last day"], ["604800", "last week"]];
const FIRST = 40;

function sum(rows, pick) {
  return rows.reduce((total, row) => total + (pick(row) || 0), 0);
}

function tile(name, big, more) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, el("div", { class: "big" }, big), el("div", { class: "more" }, more)));
}

function tiles(state) {
  const runs = [...state.runs.values()].filter((row) => row.money);
  const by = (name) => runs.filter((row) => row.state === name).length;
  const money = (name) => sum(runs, (row) => row.money[name]);
  const paid = money("paid_seconds");
  const priced = runs.filter((row) => row.money.spent_usd !== null && row.money.paid_seconds);
  const killed = sum(runs, (row) => row.killed);
  const unpriced = money("unpriced_seconds");
  const saved = priced.filter((row) => row.money.saved_usd !== null);
  const rest = [by("finished") && `${by("finished")} finished`, by("interrupted") && `${by("interrupted")} waiting for a machine`, by("stopped") && `${by("stopped")} stopped`,
    by("failed") && `${by("failed")} failed`].filter(Boolean).join(", ");
  return el("dl", { class: "tiles" },
    tile("Runs", `${by("running")} running`, rest || `${runs.length} in all`),
    tile("Interruptions", count(sum(runs, (row) => row.interruptions)), killed ? `${count(killed)} without a warning` : sum(runs, (row) => row.interruptions) ? "all with a warning" : "none so far"),
    tile("Useful time", paid ? percent(money("useful_seconds") / paid) : "–", paid ? `${duration(money("useful_seconds"))} of ${duration(paid)}` : "nothing measured yet"),
    tile("Lost", duration(money("lost_seconds")), money("unaccounted_seconds") ? `and ≤ ${duration(money("unaccounted_seconds"))} around kills` : money("lost_seconds") ? "work done again" : "nothing done twice"),
    tile("Spent", priced.length ? usd(sum(priced, (row) => row.money.spent_usd)) : "–", unpriced ? `and ${duration(unpriced)} unpriced` : "by the runs' ledgers"),
    tile("Saved", saved.length ? usd(sum(saved, (row) => row.money.saved_usd)) : "–",
      saved.length ? `${usd(sum(saved, (row) => row.money.on_demand_usd))} on demand${saved.length < priced.length ? `, ${saved.length} of ${priced.length} runs` : ""}` : state.onDemand ? "nothing priced yet" : "no on-demand price: -f FILE"));
}

function runRow(row, window, now) {
  const link = el("a", { href: `#/run/${row.id}`, "data-focus": `run-${row.id}` }, row.name);
  const sub = el("div", { class: "sub" });
  const state = el("div", {}, chip(row.state));
  const step = el("div", { class: "step" });
  const cost = el("div", { class: "cost" });
  const lane = el("div", { class: "span" });
  const node = el("li", { "data-run": row.id }, el("div", { class: "name" }, link, sub), state, step, lane, cost);
  const update = (row, window, now) => {
    setText(sub, row.trouble || row.where || (row.saved_at ? `saved ${ago(row.saved_at, now)}` : "nothing saved yet"));
    sub.classList.toggle("trouble", Boolean(row.trouble));
    if (state.firstChild.className !== `chip ${row.state}`) fill(state, chip(row.state));
    if (row.money) {
      const total = row.total_steps;
      const bar = el("div", { class: "progress", role: "progressbar", "aria-label": `Progress of ${row.name}`, "aria-valuemin": 0, "aria-valuemax": total || 1, "aria-valuenow": row.step + 1 }, el("i"));
      bar.firstChild.style.width = total ? `${Math.min(100, ((row.step + 1) / total) * 100)}%` : "0";
      fill(step, el("span", { class: "number" }, `${count(row.step + 1)}${total ? ` of ${count(total)}` : ""}`), total ? bar : null, el("div", { class: "sub" }, `steps, attempt ${row.attempt}`));
      fill(lane, strip(row, window, now));
      fill(cost, usd(row.money.spent_usd), el("div", { class: "sub" }, row.money.goodput === null ? "" : `${percent(row.money.goodput)} useful`));
    }
  };
  update(row, window, now);
  return { node, update };
}

export function queueCard(queue) {
  const depth = queue.depth;
  const left = depth ? depth.ready + depth.delayed + depth.leased : 0;
  const all = depth ? left + depth.done + depth.dead : 0;
  const facts = depth ? [["Left", count(left)], ["Done", `${count(depth.done)} of ${count(all)}`],
    ["Throughput", queue.per_second === null ? "–" : `${queue.per_second >= 10 || !queue.per_second ? queue.per_second.toFixed(0) : queue.per_second.toFixed(1)} /s`],
    ["Oldest open item", left ? `at least ${duration(queue.oldest_seconds)}` : "–"], ["Dead letters", count(depth.dead)]] : [];
  return el("section", { class: "card", "data-queue": queue.id },
    el("header", {}, el("h2", {}, el("a", { href: `#/queue/${queue.id}`, "data-focus": `queue-${queue.id}` }, queue.name)), el("span", { class: "quiet" }, "queue"),
      depth && depth.dead ? el("span", { class: "chip damaged" }, `${count(depth.dead)} dead`) : null),
    queue.trouble ? el("p", { class: "trouble" }, queue.trouble) : null,
    depth ? stack(["done", "leased", "ready", "delayed", "dead"].map((name) => [name, depth[name]]), `${depth.done} done, ${depth.leased} leased, ${depth.ready} ready, ${depth.delayed} delayed, ${depth.dead} dead`) : null,
    depth ? el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))) : null);
}

export const QUEUE_LEGEND = [["done", "done"], ["leased", "leased"], ["ready", "ready"], ["delayed", "waiting after a failure"], ["dead", "dead letter"]];

export function queuesPage(root, state) {
  const draw = () => fill(root, el("h1", { class: "unseen" }, "Queues"),
    state.queues.size ? el("div", { class: "two" }, [...state.queues.values()].map(queueCard)) : el("p", { class: "empty" }, "No queue was named. Start the dashboard with --queue URL."),
    state.queues.size ? legend(QUEUE_LEGEND) : null);
  draw();
  return { update: draw };
}

export function overviewPage(root, state) {
  const head = el("div"), queues = el("div", { class: "two" }), list = el("ul", { class: "runs" }), more = el("div");
  const axis = el("div", { class: "axis" });
  const filter = el("input", { type: "search", placeholder: "filter", "aria-label": "Filter runs by name, state or place" });
  const choice = el("select", { "aria-label": "Time shown" }, WINDOWS.map(([value, text]) => el("option", { value }, text)));
  const rows = new Map();
  let shown = FIRST;
  const runs = el("section", { class: "card" }, el("header", {}, el("h2", {}, "Runs"), el("span", { class: "push" }, filter, choice)), list, el("div", { class: "under" }, more, axis),
    legend([["useful", "work"], ["running", "running"], ["interrupted", "ended by a notice"], ["lostpart", "killed"], ["other", "no machine"]]));
  const empty = el("p", { class: "empty" }, "No runs here yet. The first commit of a run makes it appear.");
  fill(root, el("h1", { class: "unseen" }, "Runs"), head, queues, runs, empty);

  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...state.runs.values()].filter((row) => words.every((word) => `${row.name} ${row.state} ${row.where || ""}`.toLowerCase().includes(word)));
    all.sort((a, b) => ORDER[a.state] - ORDER[b.state] || (b.saved_at || 0) - (a.saved_at || 0) || (a.name < b.name ? -1 : 1));
    const now = state.now();
    const window = choice.value === "all" ? span(all.flatMap((row) => row.strip || []), now) : [now - Number(choice.value), now];
    fill(axis, el("span", {}, clock(window[0], window[1] - window[0])), el("span", {}, clock(window[1], window[1] - window[0])));
    const chosen = all.slice(0, shown);
    const nodes = chosen.map((row) => {
      const known = rows.get(row.id);
      if (known) { known.update(row, window, now); return known.node; }
      const made = runRow(row, window, now);
      rows.set(row.id, made);
      return made.node;
    });
    if (nodes.length !== list.children.length || nodes.some((node, index) => list.children[index] !== node)) fill(list, nodes);
    fill(more, all.length > shown ? el("button", { type: "button", "data-focus": "more", on: { click: () => { shown += 200; draw(); } } }, `Show ${count(all.length - shown)} more`) : null);
    fill(head, tiles(state), state.troubles.map((item) => el("p", { class: "trouble" }, `${item.url}: ${item.what}`)));
    fill(queues, [...state.queues.values()].map(queueCard));
    runs.hidden = !state.runs.size;
    empty.hidden = Boolean(state.runs.size || state.queues.size);
  };
  filter.addEventListener("input", draw);
  choice.addEventListener("change", draw);
  draw();
  return { update: draw, tick: draw };
}
