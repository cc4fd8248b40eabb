// Where we are, what we know, and the stream that keeps it true.
import { ask, el, fill, WORDS } from "/assets/dom.js";
import { fleetPage } from "/assets/fleet.js";
import { overviewPage, queuesPage } from "/assets/overview.js";
import { queuePage } from "/assets/queue.js";
import { runPage } from "/assets/run.js";

const live = document.getElementById("live");
const news = document.getElementById("news");
const state = { runs: new Map(), queues: new Map(), troubles: [], fleet: false, actions: false, onDemand: false, skew: 0, now: () => Date.now() / 1000 + state.skew };
let page = null;

// One row per page: the first word of its address, the link of the header that it belongs to, what it draws; ``of`` where
// an identity has to follow. The first row answers for every other address.
const PAGES = [
  { name: "", nav: "overview", draw: overviewPage },
  { name: "run", nav: "overview", of: true, draw: runPage },
  { name: "queues", nav: "queues", draw: queuesPage },
  { name: "queue", nav: "queues", of: true, draw: queuePage },
  { name: "fleet", nav: "fleet", draw: fleetPage },
];
const IDENTITY = /^[0-9a-f]{16}$/;

function sayLive(kind, words) {
  live.className = `live ${kind}`;
  live.lastElementChild.textContent = words;
}

function route() {
  const [, name = "", id = ""] = location.hash.split("/");
  const root = el("div", {});
  const main = document.getElementById("main");
  main.replaceChildren(root);
  document.title = "stayfast";
  const found = PAGES.find((row) => row.name === name && (!row.of || IDENTITY.test(id))) || PAGES[0];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === found.nav) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  page = found.draw(root, state, id);
  main.setAttribute("aria-busy", "false");
}

function take(rows) {
  state.skew = rows.now - Date.now() / 1000;
  for (const row of rows.runs) state.runs.set(row.id, row);
  for (const row of rows.queues) state.queues.set(row.id, row);
  for (const id of rows.gone || []) state.runs.delete(id);
  state.troubles = rows.troubles;
}

// For those who listen: what an attempt's beginning or a run's end is worth saying.
function announce(before, row) {
  if (!before || !row.money) return;
  if (row.state !== before.state && row.state !== "running") news.textContent = `${row.name} is ${WORDS[row.state]}`;
  else if (row.attempt > before.attempt) news.textContent = `${row.name}: attempt ${row.attempt} began, ${row.last_cause || ""}`;
}

async function load() {
  const all = await ask("/api/overview");
  state.runs.clear();
  state.queues.clear();
  Object.assign(state, { actions: all.actions, onDemand: all.on_demand, fleet: all.fleet });
  document.querySelector('nav a[data-page="fleet"]').hidden = !all.fleet;
  take(all);
}

function listen() {
  const source = new EventSource("/events");
  let first = true;
  source.addEventListener("open", async () => {
    sayLive("on", "live");
    if (first) { first = false; return; }
    await load();  // what happened while we were away
    page.update();
  });
  source.addEventListener("error", () => sayLive("off", "reconnecting"));
  source.addEventListener("news", (event) => {
    const rows = JSON.parse(event.data);
    for (const row of rows.runs) announce(state.runs.get(row.id), row);
    take(rows);
    page.update(rows);
  });
  source.addEventListener("verified", () => page.verified && page.verified());
}

const theme = document.getElementById("theme");
function paint(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
}
paint(localStorage.getItem("theme"));
theme.addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("theme", dark ? "light" : "dark");
  paint(dark ? "light" : "dark");
});
addEventListener("hashchange", () => { route(); document.getElementById("main").focus(); scrollTo(0, 0); });
let resized = 0;
addEventListener("resize", () => {  // pictures are drawn for a width
  clearTimeout(resized);
  resized = setTimeout(() => { if (page) page.update(); }, 200);
});
setInterval(() => { if (!document.hidden && page && page.tick) page.tick(); }, 10000);

try {
  await load();
  route();
  performance.mark("painted");
  listen();
} catch (error) {
  fill(document.getElementById("main"), el("p", { class: "empty" }, error.message));
  sayLive("off", "no answer");
}
