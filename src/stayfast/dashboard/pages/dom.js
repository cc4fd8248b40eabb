// Elements from plain values. Text always becomes a text node: nothing that a run or an item is called can be markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

// Put new content in place of old, and leave the keyboard where it was.
export function fill(root, ...children) {
  const key = root.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  const open = new Set([...root.querySelectorAll("details[open]")].map((node) => node.dataset.key));
  root.replaceChildren(...children.flat().filter(Boolean));
  for (const node of root.querySelectorAll("details")) if (open.has(node.dataset.key)) node.open = true;
  if (key) for (const node of root.querySelectorAll("[data-focus]")) if (node.dataset.focus === key) node.focus({ preventScroll: true });
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (!seconds) return "0 s";
  if (seconds < 1e-3 && seconds > 0) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1 && seconds > 0) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

export function bytes(count) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (count < 1000) return unit === "B" ? `${count} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1000;
  }
  return `${count.toFixed(1)} TB`;
}

export function usd(value) {
  if (value === null || value === undefined) return "–";
  if (value && Math.abs(value) < 0.0001) return "< $0.0001";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 0.1 || value === 0 ? 2 : 4;
  const text = Math.abs(value).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return (value < 0 ? "−$" : "$") + text;
}

export function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(value * 100).toFixed(value > 0 && value < 0.1 ? 2 : 1)} %`;
}

export function clock(at, span = 0) {
  if (at === null || at === undefined) return "–";
  const moment = new Date(at * 1000);
  const time = moment.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: span && span > 7200 ? undefined : "2-digit" });
  if (span > 86400 || Date.now() / 1000 - at > 86400) {
    return `${moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time.slice(0, 5)}`;
  }
  return time;
}

export function ago(at, now) {
  return at === null || at === undefined ? "never" : `${duration(Math.max(0, now - at))} ago`;
}

export const WORDS = {
  running: "running", finished: "finished", interrupted: "interrupted", stopped: "stopped", failed: "failed", lost: "killed", waiting: "waiting",
  broken: "unreadable", whole: "every byte verified", complete: "complete", checking: "checking…", damaged: "damaged",
  unreadable: "unreadable", pruned: "pruned meanwhile", unknown: "not looked at",
};

export function chip(state) {
  return el("span", { class: `chip ${state}` }, WORDS[state] || state);
}

export async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}
