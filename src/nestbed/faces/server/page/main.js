// The address after # says which view is shown; the theme follows the system until it is switched.

import { show as sessions } from "./list.js";
import { show as start } from "./start.js";
import { show as session } from "./session.js";
import { show as runs } from "./runs.js";

const main = document.getElementById("main");
let leave = null;

function route() {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  leave?.();
  main.replaceChildren();
  for (const link of document.querySelectorAll("[data-nav]")) {
    const here = link.dataset.nav === (["runs", "designs", "comparisons"].includes(view) ? "runs" : "sessions");
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  const views = { new: start, sessions: session, runs, designs: runs, comparisons: runs };
  leave = (views[view] || sessions)(main, view, ...rest);
  document.title = rest[0] ? `${rest[0]} · nestbed` : "nestbed";
  scrollTo(0, 0);
}

function theme() {
  const button = document.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const now = () => localStorage.getItem("nestbed-theme") || (system.matches ? "dark" : "light");
  const apply = () => {
    document.documentElement.dataset.theme = now();
    button.textContent = now() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  };
  button.addEventListener("click", () => { localStorage.setItem("nestbed-theme", now() === "dark" ? "light" : "dark"); apply(); });
  system.addEventListener("change", apply);
  apply();
}

theme();
addEventListener("hashchange", route);
route();
