// One run: its lives on a time line, its pace, its checkpoints, its bill.
import { perform } from "/assets/actions.js";
import { gantt, legend, line, stack } from "/assets/charts.js";
import { ago, ask, bytes, chip, clock, count, duration, el, fill, percent, usd } from "/assets/dom.js";

const SHOWN = 24;

function facts(run) {
  const money = run.money;
  const items = [
    ["Step", `${count(run.step + 1)}${run.total_steps ? ` of ${count(run.total_steps)}` : ""}`], ["Attempt", count(run.attempt)],
    ["Last saved", ago(run.saved_at, run.now)], ["Interruptions", `${count(run.interruptions)}${run.killed ? `, ${count(run.killed)} killed` : ""}`],
    ["Last taken by", run.last_cause || "–"], ["Useful share", percent(money.goodput)], ["Spent", usd(money.spent_usd)],
    ["Per step", money.usd_per_step === null ? "–" : money.usd_per_step < 1e-4 ? `$${(money.usd_per_step * 1e6).toFixed(2)} a million` : `$${money.usd_per_step.toPrecision(3)}`],
  ];
  return el("dl", { class: "facts four" }, items.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function attempts(run) {
  const rows = run.attempts.slice(-SHOWN);
  const table = el("table", {}, el("caption", {}, "What each attempt did, what took it away, what was saved and lost"),
    el("thead", {}, el("tr", {}, ["#", "started", "lasted", "steps saved", "ended by", "safe after", "lost", "machine", "cost"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, [...rows].reverse().map((row) => {
      const end = row.ended_at ?? (row.outcome === "running" ? run.now : null);
      const lost = row.unaccounted_seconds ? `≤ ${duration(row.unaccounted_seconds)}` : row.lost_seconds ? duration(row.lost_seconds) : "nothing";
      const lasted = end === null || row.started_at === null ? "–" : `${row.end_known ? "" : "≤ "}${duration(end - row.started_at)}`;
      return el("tr", { "data-attempt": row.attempt }, el("th", { scope: "row" }, String(row.attempt)), el("td", {}, clock(row.started_at)), el("td", {}, lasted),
        el("td", {}, row.steps ? `${count(row.first_step)}–${count(row.last_step)}` : "none"), el("td", {}, chip(row.outcome), " ", el("span", { class: "sub" }, row.outcome === "lost" ? "" : row.cause || "")),
        el("td", {}, row.safe_seconds === null ? "–" : duration(row.safe_seconds)),
        el("td", {}, row.outcome === "running" ? "–" : lost), el("td", {}, row.machine || "–", el("div", { class: "sub" }, [row.capacity, row.zone].filter(Boolean).join(", "))), el("td", {}, usd(row.usd)));
    })));
  const hidden = run.attempts.length - rows.length + (run.folded.attempts || 0);
  return el("section", { class: "card" }, el("header", {}, el("h2", {}, "Attempts"), hidden ? el("span", { class: "quiet" }, `the last ${rows.length}; ${count(hidden)} before them`) : null),
    gantt(rows, run.now), legend([["useful", "useful work"], ["save", "waiting for saves"], ["lostpart", "lost"], ["maybe", "from the last commit to the next start: lost at most"], ["other", "start-up and the rest"]]),
    el("details", { "data-key": "attempts", open: true }, el("summary", { "data-focus": "attempts" }, "As a table"), el("div", { class: "scroll" }, table)));
}

function charts(run) {
  const pace = run.pace.slice(-400);
  const each = run.attempts.filter((row) => row.started_at !== null);
  const byAttempt = each.filter((row) => row.step_seconds).map((row) => [row.started_at, row.step_seconds, row.outcome]);
  const cost = each.filter((row) => row.save_share !== null).map((row) => [row.started_at, row.save_share, row.outcome]);
  return el("div", { class: "two" },
    el("section", { class: "card" }, el("header", {}, el("h2", {}, "Time per step"), el("span", { class: "quiet" }, pace.length > 1 ? "between commits" : "mean of each attempt")),
      line(pace.length > 1 ? pace : byAttempt, { label: "Seconds per step over time", format: duration, joined: pace.length > 1 })),
    el("section", { class: "card" }, el("header", {}, el("h2", {}, "What checkpoints cost the loop"), el("span", { class: "quiet" }, "share of each attempt's time")),
      line(cost, { label: "Share of time spent waiting for checkpoints, by attempt", format: percent, joined: false })));
}

function money(run) {
  const bill = run.money;
  const parts = [["useful", bill.useful_seconds, "useful work"], ["save", bill.save_seconds, "waiting for saves"], ["lostpart", bill.lost_seconds, "lost"], ["other", bill.other_seconds, "start-up and the rest"]];
  const items = [["Spent", usd(bill.spent_usd)], ["The same on demand", usd(bill.on_demand_usd)], ["Saved", usd(bill.saved_usd)], ["Lost, and starting again", usd(bill.lost_usd)],
    ["Around kills, at most", duration(bill.unaccounted_seconds)], ["Without a known price", duration(bill.unpriced_seconds)]];
  return el("section", { class: "card" }, el("header", {}, el("h2", {}, "Time and money"), el("span", { class: "quiet" }, `${duration(bill.paid_seconds)} paid`)),
    stack(parts, parts.map(([, seconds, text]) => `${duration(seconds)} ${text}`).join(", ")),
    legend(parts.map(([name, seconds, text]) => [name, `${text} ${duration(seconds)}`])),
    el("dl", { class: "facts" }, items.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("p", { class: "quiet small" }, because(bill)));
}

function because(bill) {
  if (bill.on_demand_usd_per_hour === null) return "To see what it saved: start the dashboard with -f stayfast.yaml, or --on-demand-usd-per-hour.";
  return `On demand: the same useful hours, uninterrupted, at ${usd(bill.on_demand_usd_per_hour)} an hour${bill.because ? ` (${bill.because})` : ", as given"}.`;
}

function checkpoints(run, page, state, turn) {
  const rows = page.rows.map((row) => el("tr", {},
    el("th", { scope: "row" }, count(row.step)), el("td", {}, String(row.attempt)), el("td", { class: "right" }, row.counter_only ? "counter only" : bytes(row.bytes)), el("td", {}, row.ranks > 1 ? String(row.ranks) : "–"),
    el("td", {}, ago(row.committed_at, run.now)),
    el("td", { class: "wrap" }, row.counter_only ? "–" : chip(row.verdict), (row.damage || []).map((item) => el("div", { class: "sub trouble" }, `${item.file}: ${item.what}`))),
    el("td", {}, state.actions && !row.counter_only && row.verdict !== "checking" ? el("button", { class: "small", type: "button", "data-focus": `verify-${row.name}`, "aria-label": `Verify the checkpoint of step ${row.step}`, on: {
      click: () => perform({ title: `Verify step ${count(row.step)}?`, text: `Reads all ${bytes(row.bytes)} of it.`, verb: "Verify", path: `/api/runs/${run.id}/verify`, body: { name: row.name } }),
    } }, "Verify") : "")));
  const end = Math.min(page.total, page.offset + page.page);
  const turnTo = (text, offset, possible) => el("button", { class: "small", type: "button", disabled: !possible, "data-focus": `turn-${text}`, on: { click: () => turn(offset) } }, text);
  return el("section", { class: "card" }, el("header", {}, el("h2", {}, "Checkpoints"), el("span", { class: "quiet" }, `${count(page.total)} committed, ${bytes(run.checkpoint_bytes)}`),
    page.total > page.page ? el("span", { class: "push" }, turnTo("Newer", page.offset - page.page, page.offset > 0), `${count(page.offset + 1)}–${count(end)}`, turnTo("Older", end, end < page.total)) : null),
  page.total ? el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "unseen" }, "Committed checkpoints, newest first"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "step"), el("th", { scope: "col" }, "attempt"), el("th", { scope: "col", class: "right" }, "size"), ["ranks", "committed", "bytes on the store", ""].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows))) : el("p", { class: "quiet" }, "None yet."));
}

export function runPage(root, state, id) {
  let offset = 0, busy = false, again = false;
  const load = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const [run, page] = await Promise.all([ask(`/api/runs/${id}`), ask(`/api/runs/${id}/checkpoints?offset=${offset}`)]);
      if (!root.isConnected) return;
      document.title = `${run.name} · stayfast`;
      fill(root, el("section", { class: "card" }, el("header", {}, el("h1", {}, run.name), chip(run.state)), el("code", { class: "quiet" }, run.url),
        run.trouble ? el("p", { class: "trouble" }, run.trouble) : null, facts(run)),
      attempts(run), charts(run), money(run), checkpoints(run, page, state, (to) => { offset = Math.max(0, to); load(); }));
      root.setAttribute("aria-busy", "false");
    } catch (error) {
      fill(root, el("p", { class: "empty" }, error.message));
    } finally {
      busy = false;
      if (again) { again = false; load(); }
    }
  };
  load();
  return { update: (news) => { if (!news || news.runs.some((row) => row.id === id)) load(); }, verified: load };
}
