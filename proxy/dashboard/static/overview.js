// What must be seen without a click: is it well, how full, what was saved, what did it cost, what is dropped.
import { ask } from "./ask.js";
import { chart } from "./charts.js";
import { compact, h, ms, number, percent, share, table } from "./dom.js";
import { decisionTable } from "./decisions.js";

const SPANS = [[900, "15 minutes"], [3600, "hour"], [21600, "6 hours"], [86400, "day"], [604800, "week"]];
const chosen = { span: "3600", route: "" };

export async function overview(_, again) {
  const data = await ask("api/overview", chosen);
  const totals = data.totals;
  return h("div", {},
    h("h2", {}, "Overview"),
    filters(data, again),
    tiles(data, totals),
    totals ? charts(data) : h("p", { class: "empty" }, "No requests in this time. Point an application here: OPENAI_BASE_URL=", location.origin, "/v1"),
    totals && dropped(totals),
    totals && groups("By route", data.by_route),
    totals && groups("By policy", data.by_policy),
    totals && decisionTable("Latest decisions", data.latest));
}

function filters(data, again) {
  const select = (name, label, options) => h("label", {}, label,
    h("select", { id: `choose-${name}`, onchange: (event) => { chosen[name] = event.target.value; again(); } },
      options.map(([value, text]) => h("option", { value, selected: `${value}` === chosen[name] }, text))));
  return h("div", { class: "filters" }, select("span", "The last", SPANS),
    select("route", "Route", [["", "all routes"], ...data.routes.map((route) => [route.name, route.name])]));
}

function tile(name, figure, more, kind = "") {
  return h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, h("div", { class: `figure ${kind}` }, figure), h("div", { class: "more" }, more)));
}

function tiles(data, totals) {
  const { store, audit } = data.health;
  const wrong = [store.down && "the state store does not answer", audit.failed && `${number(audit.failed)} audit records lost`,
    audit.dropped && `${number(audit.dropped)} audit records dropped`].filter(Boolean);
  const look = totals?.alarming ?? 0;
  const health = wrong.length ? ["not well", wrong.join("; "), "bad"]
    : look ? ["look here", `${number(look)} requests with a fault, a refusal, no room, or an upstream that read only a part`, "warn"] : ["well", "no faults in this time", "good"];
  if (!totals) return h("dl", { class: "tiles" }, tile("Health", ...health));
  const gone = totals.gone_tool + totals.gone_assistant + totals.gone_user + totals.gone_other;
  return h("dl", { class: "tiles" },
    tile("Health", ...health),
    tile("Requests", number(totals.requests), `${number(totals.trimmed)} trimmed${share(totals.trimmed, totals.requests)}`),
    tile("Windows filled, as sent", percent(totals.utilization), `fullest ${percent(totals.fullest)} as it came, ${percent(totals.fullest_sent)} as sent`),
    tile("Tokens saved", compact(totals.saved), `${percent(totals.saved / (totals.saved + totals.tokens_after))} of what came` + (totals.would_save ? `; shadow: ${compact(totals.would_save)}` : "")),
    tile("Time added, P50", ms(totals.p50_ms), `P90 ${ms(totals.p90_ms)}, P99 ${ms(totals.p99_ms)}`),
    tile("Cache lost to cuts", compact(totals.cache_lost), `${compact(totals.cache_kept)} kept; the upstream took ${percent(totals.prompt_tokens ? totals.cached_tokens / totals.prompt_tokens : null)} from its cache`),
    tile("Overflows avoided", number(totals.avoided), `${number(totals.unfit)} did not fit, ${number(totals.retried)} sent twice, ${number(totals.held)} held`),
    tile("Being dropped", mostly(totals, gone), gone ? `${compact(gone)} tokens in ${number(totals.cuts)} cuts` : "nothing in this time"));
}

function mostly(totals, gone) {
  if (!gone) return "–";
  const [role, tokens] = parts(totals).sort((a, b) => b[1] - a[1])[0];
  return `${role} ${percent(tokens / gone)}`;
}

const parts = (totals) => [["tool", totals.gone_tool], ["assistant", totals.gone_assistant], ["user", totals.gone_user], ["other", totals.gone_other]];

function charts(data) {
  const spans = new Map(data.series.map((each) => [Math.round((each.at - data.start) / data.step), each]));
  const times = Array.from({ length: Math.round(data.span / data.step) }, (_, at) => data.start + at * data.step);
  const of = (name) => times.map((_, at) => spans.get(at)?.[name] ?? null);
  const route = data.routes.find((each) => each.name === chosen.route) ?? data.routes[0];
  const flat = (value) => times.map(() => value);
  const period = { from: data.start, to: data.now };
  return h("div", { class: "charts" },
    chart("How full the windows are", `share of the budget; thresholds of ${route.name}`, times, [
      { name: "fullest as it came", values: of("fullest"), colour: "tool" },
      { name: "mean as sent", values: of("utilization"), colour: "user" },
      { name: "cut from", values: flat(route.thresholds.evict), colour: "bad", dash: [6, 5] },
      { name: "down to", values: flat(route.targets.evict), colour: "good", dash: [3, 5] },
    ], { format: percent, top: 1, ...period }),
    chart("Tokens saved", "by requests that were trimmed", times, [{ name: "saved", values: of("saved"), colour: "user", bars: true }], { format: compact, ...period }),
    chart("Time added", "between a request's arrival and its departure", times, [
      { name: "P50", values: of("p50_ms"), colour: "assistant" }, { name: "P99", values: of("p99_ms"), colour: "tool" }], { format: ms, ...period }),
    chart("The provider's cache", "leading tokens that are as in the request before, and those that changes cost", times, [
      { name: "kept", values: of("cache_kept"), colour: "assistant" }, { name: "lost", values: of("cache_lost"), colour: "bad" }], { format: compact, ...period }));
}

function dropped(totals) {
  const all = parts(totals).filter(([, tokens]) => tokens > 0);
  const gone = all.reduce((sum, [, tokens]) => sum + tokens, 0);
  if (!gone) return null;
  const label = all.map(([role, tokens]) => `${role} ${percent(tokens / gone)}`).join(", ");
  return h("figure", {}, h("figcaption", {}, "What is dropped ", h("small", {}, `tokens by role: ${label}`)),
    h("div", { class: "bar", role: "img", "aria-label": `What is dropped: ${label}` },
      all.map(([role, tokens]) => h("span", { class: `slot ${role === "other" ? "note" : role}`, title: `${role}: ${number(tokens)} tokens`, style: { width: `${(tokens / gone) * 100}%` } }))));
}

function groups(title, rows) {
  return table(title, [
    ["", (row) => h("strong", {}, row.name)], ["requests", (row) => number(row.requests), true], ["trimmed", (row) => number(row.trimmed) + share(row.trimmed, row.requests), true],
    ["tokens saved", (row) => compact(row.saved), true], ["filled", (row) => percent(row.utilization), true], ["P50", (row) => ms(row.p50_ms), true],
    ["P99", (row) => ms(row.p99_ms), true], ["cache lost", (row) => compact(row.cache_lost), true], ["overflows avoided", (row) => number(row.avoided), true],
    ["to look at", (row) => number(row.alarming), true],
  ], rows, { stack: true });
}
