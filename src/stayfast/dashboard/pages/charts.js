// Pictures of time: bars as positioned boxes, lines as SVG. Every picture has a sentence for those who do not see it.
import { clock, duration, el, svg } from "/assets/dom.js";

export function span(rows, now) {
  let from = now, to = 0;
  for (const [start, end] of rows) {
    if (start === null) continue;
    from = Math.min(from, start);
    to = Math.max(to, end === null ? now : end);
  }
  if (to <= from) to = from + 1;
  return [from, to];
}

function place(node, from, to, start, end) {
  const width = to - from;
  const left = Math.max(0, (start - from) / width), right = Math.min(1, (end - from) / width);
  node.style.left = `${left * 100}%`;
  node.style.width = `${Math.max(0, right - left) * 100}%`;
}

export function strip(row, [from, to], now) {
  const bars = [];
  const counts = {};
  for (const [start, end, outcome] of row.strip || []) {
    counts[outcome] = (counts[outcome] || 0) + 1;
    const last = end === null ? (outcome === "running" ? now : start) : end;
    if (start === null || last < from || start > to) continue;
    const bar = el("i", { class: outcome });
    place(bar, from, to, start, Math.max(last, start));
    bars.push(bar);
  }
  const label = Object.entries(counts).map(([name, number]) => `${number} ${name === "lost" ? "killed" : name}`).join(", ");
  return el("div", { class: "strip", role: "img", "aria-label": `Attempts: ${label || "none yet"}` }, bars);
}

export function gantt(attempts, now) {
  const [from, to] = span(attempts.map((row) => [row.started_at, row.ended_at]), now);
  const cells = [];
  for (const row of attempts) {
    const lane = el("div", { class: "lane" });
    if (row.started_at !== null) {
      const end = row.ended_at === null ? (row.outcome === "running" ? now : row.started_at) : row.ended_at;
      const bar = el("div", { class: `bar ${row.outcome}` });
      place(bar, from, to, row.started_at, end);
      const wall = Math.max(end - row.started_at, row.useful_seconds + row.save_seconds + row.lost_seconds, 1e-6);
      for (const [name, seconds] of [["useful", row.useful_seconds], ["save", row.save_seconds], ["lostpart", row.lost_seconds]]) {
        const part = el("b", { class: name });
        part.style.width = `${(seconds / wall) * 100}%`;
        bar.append(part);
      }
      if (row.unaccounted_seconds) {
        const part = el("b", { class: "maybe" });
        part.style.width = `${(row.unaccounted_seconds / wall) * 100}%`;
        bar.append(part);
      }
      bar.title = `attempt ${row.attempt}: ${duration(end - row.started_at)}, ${duration(row.useful_seconds)} useful`;
      lane.append(bar);
    }
    const why = row.outcome === "running" ? "running" : row.cause || row.outcome;
    cells.push(el("span", { class: "number" }, `#${row.attempt}`), lane, el("span", { class: `why ${row.outcome}` }, why));
  }
  const axis = el("div", { class: "axis" }, el("span", {}, clock(from, to - from)), el("span", {}, clock(to, to - from)));
  return [el("div", { class: "gantt", "aria-hidden": "true" }, cells, el("span"), axis, el("span"))];
}

export function legend(items) {
  return el("ul", { class: "legend" }, items.map(([name, text]) => el("li", {}, el("i", { class: name }), text)));
}

export function stack(parts, label) {
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  const bar = el("div", { class: "stack", role: "img", "aria-label": label });
  for (const [name, value] of parts) {
    if (!value) continue;
    const part = el("i", { class: name });
    part.style.width = `${(value / total) * 100}%`;
    bar.append(part);
  }
  return bar;
}

// points: [x seconds, y, class?]; x is an instant
export function line(points, { label, format, height = 150, joined = true }) {
  const width = Math.max(280, Math.min(560, document.documentElement.clientWidth - 72)), left = 58, bottom = 20, top = 8;
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (!points.length) return el("p", { class: "quiet" }, "Nothing measured yet.");
  const xs = points.map((point) => point[0]);
  const from = Math.min(...xs), to = Math.max(...xs);
  const most = (Math.max(...points.map((point) => point[1])) || 1) * 1.12;  // nothing but zeros still has a scale
  const x = (value) => left + (to > from ? (value - from) / (to - from) : 0.5) * (width - left - 10);
  const y = (value) => top + (1 - value / most) * (height - top - bottom);
  for (const share of [0, 0.5, 1]) {
    const value = most * share;
    drawing.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }));
    drawing.append(svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  drawing.append(svg("text", { x: left, y: height - 3 }, clock(from, to - from)));
  if (to > from) drawing.append(svg("text", { x: width, y: height - 3, "text-anchor": "end" }, clock(to, to - from)));
  if (joined && points.length > 1) {
    const path = points.map((point, index) => `${index ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
    drawing.append(svg("path", { class: "area", d: `${path}L${x(to).toFixed(1)} ${y(0)}L${x(from).toFixed(1)} ${y(0)}Z` }));
    drawing.append(svg("path", { class: "line", d: path }));
  }
  if (points.length <= 120) {
    for (const [at, value, kind] of points) {
      const dot = svg("circle", { class: `dot ${kind || ""}`, cx: x(at).toFixed(1), cy: y(value).toFixed(1), r: joined ? 2.4 : 3.6 });
      dot.append(svg("title", {}, `${clock(at)}: ${format(value)}`));
      drawing.append(dot);
    }
  }
  return drawing;
}
