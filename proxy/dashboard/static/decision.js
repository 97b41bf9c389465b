// One decision as a picture and as a table, and one conversation over time.
import { ask } from "./ask.js";
import { fate, spans, windowBars } from "./bars.js";
import { chart } from "./charts.js";
import { compact, facts, h, many, ms, number, percent, table, when } from "./dom.js";
import { conversationLink, decisionLink, decisionTable } from "./decisions.js";

export async function decision(id) {
  const record = await ask(`api/decisions/${encodeURIComponent(id)}`);
  return h("div", {}, h("h2", {}, "Decision ", h("span", { class: "id" }, record.audit_id)), summary(record),
    ...picture(record), record.history?.length ? past(record.history) : null);
}

export function picture(record, texts = null) {
  if (!record.slots?.length || !record.budget) {
    return [h("p", { class: "lead" }, "No slot was touched: nothing was decided about this request that was not decided before.")];
  }
  return [h("h3", {}, "The window"), windowBars(record, texts), slotTable(record)];
}

function past(rows) {
  return table("Out already, by earlier decisions", [
    ["messages", (row) => (row.gone ? (spans(row.gone) || "none") + (row.shortened.length ? `; shortened ${spans(row.shortened)}` : "") : "no longer kept"), false, "why"],
    ["tokens", (row) => number(row.tokens), true], ["cut", (row) => row.trigger ?? "–"], ["by", (row) => row.policy ?? "–"],
    ["when", (row) => (row.time ? when(Date.parse(row.time) / 1000) : "–")], ["decision", (row) => decisionLink(row.audit_id)],
  ], rows, { stack: true });
}

// Which threshold was reached, and how deep the cut had to be by the route's rules.
function rules({ rules: own, trigger, budget, target }) {
  const name = trigger === "emergency" ? "emergency" : "evict";
  if (!own || !budget || trigger === "retry") return [];
  const wanted = Math.floor(own.targets[name] * budget);
  return [
    ["Threshold", `thresholds.${name}: ${percent(own.thresholds[name])} of ${number(budget)} = ${number(Math.floor(own.thresholds[name] * budget))} tokens`],
    ["Target", `targets.${name}: ${percent(own.targets[name])} of ${number(budget)} = ${number(wanted)} tokens${target < wanted ? `, lowered to ${number(target)} so that the next cut does not come within breathing_turns (${own.breathing_turns})` : ""}`],
    ["Left alone", `the oldest ${percent(own.keep_prefix)} of the budget (keep_prefix), the newest ${own.protect_last} slots (protect_last), and what is pinned`],
  ];
}

function slotTable(record) {
  return table("The slots", [
    ["messages", (slot) => (slot.index === null ? `note on ${spans(slot.messages)}` : spans(slot.messages))],
    ["role", (slot) => slot.role], ["tokens", (slot) => number(slot.tokens), true],
    ["fate", (slot) => fate(slot)], ["score", (slot) => slot.score ?? "", true],
    ["why", (slot) => slot.reason ?? ["pinned", "protected"].filter((mark) => slot[mark]).join(", "), false, "why"],
  ], record.slots, { stack: true, mark: (slot) => (["evict", "summarize"].includes(slot.action) ? "gone" : null) });
}

function summary(record) {
  const { usage, overhead_ms: stages } = record;
  const window = typeof record.window === "number" ? number(record.window) : record.window;
  return facts([
    ["When", when(Date.parse(record.time) / 1000)],
    ["What", `${record.action ?? record.event}${record.trigger ? `, ${record.trigger} cut` : ""}${record.policy ? `, by ${record.policy}` : ""}`],
    ["Route and model", `${record.route}, ${record.model ?? "no model named"}, mode ${record.mode}`],
    ["Budget", record.budget ? `window ${window} − reserve ${number(record.reserve)} → ${number(record.budget)} tokens` : "none: the model's window is unknown"],
    ["Prompt", record.tokens_before === null ? `not counted: at most ${percent(record.utilization_before)} of the budget`
      : `${number(record.tokens_before)} tokens came, ${number(record.tokens_after)} were sent${record.target ? `; the target was ${number(record.target)}` : ""}`],
    ...rules(record),
    ["Of these", record.pinned_tokens === null ? null : `${number(record.pinned_tokens)} pinned, ${number(record.overhead_tokens)} tool schemas and framing`],
    ["Already out", record.replayed ? h("span", {}, `${record.replayed.slots} slots, by decision `, decisionLink(record.replayed.audit_id)) : null],
    ["Cache", record.cache_prefix_tokens === null ? null : `${number(record.cache_prefix_tokens)} leading tokens as before, ${number(record.cache_lost_tokens)} lost`],
    ["The upstream counted", usage ? `${number(usage.prompt_tokens)}, ${number(usage.cached_tokens)} from its cache` : null],
    ["Time added", stages ? `${ms(stages.total)} (${Object.entries(stages).filter(([name]) => name !== "total").map(([name, value]) => `${name} ${value}`).join(", ")})` : null],
    ["Waited", record.held_ms ? ms(record.held_ms) : null],
    ["Reason", record.reason], ["Faults", record.faults?.join(", ")], ["Status", record.status],
    ["Conversation", record.conversation ? conversationLink(record.conversation) : null],
    ["To change it", record.trigger ? `On route ${record.route}: thresholds and targets for when and how much, policy for which, pin, protect_last and keep_prefix for what must stay.` : null],
  ]);
}

export async function conversation(id) {
  const [data, { routes }] = await Promise.all([ask(`api/conversations/${encodeURIComponent(id)}`), ask("api/overview")]);
  const rows = data.decisions;
  const route = routes.find((each) => each.name === data.route);
  const order = rows.map((_, at) => at + 1);
  const of = (value) => rows.map(value);
  const series = [
    { name: "as it came", values: of((row) => row.utilization_before), colour: "tool" },
    { name: "as sent", values: of((row) => row.utilization_after), colour: "user" },
    { name: "cut", values: of((row) => (row.trigger ? row.utilization_after : null)), colour: "bad", points: true },
  ];
  if (route) {
    series.push({ name: "cut from", values: of(() => route.thresholds.evict), colour: "bad", dash: [6, 5] }, { name: "down to", values: of(() => route.targets.evict), colour: "good", dash: [3, 5] });
  }
  return h("div", {}, h("h2", {}, "Conversation ", h("span", { class: "id" }, data.conversation)),
    h("p", { class: "lead" }, `${many(rows.length, "request")}, ${many(rows.filter((row) => row.trigger).length, "cut")}, ${compact(rows.reduce((sum, row) => sum + row.saved * row.changed, 0))} tokens saved.`),
    h("div", { class: "charts" },
      chart("How full the window is", "share of the budget, request by request", order, series, { format: percent, index: true, top: 1 }),
      chart("Share that a cache can hold", "leading tokens as in the request before, and what the upstream took from its cache", order, [
        { name: "as before", values: of((row) => (row.cache_kept === null || !row.tokens_after ? null : row.cache_kept / row.tokens_after)), colour: "assistant" },
        { name: "the upstream's cache", values: of((row) => (row.prompt_tokens ? (row.cached_tokens ?? 0) / row.prompt_tokens : null)), colour: "system" },
      ], { format: percent, index: true, top: 1 })),
    decisionTable("Its requests, the latest first", rows.toReversed()));
}
