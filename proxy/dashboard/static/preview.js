// A request tried: what would go, by one policy or two, side by side. Its texts stay in this page.
import { ask } from "./ask.js";
import { h, number, say } from "./dom.js";
import { picture } from "./decision.js";

const kept = { body: "", policies: [], budget: "", window: "", route: "" };

export async function preview() {
  const { policies, routes } = await ask("api/overview");
  if (!kept.policies.length) kept.policies = routes[0].policies.slice(0, 2);
  const found = h("div", { "aria-live": "polite" });
  const run = async (event) => {
    event.preventDefault();
    if (kept.policies.length > 2) {
      found.replaceChildren(h("p", { class: "problem" }, "Two policies at most stand side by side: choose fewer."));
      return;
    }
    try {
      const answer = await ask("preview", { policy: kept.policies, budget: kept.budget, window: kept.window, route: kept.route },
        { method: "POST", body: kept.body, headers: { "content-type": "application/json" } });
      found.replaceChildren(result(answer));
      say("The preview is there.");
    } catch (error) {
      found.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  };
  const keep = (name) => (event) => { kept[name] = event.target.value; };
  const figure = (name, label) => h("label", {}, label, h("input", { type: "number", min: 1, id: `try-${name}`, value: kept[name], oninput: keep(name) }));
  const box = (name) => h("label", {}, h("input", {
    type: "checkbox", name: "policy", value: name, checked: kept.policies.includes(name),
    onchange: (event) => { kept.policies = event.target.checked ? [...kept.policies, name] : kept.policies.filter((each) => each !== name); },
  }), name);
  return h("div", {}, h("h2", {}, "Preview"),
    h("p", { class: "lead" }, "Paste the body of a chat request. It is decided about as if it came, and goes no further: no upstream sees it, and nothing is remembered."),
    h("form", { class: "form", onsubmit: run },
      h("label", {}, "Body, as JSON", h("textarea", { id: "try-body", spellcheck: "false", required: true, oninput: keep("body") }, kept.body)),
      h("fieldset", {}, h("legend", {}, "Policies, one or two"), policies.map(box)),
      h("div", { class: "filters" }, figure("window", "Window, tokens"), figure("budget", "Budget, tokens"),
        h("label", {}, "Route", h("select", { id: "try-route", onchange: keep("route") },
          [["", "the one that takes it"], ...routes.map((route) => [route.name, route.name])].map(([value, text]) => h("option", { value, selected: value === kept.route }, text)))),
        h("button", { class: "main", type: "submit" }, "Show what would go"))),
    found);
}

function result(answer) {
  const texts = textsOf(kept.body);
  return h("div", {},
    h("p", { class: "lead" }, `Route ${answer.route}, model ${answer.model ?? "not named"}: ${number(answer.messages.length)} messages, ` +
      `${number(answer.messages.reduce((sum, message) => sum + message.tokens, 0) + answer.overhead_tokens)} tokens by ${answer.tokenizer}${answer.estimated ? ", estimated" : ""}.`),
    h("div", { class: "side" }, answer.previews.map((each) => h("section", { "aria-label": each.policy }, h("h3", {}, each.policy),
      each.error ? h("p", { class: "problem" }, each.error.message) : [h("p", {}, verdict(each)), ...picture(each, texts)]))));
}

function verdict(record) {
  if (!record.budget) return "Nobody knows this model's window: give one above.";
  if (record.tokens_before === null) return `It fits without counting: a budget of ${number(record.budget)} tokens is more than its bytes could be.`;
  if (!record.trigger) return `${number(record.tokens_before)} of ${number(record.budget)} tokens: under the threshold, so nothing goes.`;
  return `${number(record.tokens_before)} → ${number(record.tokens_after)} of ${number(record.budget)} tokens; ${number(record.slots_evicted)} of ${number(record.slots_total)} slots go.`;
}

// What a slot says, from the body in this page
function textsOf(body) {
  let messages = [];
  try {
    messages = JSON.parse(body).messages ?? [];
  } catch {
    // told by the proxy already
  }
  const text = (message) => (typeof message?.content === "string" ? message.content : JSON.stringify(message?.content ?? message?.tool_calls ?? ""));
  return (slot) => (slot && slot.index !== null ? slot.messages.map((index) => text(messages[index])).join("\n") : null);
}
