// The next design, the measurement after it, and the simulated rig.

import { patiently } from "./api.js";
import { h, s, named, number, sentence, typed, withUnit } from "./dom.js";

export function steering(session, path, act) {
  const { setup } = session;
  const heading = h("h2", {}), values = h("dl", { class: "design" }), note = h("p", { class: "soft", role: "status" });
  const rig = session.simulated ? playing(path, act) : null;
  const form = measuring(setup, path);
  const extend = h("button", { type: "button" }, "Plan more experiments");
  extend.addEventListener("click", () => act(() => patiently("POST", `${path}/horizon`, { horizon: Number(extend.dataset.horizon) })));
  const card = h("section", { class: "card", "aria-label": "Next design" }, heading, values, note, extend, rig?.element);
  const by = session.simulated ? h("details", { class: "card" }, h("summary", {}, "Measure by hand"), form.element) : h("section", { class: "card" }, h("h2", {}, "Measurement"), form.element);
  return {
    element: h("div", { class: "grid" }, card, by),
    show(state) {
      const now = state.session, design = now.done || now.aborted ? null : now.design;
      const over = now.aborted ? `The session was ended: ${now.aborted}.` : now.done;
      heading.textContent = over ? "Rest design" : now.begun ? `Design ${now.step + 1}` : "Before the first design";
      const shown = design || (over ? now.rest : null);
      values.replaceChildren(...(shown ? setup.designs.flatMap((one) => [h("dt", {}, named(one)), h("dd", {}, h("div", { class: "value", "data-design": one.name }, number(shown[one.name])), range(one, shown[one.name]))]) : []));
      note.textContent = over ? sentence(over) : now.state === "preparing" ? "Preparing: programs are compiled, which takes up to a minute the first time." : now.begun ? "" : session.simulated ? "" : "Enter what the sensors show now, or begin without.";
      card.classList.toggle("over", Boolean(over));
      extend.hidden = !(now.done && !now.aborted && now.step >= now.horizon);
      extend.dataset.horizon = now.horizon + Math.max(10, Math.round(now.horizon / 2));
      extend.textContent = `Plan ${extend.dataset.horizon - now.horizon} more`;
      rig?.show(now, Boolean(over));
      by.hidden = Boolean(over);
      form.show(state);
    },
  };
}

function range(design, value) {
  const at = 2 + 96 * ((value - design.low) / (design.high - design.low));
  const rest = 2 + 96 * ((design.rest - design.low) / (design.high - design.low));
  return h("div", {}, h("div", { class: "range", "aria-hidden": "true" }, s("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none" },
    s("line", { class: "line grey thin", x1: 2, x2: 98, y1: 8, y2: 8, "vector-effect": "non-scaling-stroke" }), s("line", { class: "line grey thin", x1: rest, x2: rest, y1: 4, y2: 12, "vector-effect": "non-scaling-stroke" }),
    s("line", { class: "line blue", x1: at, x2: at, y1: 1, y2: 15, "stroke-width": 5, "vector-effect": "non-scaling-stroke" }))),
  h("div", { class: "ends" }, h("span", {}, withUnit(design.low, design.unit)), h("span", {}, withUnit(design.high, design.unit))));
}

function playing(path, act) {
  const button = h("button", { class: "main", type: "button" }, "Play");
  const rate = h("input", { type: "range", min: "-1", max: "2", step: "0.1", "aria-label": "Experiments per second" }), told = h("span", { class: "soft" });
  let now = null;
  const send = (play) => act(() => patiently("POST", `${path}/rig`, { play, rate: Number((10 ** rate.value).toPrecision(2)) }));
  button.addEventListener("click", () => send(now.state !== "playing"));
  rate.addEventListener("input", () => { told.textContent = `${number(10 ** rate.value, 2)} per second`; });
  rate.addEventListener("change", () => send(now.state === "playing"));
  return {
    element: h("div", { class: "grid" }, h("div", { class: "row" }, button, told), rate),
    show(session, over) {
      now = session;
      button.textContent = session.state === "playing" ? "Pause" : "Play";
      button.disabled = over || session.state === "preparing";
      if (document.activeElement !== rate) rate.value = Math.log10(session.rate);
      rate.disabled = over;
      told.textContent = `${number(10 ** rate.value, 2)} per second`;
    },
  };
}

function measuring(setup, path) {
  const problem = h("p", { class: "problem", role: "alert", id: "measure-problem" });
  const inputs = {}, hints = {};
  const field = (one, kind) => {
    const id = `${kind}-${one.name}`;
    inputs[id] = h("input", { id, name: id, inputmode: "decimal", autocomplete: "off", "aria-describedby": `${id}-hint` });
    hints[id] = h("p", { class: "hint", id: `${id}-hint` });
    return h("div", {}, h("label", { for: id }, named(one)), inputs[id], hints[id]);
  };
  const legend = h("p", { class: "hint" }, "Leave empty what was not measured.");
  const button = h("button", { class: "main", type: "submit" }), without = h("button", { type: "button" }, "Begin without");
  const form = h("form", { class: "measure", novalidate: true }, setup.sensors.map((one) => field(one, "y")), legend,
    h("details", {}, h("summary", {}, "Another design was applied"), setup.designs.map((one) => field(one, "u"))), problem, h("div", { class: "row" }, button, without));
  let now = null, sure = "";

  const read = (things, kind) => {
    const found = {};
    for (const one of things) {
      const input = inputs[`${kind}-${one.name}`], value = typed(input.value);
      input.setAttribute("aria-invalid", String(Number.isNaN(value)));
      if (Number.isNaN(value)) {
        input.focus();
        throw new Error(`${named(one)}: “${input.value}” is no number; leave it empty if it was not measured.`);
      }
      found[one.name] = value;
    }
    return found;
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    button.disabled = true;
    try {
      const y = read(setup.sensors, "y"), applied = read(setup.designs, "u");
      const step = now.begun ? now.step + 1 : 0;
      const some = Object.values(applied).filter((value) => value !== null).length;
      if (some && some < setup.designs.length) throw new Error("Enter every design that was applied, or none.");
      if (Object.values(y).every((value) => value === null) && sure !== `${step}`) {
        sure = `${step}`;
        throw new Error("Nothing was entered. Press again to go on without a measurement.");
      }
      await patiently("POST", `${path}/measurements`, { step, y, ...(some ? { applied } : {}) });
      form.reset();
      inputs[`y-${setup.sensors[0].name}`].focus();
    } catch (error) {
      problem.textContent = sentence(error.message);
    } finally {
      button.disabled = false;
    }
  });
  without.addEventListener("click", async () => {
    without.disabled = true;
    await patiently("GET", `${path}/design`).catch((error) => { problem.textContent = sentence(error.message); });
    without.disabled = false;
  });
  return {
    element: form,
    show({ session, course }) {
      now = session;
      const line = course[course.length - 1], next = line && line.step === session.step ? line.next : null;
      for (const one of setup.sensors) hints[`y-${one.name}`].textContent = next?.[one.name] ? `predicted ${number(next[one.name][1], 3)} to ${number(next[one.name][2], 3)} (95 %)` : "";
      for (const one of setup.designs) inputs[`u-${one.name}`].placeholder = session.design ? number(session.design[one.name]) : "";
      button.textContent = session.begun ? `Take as measurement ${session.step + 1}` : "Take as first measurement";
      without.hidden = session.begun || session.state === "preparing";
      form.hidden = session.state === "preparing" && !session.begun;
    },
  };
}
