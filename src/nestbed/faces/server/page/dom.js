// Elements, numbers as people read them, names with their units.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(Math.max(0, digits - 2)) : String(Number(value.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

export const named = (thing) => (thing.unit && thing.unit !== "1" ? `${thing.name} (${thing.unit})` : thing.name);
export const withUnit = (value, unit, digits) => `${number(value, digits)}${unit && unit !== "1" ? ` ${unit}` : ""}`;
export const sentence = (words) => (words ? words[0].toUpperCase() + words.slice(1) : "");

export function when(seconds) {
  const date = new Date(seconds * 1000);
  return date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

// A number as people type it: empty is null, what is none is NaN; a comma may stand for the point.
export function typed(text) {
  const plain = text.trim().replaceAll("−", "-").replace(",", ".");
  if (plain === "") return null;
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(plain) ? Number(plain) : NaN;
}

export function table(columns, rows, best = -1) {
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row, i) => h("tr", { class: i === best ? "best" : null }, row.map((cell) => h("td", {}, cell)))))));
}
