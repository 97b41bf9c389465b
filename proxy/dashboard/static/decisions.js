// Lists of decisions and conversations.
import { ask } from "./ask.js";
import { compact, h, number, percent, table, when } from "./dom.js";

const ACTIONS = ["pass", "trimmed", "held", "retried", "unfit", "bypass", "shadow"];
const chosen = { route: "", action: "", level: "", model: "", policy: "" };

export const decisionLink = (id) => (id ? h("a", { href: `#/decision/${encodeURIComponent(id)}`, class: "id" }, id) : "–");
export const conversationLink = (id) => (id ? h("a", { href: `#/conversation/${encodeURIComponent(id)}`, class: "id" }, id) : "–");

export function decisionTable(caption, rows) {
  return table(caption, [
    ["time", (row) => when(row.time)],
    ["decision", (row) => decisionLink(row.audit_id)],
    ["what", (row) => h("span", { class: `chip ${row.level === "error" ? "bad" : ""}` }, row.action ?? row.event, row.trigger ? `, ${row.trigger}` : "")],
    ["route", (row) => row.route ?? "–"],
    ["model", (row) => row.model ?? "–"],
    ["policy", (row) => row.policy ?? "–"],
    ["came", (row) => (row.tokens_before === null ? "not counted" : number(row.tokens_before)), true],
    ["sent", (row) => number(row.tokens_after), true],
    ["filled", (row) => percent(row.utilization_after), true],
    ["conversation", (row) => conversationLink(row.conversation)],
    ["why", (row) => row.reason ?? "", false, "why"],
  ], rows, { stack: true });
}

export async function decisions(_, again) {
  const { decisions: rows } = await ask("api/decisions", chosen);
  const body = h("div", {}, rows.length ? decisionTable("Decisions, the latest first", rows) : h("p", { class: "empty" }, "No decision is like that."));
  const more = h("button", {
    type: "button", hidden: rows.length < 50,
    onclick: async () => {
      const next = (await ask("api/decisions", { ...chosen, before: rows.at(-1).id })).decisions;
      rows.push(...next);
      body.replaceChildren(decisionTable("Decisions, the latest first", rows));
      more.hidden = next.length < 50;
      more.dispatchEvent(new CustomEvent("frozen", { bubbles: true }));
    },
  }, "Show older ones");
  return h("div", {}, h("h2", {}, "Decisions"), filters(again), body, more);
}

function filters(again) {
  const text = (name, label) => h("label", {}, label, h("input", {
    type: "text", id: `only-${name}`, value: chosen[name], size: 12, onchange: (event) => { chosen[name] = event.target.value.trim(); again(); } }));
  const select = (name, label, values) => h("label", {}, label, h("select", {
    id: `only-${name}`, onchange: (event) => { chosen[name] = event.target.value; again(); } },
  values.map(([value, shown]) => h("option", { value, selected: value === chosen[name] }, shown))));
  return h("div", { class: "filters" }, select("action", "Action", [["", "all"], ...ACTIONS.map((each) => [each, each])]),
    select("level", "Level", [["", "all"], ["error", "to look at"]]), text("route", "Route"), text("model", "Model"), text("policy", "Policy"));
}

export async function conversations() {
  const { conversations: rows } = await ask("api/conversations");
  return h("div", {}, h("h2", {}, "Conversations"),
    h("p", { class: "lead" }, "A conversation is known by this name from its first cut on; the name is random and tells nothing."),
    rows.length ? table("Conversations, the latest first", [
      ["last", (row) => when(row.last)],
      ["conversation", (row) => conversationLink(row.conversation)],
      ["route", (row) => row.route ?? "–"], ["model", (row) => row.model ?? "–"], ["policy", (row) => row.policy ?? "–"],
      ["requests", (row) => number(row.requests), true], ["cuts", (row) => number(row.cuts), true],
      ["tokens saved", (row) => compact(row.saved), true], ["fullest", (row) => percent(row.fullest), true], ["filled now", (row) => percent(row.utilization_after), true],
    ], rows, { stack: true }) : h("p", { class: "empty" }, "No conversation has been cut yet."));
}
