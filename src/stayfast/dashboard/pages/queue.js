// One queue: depth and throughput as watched from here, and its dead letters.
import { perform } from "/assets/actions.js";
import { legend, line } from "/assets/charts.js";
import { ask, count, el, fill } from "/assets/dom.js";
import { QUEUE_LEGEND, queueCard } from "/assets/overview.js";

// rows: [at, ready, delayed, leased, done, dead]
function throughput(rows) {
  const points = [];
  for (let index = 1; index < rows.length; index += 1) {
    const seconds = rows[index][0] - rows[index - 1][0];
    if (seconds > 0.05) points.push([rows[index][0], Math.max(0, (rows[index][4] - rows[index - 1][4]) / seconds)]);
  }
  return points;
}

function deadLetters(queue, state) {
  const all = queue.depth ? queue.depth.dead : queue.dead.length;
  const retry = (keys, text) => perform({
    title: keys === null ? `Retry all ${count(all)} dead letters?` : "Retry this item?", text, verb: "Retry", path: `/api/queues/${queue.id}/retry`, body: { keys },
    done: (answer) => `${count(answer.retried)} ready again`,
  });
  const rows = queue.dead.map((item) => {
    const last = item.reason.trim().split("\n").pop() || "no reason recorded";
    return el("tr", {}, el("th", { scope: "row", class: "wrap" }, el("code", {}, item.key)), el("td", {}, count(item.failures)),
      el("td", { class: "wrap" }, el("details", { "data-key": item.key }, el("summary", { "data-focus": `why-${item.key}` }, last), el("pre", {}, item.reason), el("pre", {}, item.payload))),
      el("td", {}, state.actions ? el("button", { class: "small", type: "button", "data-focus": `retry-${item.key}`, "aria-label": `Retry ${item.key}`, on: { click: () => retry([item.key], item.key) } }, "Retry") : ""));
  });
  return el("section", { class: "card", id: "dead" }, el("header", {}, el("h2", {}, "Dead letters"), el("span", { class: "quiet" }, all > rows.length ? `${count(rows.length)} of ${count(all)}` : count(all)),
    el("span", { class: "push" }, all && state.actions ? el("button", { class: "main", type: "button", "data-focus": "retry-all", on: { click: () => retry(null, "They become ready at once, with a clean record.") } }, "Retry all")
      : all ? el("span", { class: "quiet" }, "read-only: start with --allow-actions to retry") : null)),
  rows.length ? el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "unseen" }, "Items that were given up"),
    el("thead", {}, el("tr", {}, ["key", "failures", "why", ""].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows))) : el("p", { class: "quiet" }, "None. Every item was done or is still to do."));
}

export function queuePage(root, state, id) {
  let busy = false, again = false;
  const load = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const queue = await ask(`/api/queues/${id}`);
      if (!root.isConnected) return;
      document.title = `${queue.name} · stayfast`;
      const open = queue.history.map((row) => [row[0], row[1] + row[2] + row[3]]);
      fill(root, el("h1", { class: "unseen" }, queue.name), queueCard(queue), legend(QUEUE_LEGEND), el("p", {}, el("code", { class: "quiet" }, queue.url)),
        el("div", { class: "two" },
          el("section", { class: "card" }, el("header", {}, el("h2", {}, "Left to do"), el("span", { class: "quiet" }, "since the dashboard was opened")), line(open, { label: "Open items over time", format: (value) => count(Math.round(value)) })),
          el("section", { class: "card" }, el("header", {}, el("h2", {}, "Done per second")), line(throughput(queue.history), { label: "Items done per second over time", format: (value) => value.toFixed(value < 10 ? 1 : 0) }))),
        deadLetters(queue, state));
      root.setAttribute("aria-busy", "false");
    } catch (error) {
      fill(root, el("p", { class: "empty" }, error.message));
    } finally {
      busy = false;
      if (again) { again = false; load(); }
    }
  };
  load();
  return { update: (news) => { if (!news || news.queues.some((row) => row.id === id)) load(); } };
}
