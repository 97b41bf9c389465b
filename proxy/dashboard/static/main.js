// Which page is shown, and when it is asked for anew.
import { forget } from "./charts.js";
import { conversation, decision } from "./decision.js";
import { conversations, decisions } from "./decisions.js";
import { h, say } from "./dom.js";
import { overview } from "./overview.js";
import { preview } from "./preview.js";

const EVERY_MS = 4000;
const PAGES = { "": overview, decisions, decision, conversations, conversation, preview };
const STILL = new Set(["preview", "decision"]); // would take the place of what is being typed or pointed at

const content = document.getElementById("content");
const follow = document.getElementById("follow");
const updated = document.getElementById("updated");
let asked = 0;

function where() {
  const [name, id] = location.hash.replace(/^#\/?/, "").split("/");
  return { name: name in PAGES ? name : "", id: id ? decodeURIComponent(id) : null };
}

async function show({ moved = false } = {}) {
  const { name, id } = where();
  const mine = ++asked;
  for (const link of document.querySelectorAll("nav a")) {
    const own = link.getAttribute("href").slice(2);
    link.toggleAttribute("aria-current", own === name || (own === `${name}s` && name !== ""));
    if (link.hasAttribute("aria-current")) link.setAttribute("aria-current", "page");
  }
  let page;
  try {
    page = await PAGES[name](id, () => show());
    updated.textContent = `at ${new Date().toLocaleTimeString("en-GB")}`;
  } catch (error) {
    page = h("div", {}, h("p", { class: "problem", role: "alert" }, error.message));
    updated.textContent = "no answer";
  }
  if (mine !== asked) return;
  const focus = document.activeElement?.id;
  const open = [...content.querySelectorAll("details")].map((each) => each.open);
  forget();
  content.replaceChildren(page);
  content.setAttribute("aria-busy", "false");
  const title = page.querySelector("h2")?.textContent ?? "trimtab";
  document.title = `${title} – trimtab`;
  if (moved) {
    content.focus();
    scrollTo(0, 0);
    say(title);
    return;
  }
  content.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? false; });
  if (focus && focus !== "content") document.getElementById(focus)?.focus();
}

addEventListener("hashchange", () => { follow.checked = true; show({ moved: true }); });
content.addEventListener("frozen", () => { follow.checked = false; });
follow.addEventListener("change", () => follow.checked && show());
setInterval(() => {
  const busy = content.contains(document.activeElement) && document.activeElement !== content;
  const selecting = !getSelection().isCollapsed;
  if (follow.checked && !document.hidden && !busy && !selecting && !STILL.has(where().name)) show();
}, EVERY_MS);
show();
