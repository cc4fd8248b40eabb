// The cluster: every run in words, why it waits, what took it away, when its machines end. Asked for while it is shown.
import { ago, ask, clock, count, duration, el, fill, usd } from "/assets/dom.js";

const EVERY = 5000;
const KIND = { running: "running", finished: "finished", failed: "failed", draining: "interrupted", restarting: "interrupted" };
const ENDED = new Set(["finished", "failed"]);

function tile(name, big, more) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, el("div", { class: "big" }, big), el("div", { class: "more" }, more)));
}

function byCause(rows) {
  const causes = new Map();
  for (const row of rows) for (const [cause, number] of Object.entries(row.interruptions)) causes.set(cause, (causes.get(cause) || 0) + number);
  return [...causes].sort((a, b) => b[1] - a[1]);
}

function tiles(fleet) {
  const phases = (...names) => fleet.runs.filter((row) => names.includes(row.phase));
  const waiting = phases("queued", "pending", "starting", "suspended");
  const longest = Math.max(0, ...waiting.map((row) => row.pending_seconds));
  const causes = byCause(fleet.runs);
  const act = fleet.runs.filter((row) => row.alerts.some(isUrgent) || (row.why && row.why.verdict === "act"));
  const ends = fleet.runs.filter((row) => row.lease_ends_at !== null).map((row) => row.lease_ends_at);
  const pods = phases("running").reduce((sum, row) => sum + (row.pods.running || 0), 0);
  return el("dl", { class: "tiles five" },
    tile("Running", count(phases("running").length), `${count(pods)} pods`),
    tile("Waiting", count(waiting.length), waiting.length ? `longest ${duration(longest)}` : "nothing waits"),
    tile("Need a person", count(act.length), act.length ? act.slice(0, 3).map((row) => row.run).join(", ") : "nothing to do"),
    tile("Interruptions", count(causes.reduce((sum, [, number]) => sum + number, 0)), causes.map(([cause, number]) => `${count(number)} ${cause}`).join(", ") || "none seen"),
    tile("Next lease ends", ends.length ? until(Math.min(...ends), fleet.now) : "–", ends.length ? clock(Math.min(...ends)) : "no machine with a known end"));
}

// A lease that ends is known long before, and the run saves by itself: worth seeing, not worth a person.
function isUrgent(alert) {
  return !alert.code.endsWith("lease-ending");
}

function until(at, now) {
  return at > now ? `in ${duration(at - now)}` : `${duration(now - at)} ago`;
}

function pods(row) {
  if (!Object.entries(row.pods).some(([name, number]) => number && name !== "wanted")) return [ENDED.has(row.phase) ? "its pods are gone" : "no pods yet", ""];
  const others = Object.entries(row.pods).filter(([name, number]) => number && !["wanted", "running"].includes(name)).map(([name, number]) => `${count(number)} ${name}`);
  return [`${count(row.pods.running || 0)} of ${count(row.pods.wanted || 0)} pods`, others.join(", ")];
}

function why(row) {
  const act = row.why && row.why.verdict === "act";
  const parts = row.alerts.map((alert) => el("p", { class: isUrgent(alert) ? "alert" : "soon" }, alert.sentence));
  if (row.why) {
    const more = [...row.why.evidence, ...row.why.also];
    parts.push(el("p", { class: act ? "cause act" : "cause" }, row.why.cause));
    if (row.why.fix && row.why.fix !== "wait") parts.push(el("p", {}, el("b", {}, "do: "), row.why.fix));
    if (row.why.usual_wait) parts.push(el("p", { class: "sub" }, `usual: ${row.why.usual_wait}`));
    if (more.length) {
      parts.push(el("details", { "data-key": `${row.namespace}/${row.name}` }, el("summary", { "data-focus": `why-${row.namespace}-${row.name}` }, "how we know"), el("ul", { class: "evidence" }, more.map((text) => el("li", {}, text)))));
    }
  }
  return parts.length ? el("div", { class: "why" }, parts) : null;
}

function runRow(row, fleet, state) {
  const known = row.run_id && state.runs.has(row.run_id);
  const name = known ? el("a", { href: `#/run/${row.run_id}`, "data-focus": `fleet-${row.namespace}-${row.name}` }, row.run) : el("b", {}, row.run);
  const [have, others] = pods(row);
  const causes = Object.entries(row.interruptions).map(([cause, number]) => `${count(number)} × ${cause}`).join(", ");
  const lease = row.lease_ends_at === null ? null : el("div", { class: "sub" }, `${row.lease_machines > 1 ? `${count(row.lease_machines)} machines, the first ends` : "its machine ends"} ${until(row.lease_ends_at, fleet.now)}`);
  const waits = row.pending_seconds && !ENDED.has(row.phase) ? el("div", { class: "sub" }, `for ${duration(row.pending_seconds)}`) : null;
  const lives = row.attempts ? `${count(row.attempts)} attempt${row.attempts === 1 ? "" : "s"}` : "–";
  return el("li", { "data-fleet": row.run },
    el("div", { class: "name" }, name, el("div", { class: "sub" }, [fleet.namespace === null ? row.namespace : null, row.kind, row.capacity].filter(Boolean).join(", "))),
    el("div", {}, el("span", { class: `chip ${KIND[row.phase] || "waiting"}` }, row.words), waits),
    el("div", {}, have, el("div", { class: "sub" }, others || (row.last_step === null ? "" : `last step told: ${count(row.last_step)}`)), lease),
    el("div", {}, lives, el("div", { class: "sub" }, [causes || (row.attempts ? "not interrupted" : ""), row.failures ? `${count(row.failures)} failed` : ""].filter(Boolean).join(", "))),
    el("div", { class: "cost" }, row.estimated_usd === null ? "–" : `≈ ${usd(row.estimated_usd)}`, el("div", { class: "sub" }, `${duration(row.age_seconds)} old`)),
    why(row));
}

function draw(root, fleet, state) {
  const words = fleet.trouble ? el("p", { class: "trouble", role: "alert" }, fleet.trouble, fleet.at === null ? "" : ` What stands here was seen ${ago(fleet.at, fleet.now)}.`) : null;
  const unseen = Object.entries(fleet.unseen);
  const place = fleet.namespace === null ? "all namespaces" : `namespace ${fleet.namespace}`;
  const empty = fleet.at === null ? (fleet.trouble ? null : el("p", { class: "quiet" }, "Asking the cluster…")) : el("p", { class: "quiet" }, `No runs in ${place}. Those that stayfast submit makes carry the label stayfast.dev/run.`);
  const title = el("header", {}, el("h1", {}, fleet.name), fleet.at === null ? null : el("span", { class: "quiet" }, `${place}, seen ${clock(fleet.at)}`));
  fill(root, fleet.runs.length ? tiles(fleet) : null,
    el("section", { class: "card" }, title, words, fleet.runs.length ? el("ul", { class: "runs fleet" }, fleet.runs.map((row) => runRow(row, fleet, state))) : empty,
      fleet.more ? el("p", { class: "quiet" }, `and ${count(fleet.more)} more that ended earlier`) : null,
      unseen.length ? el("details", { "data-key": "unseen" }, el("summary", { "data-focus": "unseen" }, `${count(unseen.length)} kinds could not be read`), el("ul", { class: "evidence" }, unseen.map(([kind, text]) => el("li", {}, `${kind}: ${text}`)))) : null,
      fleet.runs.length ? el("p", { class: "quiet small" }, "Attempts, interruptions and money of pods that still exist; a run's own page has all of them, from its ledger.") : null));
}

export function fleetPage(root, state) {
  document.title = "Fleet · stayfast";
  fill(root, el("section", { class: "card" }, el("header", {}, el("h1", {}, "Fleet")), el("p", { class: "quiet" }, "Asking the cluster…")));
  let busy = false;
  const load = async () => {
    if (!root.isConnected) { clearInterval(timer); return; }
    if (busy || document.hidden) return;
    busy = true;
    try {
      const fleet = await ask("/api/fleet");
      if (root.isConnected) draw(root, fleet, state);
    } catch (error) {
      if (root.isConnected && !root.querySelector(".runs")) fill(root, el("h1", { class: "unseen" }, "Fleet"), el("p", { class: "empty" }, error.message));
    } finally {
      busy = false;
    }
  };
  const timer = setInterval(load, EVERY);
  queueMicrotask(load);
  return { update: () => {} };
}
