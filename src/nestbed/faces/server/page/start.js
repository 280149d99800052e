// The form that a session begins with.

import { patiently } from "./api.js";
import { h, named, number, sentence, typed } from "./dom.js";

export function show(main) {
  const form = h("form", { class: "form", novalidate: true });
  const problem = h("p", { class: "problem", role: "alert" });
  main.append(h("div", { class: "head" }, h("div", {}, h("h1", {}, "New session"), h("p", { class: "lead" }, "What is the rig, what chooses its inputs, and where do measurements come from?"))), form);
  const field = (label, input, hint) => h("label", {}, label, input, hint ? h("span", { class: "hint" }, hint) : null);
  const source = h("select", { name: "source" }), policy = h("select", { name: "policy" });
  const text = (name, more = {}) => h("input", { name, autocomplete: "off", spellcheck: "false", ...more });
  const title = text("title", { maxlength: "80" }), horizon = text("horizon", { inputmode: "numeric" }), seed = text("seed", { inputmode: "numeric" });
  const risk = text("risk", { inputmode: "decimal", value: "0.01" }), stop = text("stop", { inputmode: "decimal" }), particles = text("particles", { inputmode: "numeric", value: "512" });
  const rate = text("rate", { inputmode: "decimal", value: "5" });
  const radio = (value, label, on) => h("label", {}, h("input", { type: "radio", name: "rig", value, checked: on, onchange: steer }), label);
  const theta = h("div", { class: "fields" });
  const simulated = h("fieldset", { class: "card grid" }, h("legend", {}, "Simulated rig"), h("div", { class: "fields" }, field("Experiments per second", rate)), h("p", { class: "hint" }, "True parameters, in their units; what is left empty is drawn from the prior. The session does not know them; they are shown at its end."), theta);
  const policyField = field("What chooses the inputs", policy);
  const about = h("p", { class: "hint" });
  let systems = {};
  function steer() { simulated.hidden = form.elements.rig.value !== "simulated"; }
  form.append(
    h("fieldset", { class: "card grid" }, h("div", { class: "fields broad" }, field("Begin with", source), policyField), about,
      h("div", { class: "fields" }, field("Title", title, "for you"), field("Experiments", horizon, "empty: its own"))),
    h("fieldset", { class: "card grid" }, h("legend", {}, "Measurements"), h("div", { class: "choice" }, radio("simulated", "from a simulated rig", true), radio("outside", "by hand, or from a program on the rig"))),
    simulated,
    h("details", { class: "card" }, h("summary", {}, "More settings"), h("div", { class: "fields" },
      field("Risk", risk, "of breaking a limit in the whole session"), field("Stop below", stop, "nats still expected; empty: never"), field("Particles", particles), field("Seed", seed, "empty: drawn"))),
    problem, h("div", { class: "row" }, h("button", { class: "main", type: "submit" }, "Begin"), h("a", { href: "#/" }, "Cancel")));

  const choose = async () => {
    const [kind, name] = [source.value.split(" ")[0], source.value.split(" ").slice(1).join(" ")];
    policyField.hidden = kind !== "system";
    const system = kind === "system" ? name : source.selectedOptions[0]?.dataset.system;
    about.textContent = system ? "…" : "";
    theta.replaceChildren();
    if (!system) return;
    try {
      systems[system] ??= await patiently("GET", `systems/${encodeURIComponent(system)}`);
    } catch (error) {
      about.textContent = error.message;
      return;
    }
    if (source.value !== `${kind} ${name}`) return;  // another was chosen meanwhile
    const found = systems[system];
    about.textContent = `Designs: ${found.designs.map((one) => `${named(one)} ${number(one.low)} to ${number(one.high)}`).join(", ")}. Sensors: ${found.sensors.map(named).join(", ")}. Unknown: ${found.parameters.map(named).join(", ")}.`;
    horizon.placeholder = String(found.horizon);
    theta.replaceChildren(...found.parameters.map((one) => field(named(one), text(`theta ${one.name}`, { inputmode: "decimal", placeholder: "drawn" }), `prior ${number(one.interval[0], 3)} to ${number(one.interval[1], 3)}`)));
  };
  source.addEventListener("change", choose);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      const made = await patiently("POST", "sessions", wish(form));
      location.hash = `#/sessions/${made.id}`;
    } catch (error) {
      problem.textContent = sentence(error.message);
    }
  });
  fill(source, policy).then(choose, (error) => { problem.textContent = error.message; });
  return () => {};
}

async function fill(source, policy) {
  const [systems, policies, runs, designs] = await Promise.all(["systems", "policies", "runs", "designs"].map((path) => patiently("GET", path)));
  const group = (label, options) => (options.length ? h("optgroup", { label }, options) : null);
  source.append(...[
    group("A system, and a policy by name", systems.map((one) => h("option", { value: `system ${one.name}` }, `${one.name}: ${one.help}`))),
    group("The policy of a training", runs.filter((one) => !one.error).map((one) => h("option", { value: `run ${one.id}`, "data-system": one.system }, `${one.id} (${one.system})`))),
    group("The inputs of a design", designs.filter((one) => !one.error).map((one) => h("option", { value: `design ${one.id}`, "data-system": one.system }, `${one.id} (${one.system})`))),
  ].filter(Boolean));
  policy.append(...policies.map((one) => h("option", { value: one.name, selected: one.name === "prbs" }, `${one.name}: ${one.help}`)));
  const wanted = decodeURIComponent(location.hash.split("/").slice(2).join(" "));
  if (wanted) source.value = wanted;
}

function wish(form) {
  const read = (name, label) => {
    const value = typed(form.elements[name].value);
    if (Number.isNaN(value)) throw new Error(`${label}: “${form.elements[name].value}” is no number.`);
    return value;
  };
  const [kind, ...name] = form.elements.source.value.split(" ");
  const found = { [kind]: name.join(" "), risk: read("risk", "Risk") ?? 0.01, particles: read("particles", "Particles") ?? 512 };
  if (kind === "system") found.policy = form.elements.policy.value;
  const given = { title: form.elements.title.value.trim() || null, horizon: read("horizon", "Experiments"), stop_below: read("stop", "Stop below"), seed: read("seed", "Seed") };
  for (const [key, value] of Object.entries(given)) if (value !== null) found[key] = value;
  if (form.elements.rig.value === "simulated") {
    const theta = {};
    for (const input of form.querySelectorAll("[name^='theta ']")) {
      const value = read(input.name, input.name.slice(6));
      if (value !== null) theta[input.name.slice(6)] = value;
    }
    found.rig = { theta, rate: read("rate", "Experiments per second") ?? 5 };
  }
  return found;
}
