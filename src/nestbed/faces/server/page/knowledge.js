// Every parameter: its density now over its prior, and its interval against the steps.

import { chart } from "./chart.js";
import { h, named, number, withUnit } from "./dom.js";

export function knowledge(setup) {
  const rows = setup.parameters.map((one) => row(one));
  return {
    element: h("section", { class: "card" }, h("h2", {}, "Parameters"), rows.map((one) => one.element)),
    show(state) { rows.forEach((one) => one.show(state)); },
  };
}

function row(prior) {
  const density = chart({ title: "Density", height: 120, x: prior.unit || "", rows: false, legend: [["band-grey", "prior"], ["band-blue", "now"], ["red", "truth"]] });
  const course = chart({ title: "95 % interval by experiment", height: 120, legend: [["band-blue", "95 %"], ["line blue", "mean"]] });
  const words = h("span", {});
  density.element.querySelector(".legend").lastChild.hidden = true;
  const element = h("div", { class: "parameter", role: "group", "aria-label": prior.name }, h("div", {}, h("h3", {}, named(prior)), words), density.element, course.element);
  return {
    element,
    show(state) {
      const now = state.posterior?.parameters.find((one) => one.name === prior.name) || prior;
      const truth = state.session.truth?.[prior.name];
      const share = now.sd / prior.sd;
      words.replaceChildren(h("b", {}, `${number(now.mean, 4)} ± ${number(now.sd, 2)}`), ` ${prior.unit}`, h("span", { class: "soft" }, ` · 95 % ${number(now.interval[0], 4)} to ${number(now.interval[1], 4)} · ${Math.round(100 * share)} % of the prior's spread${truth === undefined ? "" : ` · truth ${number(truth, 4)}`}`));
      density.element.querySelector(".legend").lastChild.hidden = truth === undefined;
      density.show(densities(prior, now, truth));
      course.show(intervals(prior, state, truth));
    },
  };
}

function densities(prior, now, truth) {
  const scaled = (curve) => { const top = Math.max(...curve.density); return curve.density.map((value) => value / top); };
  const zero = (curve) => curve.at.map(() => 0);
  const ends = [...prior.density.at, ...now.density.at];
  return {
    x: prior.density.at, domain: [ends.reduce((a, b) => Math.min(a, b)), ends.reduce((a, b) => Math.max(a, b))], floor: true, ticks: true, include: [0, 1],
    bands: [{ kind: "band-grey", x: prior.density.at, low: zero(prior.density), high: scaled(prior.density) }, { kind: "band-blue", x: now.density.at, low: zero(now.density), high: scaled(now.density) }],
    lines: [{ kind: "grey thin", x: prior.density.at, y: scaled(prior.density) }, { kind: "blue", x: now.density.at, y: scaled(now.density) }],
    marks: truth === undefined ? [] : [{ x: truth, kind: "red" }],
    words: `Each to its own height. ${prior.name}: prior ${number(prior.mean, 3)} ± ${number(prior.sd, 2)}, now ${number(now.mean, 4)} ± ${number(now.sd, 2)} ${prior.unit}.${truth === undefined ? "" : ` The truth is ${number(truth, 4)}.`}`,
  };
}

function intervals(prior, { session, course }, truth) {
  const lines = course.filter((line) => line.parameters?.[prior.name]);
  const get = (k) => lines.map((line) => line.parameters[prior.name][k]);
  const [mean, , low, high] = [0, 1, 2, 3].map(get);
  const x = lines.map((line) => line.step);
  return {
    x, domain: [0, Math.max(10, session.horizon || 0, x.length ? x[x.length - 1] : 0)], bands: [{ kind: "band-blue", low, high }], lines: [{ kind: "blue", y: mean }],
    levels: truth === undefined ? [] : [{ value: truth, kind: "red" }],
    words: x.length ? `After ${x[x.length - 1]} experiments ${prior.name} is with 95 % between ${number(low[low.length - 1], 4)} and ${withUnit(high[high.length - 1], prior.unit, 4)}.` : "",
    read: (i) => `${x[i]}: ${number(mean[i], 4)} (${number(low[i], 4)} to ${number(high[i], 4)})`,
  };
}
