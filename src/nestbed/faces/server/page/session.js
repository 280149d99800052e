// One session: what to do next, what was seen, what is known, what was gained; told live.

import { download, patiently, watch } from "./api.js";
import { h, number, sentence } from "./dom.js";
import { steering } from "./steering.js";
import { gains, inputs, trajectories } from "./trajectories.js";
import { knowledge } from "./knowledge.js";

export function show(main, view, id) {
  const path = `sessions/${encodeURIComponent(id)}`;
  const problem = h("p", { class: "problem", role: "alert" });
  const chip = h("span", { class: "chip", role: "status" }), title = h("span", {}, id), about = h("small", { class: "soft" });
  const done = h("b", {}, "–"), gained = h("b", {}, "–"), fill = h("i");
  const abort = h("button", { class: "stop", type: "button", "aria-keyshortcuts": "Alt+A" }, "Abort");
  const head = h("div", { class: "steer" },
    h("div", {}, h("h1", {}, title, chip), about),
    h("div", { class: "figures" }, h("div", {}, done, h("small", {}, "experiments")), h("div", {}, gained, h("small", {}, "nats gained"))),
    h("div", { class: "abort" }, abort), h("div", { class: "bar", "aria-hidden": "true" }, fill));
  const aside = h("aside", { "aria-label": "Next step" }), body = h("div", { class: "grid" });
  main.append(head, problem, h("div", { class: "session" }, aside, body));

  const state = { session: null, course: [], posterior: null, expected: null };
  const act = async (work) => {
    problem.textContent = "";
    try {
      return await work();
    } catch (error) {
      problem.textContent = sentence(error.message);
      return null;
    }
  };
  abort.addEventListener("click", () => act(async () => {
    abort.disabled = true;
    await patiently("POST", `${path}/abort`, { why: "asked for on the page" }, "json", 20).catch((error) => { abort.disabled = false; throw error; });  // once it is ended it stays so
  }));
  const keys = (event) => { if (event.altKey && event.key.toLowerCase() === "a" && !abort.disabled) abort.click(); };
  addEventListener("keydown", keys);

  let parts = null;
  const update = () => {
    const { session } = state;
    const over = Boolean(session.aborted);
    title.textContent = session.title;
    chip.textContent = session.state;
    chip.dataset.state = session.state;
    about.textContent = `${session.system} · ${session.source} · seed ${session.seed}${session.simulated ? " · simulated rig" : ""}`;
    done.textContent = `${session.step ?? 0} of ${session.horizon ?? "–"}`;
    gained.textContent = number(session.gain, 3);
    fill.style.width = `${100 * Math.min(1, (session.step || 0) / (session.horizon || 1))}%`;
    abort.disabled = over;
    abort.textContent = over ? "Aborted" : "Abort";
    if (session.state === "failed") { problem.textContent = sentence(session.failure); return; }
    if (!session.setup) {
      if (!parts) aside.replaceChildren(h("section", { class: "card" }, h("h2", {}, "Preparing"), h("p", { class: "soft" }, "Programs are compiled for this system; the first time that takes up to a minute.")));
      return;
    }
    parts ??= build(session, path, act, aside, body);
    for (const part of parts) part.show(state);
  };
  const stop = watch({ watch: "session", id }, (message) => {
    if (message.kind === "error") problem.textContent = sentence(message.error);
    if (message.kind === "posterior") state.posterior = message.posterior;
    if (message.kind === "session") {
      state.session = message.session;
      state.expected = message.expected;
      state.course = message.first ? message.course : [...state.course.filter((line) => !message.course.length || line.step < message.course[0].step), ...message.course];
    }
    if (state.session) update();
  });
  return () => { stop(); removeEventListener("keydown", keys); };
}

function build(session, path, act, aside, body) {
  const parts = [steering(session, path, act), warnings(), taking(session.id, path, act)];
  const knows = knowledge(session.setup), seen = trajectories(session.setup), given = inputs(session.setup), gain = gains();
  aside.replaceChildren(parts[0].element, parts[2].element);
  body.replaceChildren(parts[1].element, ...seen.elements, knows.element, h("div", { class: "grid two" }, given.element, gain.element));
  return [...parts, knows, seen, given, gain];
}

function warnings() {
  const list = h("ul", { class: "warnings" });
  const element = h("section", { "aria-label": "Warnings" }, h("div", { "aria-live": "polite" }, list));
  let shown = 0;
  return {
    element,
    show({ session }) {
      element.hidden = !session.warnings.length;
      if (session.warned < shown) { list.replaceChildren(); shown = 0; }
      const fresh = Math.min(session.warned - shown, session.warnings.length);
      for (const words of session.warnings.slice(session.warnings.length - fresh)) list.prepend(h("li", {}, sentence(words)));
      shown = session.warned;
      while (list.children.length > 8) list.lastChild.remove();
    },
  };
}

function taking(id, path, act) {
  const button = (label, file, name) => {
    const own = h("button", { type: "button" }, label);
    own.addEventListener("click", async () => {
      own.disabled = true;
      own.textContent = `${label} …`;
      await act(() => download(`${path}/${file}`, name));
      own.textContent = label;
      own.disabled = !own.dataset.ready;
    });
    return own;
  };
  const record = button("Record (CSV)", "record.csv", `${id}.csv`), report = button("Report (HTML)", "report.html", `${id}.html`);
  const element = h("section", { class: "card" }, h("h2", {}, "Take away"), h("div", { class: "row" }, record, report), h("p", { class: "hint" }, "The report is made anew from the whole record, which takes a while."));
  return {
    element,
    show({ session }) {
      for (const one of [record, report]) {
        one.dataset.ready = session.step ? "yes" : "";
        if (!one.textContent.endsWith("…")) one.disabled = !session.step;
      }
    },
  };
}
