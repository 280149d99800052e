// All sessions of the folder, the newest first.

import { watch } from "./api.js";
import { h, number, when } from "./dom.js";

export function show(main) {
  const list = h("ul", { class: "list" });
  const lead = h("p", { class: "lead" }, "Loading …");
  main.append(
    h("div", { class: "head" }, h("div", {}, h("h1", {}, "Sessions"), lead), h("a", { class: "button", href: "#/new" }, "New session")),
    list);
  return watch({ watch: "sessions" }, (message) => {
    if (message.kind !== "sessions") return;
    lead.textContent = message.list.length ? "Each is one rig, real or simulated, with a folder of its own." : "There is none yet. A session gives the next design, takes the measurement, and sharpens what is known of the parameters.";
    list.replaceChildren(...message.list.map(entry));
  });
}

function entry(one) {
  const share = one.horizon && one.step ? Math.min(1, one.step / one.horizon) : 0;
  const bar = h("i");
  bar.style.width = `${100 * share}%`;
  return h("li", {}, h("a", { class: "card", href: `#/sessions/${one.id}` },
    h("span", {}, h("b", {}, one.title), h("small", {}, one.failure || `${one.system} · ${one.source}${one.simulated ? " · simulated rig" : ""}`)),
    h("span", {}, h("small", {}, one.created ? when(one.created) : ""), h("div", { class: "bar", "aria-hidden": "true" }, bar)),
    h("span", { class: "number" }, one.step === null ? "not begun" : `${one.step}${one.horizon ? ` of ${one.horizon}` : ""}`),
    h("span", { class: "number" }, one.gain === null ? "–" : `${number(one.gain, 3)} nats`),
    h("span", { class: "number" }, h("span", { class: "chip", "data-state": one.state }, one.state))));
}
