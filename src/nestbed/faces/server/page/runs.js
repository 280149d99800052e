// Trainings, designs and comparisons of the folder; a training is followed while it goes on.

import { patiently, watch } from "./api.js";
import { chart } from "./chart.js";
import { h, number, sentence, table, when } from "./dom.js";

export function show(main, view, id) {
  return id ? one(main, view, id) : list(main);
}

function list(main) {
  const body = h("div", { class: "grid" }, h("p", { class: "lead" }, "Loading …"));
  main.append(h("div", { class: "head" }, h("h1", {}, "Runs")), body);
  return watch({ watch: "kept" }, ({ kind, list: found }) => {
    if (kind !== "kept") return;
    const part = (title, kind, rows, line, none) => h("section", { "aria-label": title }, h("h2", {}, title), rows.length ? h("ul", { class: "list" }, rows.map((row) => h("li", {}, h("a", { class: "card", href: `#/${kind}/${encodeURIComponent(row.id)}` }, row.error ? [h("span", {}, h("b", {}, place(row.id)), h("small", {}, row.error))] : line(row))))) : h("p", { class: "soft" }, none));
    body.replaceChildren(
      part("Trainings", "runs", found.runs, training, "None in this folder; nestbed train makes one."),
      part("Designs", "designs", found.designs, design, "None in this folder; nestbed design makes one."),
      part("Comparisons", "comparisons", found.comparisons, (row) => [h("span", {}, h("b", {}, place(row.id)), h("small", {}, `${row.rows.length} policies`)), h("small", {}, when(row.changed))], "None in this folder; nestbed compare --out makes one."));
  });
}

const place = (id) => (id === "~" ? "this folder" : id.replaceAll("~", "/"));
const live = (row) => !row.finished && Date.now() / 1000 - row.changed < 300;

function training(row) {
  const last = row.metrics[row.metrics.length - 1], bar = h("i");
  bar.style.width = `${(100 * row.done) / Math.max(1, row.total)}%`;
  return [h("span", {}, h("b", {}, place(row.id)), h("small", {}, `${row.system} · ${row.method} · seed ${row.seed}`)),
    h("span", {}, h("small", {}, when(row.changed)), h("div", { class: "bar", "aria-hidden": "true" }, bar)),
    h("span", { class: "number" }, `${row.done} of ${row.total}`), h("span", { class: "number" }, `${number(last.eig, 3)} nats`),
    h("span", { class: "number" }, h("span", { class: "chip", "data-state": live(row) ? "training" : row.finished ? "done" : "stopped" }, live(row) ? "training" : row.finished ? "done" : "stopped"))];
}

function design(row) {
  return [h("span", {}, h("b", {}, place(row.id)), h("small", {}, `${row.system}${row.target ? ` · about ${row.target.join(", ")}` : ""}`)), h("small", {}, when(row.changed)),
    h("span", { class: "number" }, `${row.horizon} inputs`), h("span", { class: "number" }, `${number(row.gains[0].mean, 3)} nats`), h("span")];
}

function one(main, view, id) {
  const body = h("div", { class: "grid" }, h("p", { class: "lead" }, "Loading …"));
  main.append(h("div", { class: "head" }, h("div", {}, h("small", {}, h("a", { href: "#/runs" }, "Runs")), h("h1", {}, place(id))),
    view === "comparisons" ? null : h("a", { class: "button", href: `#/new/${view.slice(0, -1)}/${encodeURIComponent(id)}` }, "New session with it")), body);
  const draw = { runs: curve, designs: plan, comparisons: (row) => ({ elements: [h("section", { class: "card" }, table(row.columns.map((name) => name.replaceAll("_", " ")), row.rows.map(([policy, ...rest]) => [policy, ...rest.map((cell) => (cell ? number(Number(cell), 4) : ""))])))] }) }[view];
  let outcome = null, shown = null;
  const show = (row) => {
    if (row.error) { body.replaceChildren(h("p", { class: "problem", role: "alert" }, sentence(row.error))); return; }
    shown ??= (() => { const made = draw(row); body.replaceChildren(...made.elements); return made; })();
    shown.update?.({ ...row, outcome });
  };
  const ask = () => patiently("GET", `${view}/${encodeURIComponent(id)}`).then((row) => { outcome = row.outcome || null; show(row); }, (error) => show({ error: error.message }));
  ask();
  let before = "";
  return watch({ watch: "kept" }, ({ kind, list: found }) => {
    const row = kind === "kept" && view === "runs" && found[view].find((each) => each.id === id);
    if (!row || JSON.stringify(row) === before) return;
    const ended = before && row.finished;
    before = JSON.stringify(row);
    ended ? ask() : show(row);
  });
}

function curve(first) {
  const plot = chart({ title: "Expected information gain (nats)", height: 260, x: "iteration", legend: [["line blue", "estimate"], ["band-blue", "± 1.96 standard errors"]] });
  const words = h("p", {}), won = h("section", { class: "card" }), facts = h("p", { class: "soft" });
  const settings = h("details", { class: "card" }, h("summary", {}, "Settings"), table(["setting", "value"], flat(first.settings)));
  return {
    elements: [h("section", { class: "card" }, facts, plot.element, words), won, settings],
    update(row) {
      const x = row.metrics.map((one) => one.iteration), y = row.metrics.map((one) => one.eig), reach = row.metrics.map((one) => 1.96 * (one.eig_error ?? NaN));
      const last = row.metrics[row.metrics.length - 1];
      facts.textContent = `${row.title} · ${row.done} of ${row.total} iterations${live(row) ? ", training now" : ""}, ${number(last.seconds, 3)} s for the last · seed ${row.seed}`;
      words.textContent = sentence(row.verdict) || `After iteration ${last.iteration}: ${number(last.eig, 4)} ± ${number(last.eig_error, 2)} nats.`;
      plot.show({ x, domain: [0, Math.max(1, row.total, x[x.length - 1])], bands: [{ kind: "band-blue", low: y.map((value, i) => value - reach[i]), high: y.map((value, i) => value + reach[i]) }], lines: [{ kind: "blue", y }], points: x.length < 3 ? [{ kind: "blue", y }] : [], words: words.textContent, read: (i) => `${x[i]}: ${number(y[i], 4)} nats` });
      won.hidden = !row.outcome;
      if (row.outcome) won.replaceChildren(h("h2", {}, "Who won"), h("p", {}, row.outcome.sentence), certificates(row.outcome.gains, row.outcome.winner));
    },
  };
}

const flat = (settings, before = "") => Object.entries(settings).flatMap(([name, value]) => (value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${before}${name}.`) : [[before + name, String(value)]]));

function certificates(gains, best) {
  return table(["policy", "gain (nats)", "95 %", "bounds", "limits broken"].slice(0, gains[0].bounds ? (gains[0].broken === null ? 4 : 5) : 3), gains.map((one) => [one.policy, number(one.mean, 4), `${number(one.interval[0], 4)} to ${number(one.interval[1], 4)}`, ...(one.bounds ? [`${number(one.bounds[0], 4)}, ${number(one.bounds[1], 4)}`] : []), ...(one.broken === null || one.broken === undefined ? [] : [`${number(100 * one.broken, 2)} %`])]), gains.findIndex((one) => one.policy === best));
}

function plan(row) {
  const designs = row.columns.map((name, i) => [name, i]).filter(([name]) => !["experiment", "time"].includes(name.replace(/ .*/, "")));
  const x = row.inputs.map((_, i) => i);
  const plots = designs.map(([name, i]) => { const plot = chart({ title: row.units?.[name] ? `${name} (${row.units[name]})` : name, height: 170 }); const y = row.inputs.map((line) => line[i]); plot.show({ x: [...x, x.length], domain: [0, x.length], lines: [{ kind: "blue", y: [...y, y[y.length - 1]], steps: true }], words: `${row.horizon} inputs from ${number(Math.min(...y), 3)} to ${number(Math.max(...y), 3)}.`, read: (k) => `${k + 1}: ${number([...y, y[y.length - 1]][k], 4)}` }); return plot.element; });
  return { elements: [
    h("section", { class: "card" }, h("h2", {}, "The inputs"), plots),
    h("section", { class: "card" }, h("h2", {}, "What they gain"), certificates(row.gains, row.gains[0].policy)),
    h("section", { class: "card" }, h("h2", {}, "What they tell"), h("p", {}, sentence(row.told)), table(["parameter", "prior sd", "expected sd after", "share left", "done twice"], row.parameters))] };
}
