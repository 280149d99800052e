// A chart in SVG: bands, lines, points and levels over one axis; read by pointer, by arrow keys, or as a sentence.

import { h, s, number } from "./dom.js";

const LEFT = 56, RIGHT = 12, TOP = 8, BOTTOM = 24;
let count = 0;

export function chart({ title, height = 170, x = "experiment", legend = [], rows = true }) {
  const id = `chart-${++count}`;
  const svg = s("svg", { role: "img", tabindex: "0", "aria-labelledby": `${id}-t ${id}-d`, height });
  const readout = h("output", { class: "readout", "aria-live": "polite" });
  const plot = h("div", { class: "plot" }, svg, readout);
  const caption = h("figcaption", {}, h("span", {}, title), legend.length ? h("span", { class: "legend" }, legend.map(key)) : null);
  const element = h("figure", { class: "chart" }, caption, plot);
  let data = null, at = null, frame = 0;

  const draw = () => {
    frame = 0;
    const width = plot.clientWidth;
    if (!data || width < 40) return;
    const view = scales(data, width, height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren(
      s("title", { id: `${id}-t` }, title), s("desc", { id: `${id}-d` }, data.words || ""),
      ...axes(view, width, height, x, data.ticks), ...marks(data, view, width));
    if (rows && at !== null) point(view);
  };
  const point = (view) => {
    const i = nearest(data.x, at);
    if (i < 0) return;
    svg.append(s("line", { class: "cursor", x1: view.x(data.x[i]), x2: view.x(data.x[i]), y1: TOP, y2: height - BOTTOM }));
    readout.textContent = data.read ? data.read(i) : "";
  };
  const later = () => { frame ||= requestAnimationFrame(draw); };
  new ResizeObserver(later).observe(plot);
  if (rows) {
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), view = data && scales(data, box.width, height);
      if (view) { at = view.back(event.clientX - box.left); later(); }
    });
    svg.addEventListener("pointerleave", () => { at = null; readout.textContent = ""; later(); });
    svg.addEventListener("blur", () => { at = null; readout.textContent = ""; later(); });
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move || !data || !data.x.length) return;
      event.preventDefault();
      const i = at === null ? data.x.length - 1 : nearest(data.x, at) + move;
      at = data.x[Math.min(Math.max(i, 0), data.x.length - 1)];
      later();
    });
  }
  return { element, show(found) { data = found; later(); } };
}

function key([kind, label]) {
  const mark = kind.startsWith("band") ? s("rect", { class: kind, width: 20, height: 10 })
    : kind.startsWith("dot") ? s("circle", { class: kind, cx: 10, cy: 5, r: 3 }) : s("line", { class: `line ${kind}`, x1: 0, x2: 20, y1: 5, y2: 5 });
  return h("span", {}, s("svg", { viewBox: "0 0 20 10", "aria-hidden": "true" }, mark), label);
}

const finite = (values) => values.filter((value) => value !== null && Number.isFinite(value));

function scales(data, width, height) {
  const own = finite([...(data.bands || []).flatMap((b) => [...b.low, ...b.high]), ...(data.lines || []).flatMap((l) => l.y), ...(data.points || []).flatMap((p) => p.y), ...(data.include || [])]);
  let low = own.length ? own.reduce((a, b) => Math.min(a, b)) : 0, high = own.length ? own.reduce((a, b) => Math.max(a, b)) : 1;
  const reach = (high - low) || Math.abs(high) || 1;
  for (const level of data.levels || []) if (level.value > low - reach && level.value < high + reach) { low = Math.min(low, level.value); high = Math.max(high, level.value); }
  const pad = 0.06 * ((high - low) || Math.abs(high) || 1);
  if (!data.floor) low -= pad;
  high += pad;
  const [from, to] = data.domain;
  const x = (value) => LEFT + ((value - from) / ((to - from) || 1)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + ((high - value) / (high - low)) * (height - TOP - BOTTOM);
  const back = (pixel) => from + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (to - from);
  return { x, y, back, low, high, from, to };
}

function ticks(low, high, most) {
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((value) => value >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(Math.abs(value) < 1e-9 * step ? 0 : value);
  return found;
}

function axes(view, width, height, label, quiet) {
  const found = [], bottom = height - BOTTOM;
  if (!quiet) for (const value of ticks(view.low, view.high, height < 140 ? 4 : 6)) {
    found.push(s("line", { class: "grid-line", x1: LEFT, x2: width - RIGHT, y1: view.y(value), y2: view.y(value) }));
    found.push(s("text", { x: LEFT - 6, y: view.y(value) + 4, "text-anchor": "end" }, number(value, 3)));
  }
  for (const value of ticks(view.from, view.to, Math.max(5, Math.min(8, (width - LEFT) / 70)))) {
    if (view.x(value) > width - RIGHT - 8 * label.length) continue;
    found.push(s("text", { x: view.x(value), y: height - 7, "text-anchor": "middle" }, number(value, 3)));
  }
  found.push(s("text", { x: width - RIGHT, y: height - 7, "text-anchor": "end" }, label));
  found.push(s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom }));
  return found;
}

function path(x, y, view, steps) {
  let text = "", open = false;
  for (let i = 0; i < x.length; i++) {
    if (y[i] === null || y[i] === undefined || !Number.isFinite(y[i])) { open = false; continue; }
    const px = view.x(x[i]).toFixed(1), py = view.y(y[i]).toFixed(1);
    text += open ? (steps ? `H${px}V${py}` : `L${px} ${py}`) : `M${px} ${py}`;
    open = true;
  }
  return text;
}

function area(x, low, high, view) {
  const runs = [];
  let run = [];
  for (let i = 0; i <= x.length; i++) {
    if (i < x.length && Number.isFinite(low[i]) && Number.isFinite(high[i]) && low[i] !== null && high[i] !== null) run.push(i);
    else { if (run.length) runs.push(run); run = []; }
  }
  const at = (i, values) => `${view.x(x[i]).toFixed(1)} ${view.y(values[i]).toFixed(1)}`;
  const alone = (i) => `M${(view.x(x[i]) - 2).toFixed(1)} ${view.y(high[i]).toFixed(1)}h4V${view.y(low[i]).toFixed(1)}h-4Z`; // it would have no width
  return runs.map((run) => (run.length === 1 ? alone(run[0]) : `M${run.map((i) => at(i, high)).join("L")}L${[...run].reverse().map((i) => at(i, low)).join("L")}Z`)).join("");
}

function marks(data, view, width) {
  const found = [];
  for (const band of data.bands || []) found.push(s("path", { class: band.kind, d: area(band.x || data.x, band.low, band.high, view) }));
  for (const level of data.levels || []) {
    if (level.value < view.low || level.value > view.high) continue;
    found.push(s("line", { class: `line thin ${level.kind || "red dashed"}`, x1: LEFT, x2: width - RIGHT, y1: view.y(level.value), y2: view.y(level.value) }));
    if (level.label) found.push(s("text", { x: width - RIGHT - 2, y: view.y(level.value) - 4, "text-anchor": "end" }, level.label));
  }
  for (const line of data.lines || []) found.push(s("path", { class: `line ${line.kind}`, d: path(line.x || data.x, line.y, view, line.steps) }));
  for (const set of data.points || []) {
    const x = set.x || data.x, r = x.length > 150 ? 1.5 : 2.4;
    set.y.forEach((value, i) => { if (value !== null && Number.isFinite(value)) found.push(s("circle", { class: `dot ${set.kind}`, cx: view.x(x[i]).toFixed(1), cy: view.y(value).toFixed(1), r })); });
  }
  for (const mark of data.marks || []) if (mark.x >= view.from && mark.x <= view.to) found.push(s("line", { class: `line ${mark.kind}`, x1: view.x(mark.x), x2: view.x(mark.x), y1: TOP, y2: view.y(view.low) }));
  return found;
}

function nearest(x, value) {
  let best = -1;
  for (let i = 0; i < x.length; i++) if (best < 0 || Math.abs(x[i] - value) < Math.abs(x[best] - value)) best = i;
  return best;
}
