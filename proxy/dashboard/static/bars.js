// The window as a bar of slots, before and after, with one line about the slot that is pointed at.
import { h, number, percent } from "./dom.js";

const FATES = { keep: "kept", evict: "evicted", summarize: "summarised", shrink: "shortened", recall: "recalled" };
export const ROLES = ["system", "user", "assistant", "tool", "note"];
const SHORT = 400;

export const fate = (slot) => (slot.index === null && slot.action === "evict" ? "taken back" : FATES[slot.action] ?? slot.action);

export function spans(indexes) {
  const found = [];
  for (const index of indexes ?? []) {
    const last = found.at(-1);
    if (last && last[1] === index - 1) last[1] = index;
    else found.push([index, index]);
  }
  return found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

const named = (slot) => (slot.index === null ? "note" : `message ${spans(slot.messages)}`);

// What was in the window as it came, and what was sent: [{kind, role, fate, tokens, about}]
export function pieces(record) {
  const slots = record.slots ?? [];
  const own = slots.filter((slot) => slot.index !== null);
  const overhead = { role: "overhead", tokens: record.overhead_tokens ?? 0, about: "tool schemas and framing" };
  const sum = (list) => list.reduce((total, each) => total + each.tokens, 0);
  const piece = (slot, how) => ({ role: slot.index === null ? "note" : slot.role, fate: how, tokens: slot.tokens, slot, about: told(slot) });
  const before = [overhead, ...own.map((slot) => piece(slot, slot.action))];
  const unlisted = Math.max(0, (record.tokens_before ?? 0) - sum(before));
  const already = record.replayed?.slots ?? 0;
  if (unlisted > 8) {
    before.push({ role: "out", tokens: unlisted, about: already ? `${already} slots that were out already, and what is not listed` : "slots that are not listed" });
  }
  const kept = own.filter((slot) => slot.action === "keep").map((slot) => piece(slot, "keep"));
  const notes = slots.filter((slot) => slot.index === null && slot.action !== "evict").map((slot) => piece(slot, slot.action));
  const shrunk = own.filter((slot) => slot.action === "shrink").map((slot) => piece(slot, "shrink"));
  const after = [overhead, ...kept, ...notes];
  const left = Math.max(0, (record.tokens_after ?? 0) - sum(after));
  const long = sum(shrunk);
  after.push(...shrunk.map((each) => ({ ...each, tokens: Math.round(each.tokens * Math.min(1, left / long)) })));
  const rest = (record.tokens_after ?? 0) - sum(after);
  if (rest > 8) after.push({ role: "out", tokens: rest, about: "kept slots that are not listed" });
  const order = (each) => each.slot?.messages?.[0] ?? (each.role === "overhead" ? -1 : Infinity);
  return { before, after: after.sort((a, b) => order(a) - order(b)) };
}

function told(slot) {
  const parts = [`${named(slot)}, ${slot.role}, ${number(slot.tokens)} tokens: ${fate(slot)}`];
  if (slot.score !== null && slot.score !== undefined) parts.push(`score ${slot.score}`);
  const marks = ["pinned", "protected"].filter((mark) => slot[mark]);
  if (slot.reason) parts.push(slot.reason);
  else if (marks.length) parts.push(marks.join(", "));
  return parts.join("; ");
}

export function windowBars(record, texts = null) {
  const { before, after } = pieces(record);
  const about = h("div", { class: "about" }, h("p", {}, "Point at a slot, or move to one with the arrow keys."));
  const scale = Math.max(record.budget ?? 0, record.tokens_before ?? 0, record.tokens_after ?? 0) || 1;
  const explain = (piece) => {
    const text = piece.slot?.text ?? texts?.(piece.slot) ?? null;
    about.replaceChildren(h("p", {}, piece.about), text ? h("blockquote", {}, text.length > SHORT ? `${text.slice(0, SHORT)} …` : text) : "");
  };
  return h("div", { class: "windows" },
    bar("As it came", before, record.tokens_before, record, scale, explain),
    bar("As sent", after, record.tokens_after, record, scale, explain),
    legend(), about);
}

function bar(title, parts, total, record, scale, explain) {
  const buttons = parts.filter((each) => each.tokens > 0).map((each, at) =>
    h("button", {
      type: "button", class: `slot ${each.role} ${each.fate ?? ""}`, tabindex: at ? "-1" : "0", "aria-label": each.about, title: each.about,
      style: { width: `${(each.tokens / scale) * 100}%` },
      onmouseenter: () => explain(each), onfocus: () => explain(each), onclick: () => explain(each),
    }));
  const group = h("div", { class: "bar", role: "group", "aria-label": `${title}: ${buttons.length} parts, ${number(total)} tokens`, onkeydown: (event) => move(event, buttons) }, buttons);
  const marks = [["budget", record.budget, "budget"], ["", record.target, "target"]]
    .filter(([, at]) => at !== null && at !== undefined && at <= scale);
  for (const [kind, at, what] of marks) {
    group.append(h("span", { class: `mark ${kind}`, title: `${what}: ${number(at)} tokens`, style: { left: `calc(${(at / scale) * 100}% - 1px)` } }));
  }
  const scaled = h("div", { class: "scale", "aria-hidden": "true" }, marks.map(([, at, what]) => {
    const left = (at / scale) * 100;
    return h("span", { class: left > 80 || what === "target" ? "left" : "", style: { left: `${left}%` } }, what);
  }));
  return h("div", { class: "window" },
    h("div", { class: "label" }, h("strong", {}, title), h("span", {}, `${number(total)} tokens, ${percent(total / record.budget)} of the budget of ${number(record.budget)}`)),
    group, scaled);
}

function move(event, buttons) {
  const now = buttons.indexOf(document.activeElement);
  const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (now < 0 || to === undefined || !buttons[to]) return;
  event.preventDefault();
  buttons[now].tabIndex = -1;
  buttons[to].tabIndex = 0;
  buttons[to].focus();
}

export function legend() {
  const role = (name) => h("li", {}, h("i", { class: name }), name);
  const kind = (name, text) => h("li", {}, h("i", { class: `assistant ${name}` }), text);
  return h("ul", { class: "legend", "aria-label": "What colours and patterns mean" },
    ROLES.map(role), h("li", {}, h("i", { class: "overhead" }), "tool schemas, framing"),
    h("li", {}, h("i", { class: "out" }), "out already, or not listed"),
    kind("evict", "evicted"), kind("summarize", "summarised"), kind("shrink", "shortened"), kind("recall", "recalled"));
}
