// Elements and figures. Everything that came from outside goes in as text, never as markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const compact = (value) => (value === null || value === undefined ? "–" : short.format(value));
export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`);
export const share = (part, all) => (all ? ` (${percent(part / all)})` : "");

export const many = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 ms";
  return value < 10 ? `${value.toFixed(2)} ms` : `${whole.format(value)} ms`;
}

export function when(seconds) {
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString("en-GB");
  const text = date.toDateString() === new Date().toDateString() ? time : `${date.toISOString().slice(0, 10)} ${time}`;
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, text);
}

// heads: [title, cell(row), is it a number]
export function table(caption, heads, rows, attributes = {}) {
  const head = h("tr", { role: "row" }, heads.map(([title, , figure]) => h("th", { scope: "col", role: "columnheader", class: figure && "number" }, title)));
  const body = rows.map((row) =>
    h("tr", { class: attributes.mark?.(row), role: "row" },
      heads.map(([title, cell, figure, kind]) => h("td", { class: figure ? "number" : kind, role: "cell", "data-head": figure ? title : null }, cell(row)))));
  // Roles are said, since a stacked table is displayed as none.
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: attributes.stack ? "stack" : null, role: "table" }, h("caption", {}, caption),
      h("thead", { role: "rowgroup" }, head), h("tbody", { role: "rowgroup" }, body)));
}

export function facts(pairs) {
  return h("dl", { class: "facts" },
    pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function say(text) {
  document.getElementById("said").textContent = text;
}
