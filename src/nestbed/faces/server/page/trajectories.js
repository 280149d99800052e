// Sensors and hidden states with what was predicted, the inputs that were applied, and what they have told.

import { chart } from "./chart.js";
import { h, named, number, withUnit } from "./dom.js";

const domain = ({ session, course }) => [0, Math.max(10, session.horizon || 0, course.length ? course[course.length - 1].step : 0)];

export function trajectories(setup) {
  const sensors = setup.sensors.map((one) => [one, chart({ title: named(one), height: 180, legend: [["dot ink", "measured"], ["line blue", "predicted"], ["band-blue", "95 %"], ...(one.low !== null || one.high !== null ? [["red dashed", "limit"]] : [])] })]);
  const hidden = setup.hidden.map((one) => [one, chart({ title: named(one), height: 150, legend: [["line blue", "believed"], ["band-blue", "95 %"], ...(one.low !== null || one.high !== null ? [["red dashed", "limit"]] : [])] })]);
  const card = (title, charts) => h("section", { class: "card" }, h("h2", {}, title), charts.map(([, one]) => one.element));
  const others = setup.limits.length ? h("p", { class: "hint" }, `Also limited: ${setup.limits.map((one) => `${named(one)} ${one.low === null ? "" : `≥ ${number(one.low)} `}${one.high === null ? "" : `≤ ${number(one.high)}`}`).join(", ")}.`) : null;
  const elements = [card("Seen", sensors), hidden.length ? card("Hidden states", hidden) : null].filter(Boolean);
  if (others) elements[0].append(others);
  return { elements, show(state) { sensors.forEach(([one, plot]) => plot.show(seen(one, state))); hidden.forEach(([one, plot]) => plot.show(believed(one, state))); } };
}

const levels = (one) => [one.low, one.high].filter((value) => value !== null).map((value) => ({ value }));

function seen(one, state) {
  const { course } = state;
  const last = state.session.step;
  const steps = Array.from({ length: domain(state)[1] + 1 }, (_, i) => i);
  const at = (values) => { const found = Array(steps.length).fill(null); for (const [i, value] of values) if (i < found.length) found[i] = value; return found; };
  const predicted = (k) => at(course.flatMap((line) => [line.predicted && [line.step, line.predicted[one.name][k]], line.next && [line.step + 1, line.next[one.name][k]]].filter(Boolean)));
  const y = at(course.filter((line) => line.y).map((line) => [line.step, line.y[one.name]]));
  const [mean, low, high] = [0, 1, 2].map(predicted);
  const next = mean[last + 1] === undefined || mean[last + 1] === null ? "" : ` Next: predicted ${number(mean[last + 1], 3)}, 95 % from ${number(low[last + 1], 3)} to ${number(high[last + 1], 3)}.`;
  return {
    x: steps, domain: domain(state), bands: [{ kind: "band-blue", low, high }], lines: [{ kind: "blue thin", y: mean }], points: [{ kind: "ink", y }], levels: levels(one),
    words: `After ${last} experiments ${one.name} is ${withUnit(y[last], one.unit)}.${next}`,
    read: (i) => `${i}: ${withUnit(y[i], one.unit)}${mean[i] === null ? "" : `, predicted ${number(mean[i], 3)} (${number(low[i], 3)} to ${number(high[i], 3)})`}`,
  };
}

function believed(one, state) {
  const rows = state.course.filter((line) => line.states?.[one.name]);
  const mean = rows.map((line) => line.states[one.name][0]), sd = rows.map((line) => line.states[one.name][1]);
  const end = (sign) => mean.map((value, i) => (value === null ? null : value + sign * 1.96 * sd[i]));
  const i = rows.length - 1;
  return {
    x: rows.map((line) => line.step), domain: domain(state), bands: [{ kind: "band-blue", low: end(-1), high: end(1) }], lines: [{ kind: "blue", y: mean }], levels: levels(one),
    words: i < 0 ? "Nothing is known yet." : `By now ${one.name} is believed to be ${withUnit(mean[i], one.unit, 3)}, standard deviation ${number(sd[i], 2)}.`,
    read: (k) => `${rows[k].step}: ${number(mean[k], 3)} ± ${number(sd[k], 2)} ${one.unit}`,
  };
}

export function inputs(setup) {
  const plots = setup.designs.map((one) => [one, chart({ title: named(one), height: 140, legend: [["line blue", "applied"], ["grey dashed", "limit"]] })]);
  return {
    element: h("section", { class: "card" }, h("h2", {}, "Inputs"), plots.map(([, plot]) => plot.element)),
    show(state) {
      const rows = state.course.filter((line) => line.u);
      const { session } = state;
      for (const [one, plot] of plots) {
        const x = rows.map((line) => line.step - 1), y = rows.map((line) => line.u[one.name]);
        if (x.length) { x.push(x[x.length - 1] + 1); y.push(session.design && !session.done ? session.design[one.name] : y[y.length - 1]); }
        plot.show({ x, domain: domain(state), lines: [{ kind: "blue", y, steps: true }], include: [one.low, one.high], levels: [one.low, one.high].map((value) => ({ value, kind: "grey dashed" })),
          words: `${one.name} may be from ${number(one.low)} to ${withUnit(one.high, one.unit)}.`, read: (i) => `${x[i] + 1}: ${withUnit(y[i], one.unit)}` });
      }
    },
  };
}

export function gains() {
  const plot = chart({ title: "Nats", height: 190, legend: [["line ink", "gained"], ["green dashed", "expected"], ["orange dotted", "random inputs"]] });
  const words = h("p", { class: "soft" });
  return {
    element: h("section", { class: "card" }, h("h2", {}, "Information gained"), plot.element, words),
    show(state) {
      const { course, expected, session } = state;
      const bands = [], lines = [], read = {};
      for (const [name, kind, band] of [["random", "orange dotted", "band-grey"], ["policy", "green dashed", "band-green"]]) {
        const curve = expected?.[name];
        if (!curve) continue;
        const x = curve.mean.map((_, i) => i);
        bands.push({ kind: band, x, low: curve.low, high: curve.high });
        lines.push({ kind, x, y: curve.mean });
        read[name] = curve.mean;
      }
      const x = course.map((line) => line.step), y = course.map((line) => line.gain), k = session.step || 0;
      const known = [`${number(session.gain, 3)} nats after ${k} experiments`, read.policy?.[k] !== undefined && k ? `expected were ${number(read.policy[k], 3)}` : null, read.random?.[k] !== undefined && k ? `random inputs would bring ${number(read.random[k], 3)}` : null].filter(Boolean).join("; ");
      const more = { waiting: "What was to be expected is being computed.", computing: "What was to be expected is being computed.", failed: `What was to be expected cannot be computed: ${expected?.words}` }[expected?.state] ?? expected?.words ?? "";
      words.textContent = `${known}. ${more}`;
      plot.show({ x, domain: domain(state), bands, lines: [...lines, { kind: "ink", x, y }], include: [0], words: words.textContent,
        read: (i) => `${x[i]}: ${number(y[i], 3)}${read.policy?.[x[i]] === undefined ? "" : `, expected ${number(read.policy[x[i]], 3)}`}${read.random?.[x[i]] === undefined ? "" : `, random ${number(read.random[x[i]], 3)}`}` });
    },
  };
}
