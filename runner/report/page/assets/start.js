// Puts everything together: lists, links into them, keys, light and dark, paper.

const PRINTED_ROWS = 300;
const THEMES = ["auto", "light", "dark"];

// where nothing ran there is none
const list = document.getElementById("lists") ? lists() : null;

for (const line of document.querySelectorAll("[data-rollout]")) {
  const text = line.textContent;
  line.replaceChildren(button(`Show ${text}`, () => list.open(Number(line.dataset.rollout)), { class: "link" }));
}
for (const cell of document.querySelectorAll("[data-reason]")) {
  const text = cell.textContent;
  cell.replaceChildren(button(text, () => list.filterReason(Number(cell.dataset.reason)), { class: "link", title: "Show these rollouts" }));
}

const LIST_KEYS = [["/", "search"], ["j, ↓", "next rollout"], ["k, ↑", "previous rollout"], ["Enter", "open it"], ["Esc", "close it"]];
const KEYS = [...(list ? LIST_KEYS : []), ["t", "light, dark, or as the system"], ["?", "this help"]];
const help = el("dialog", { "aria-labelledby": "help-title" }, el("h2", { id: "help-title" }, "Keys"),
  el("dl", { class: "terms" }, KEYS.map(([key, text]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)))),
  button("Close", () => help.close()));
document.body.append(help);

const themeButton = button("Theme: auto", () => nextTheme(), { title: "Light or dark (t)" });
document.getElementById("switches").append(themeButton, button("Keys", () => help.showModal(), { title: "Keys (?)", class: "for-keys" }));

function nextTheme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
  if (next === "auto") delete root.dataset.theme;
  else root.dataset.theme = next;
  themeButton.textContent = `Theme: ${next}`;
}

function toList(by) {
  list.view("rollouts");
  if (!list.detail.element.contains(document.activeElement) && document.activeElement !== list.rollouts.element) list.rollouts.element.focus();
  list.rollouts.move(by);
}

const LIST_ACTIONS = {
  "/": () => { list.view("rollouts"); list.search.focus(); list.search.select(); },
  j: () => toList(1),
  k: () => toList(-1),
};
const ACTIONS = { ...(list ? LIST_ACTIONS : {}), t: nextTheme, "?": () => help.showModal() };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape" && list) {
    if (typing) list.rollouts.element.focus();
    else list.detail.close();
  } else if (!typing && Object.hasOwn(ACTIONS, event.key)) {
    event.preventDefault();
    ACTIONS[event.key]();
  }
});

let width = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  list?.recount();
});

// on paper nothing can be opened or scrolled
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const details of opened) details.open = true;
  list?.rollouts.printed(PRINTED_ROWS);
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
  list?.rollouts.printed(0);
});

document.documentElement.dataset.ready = "";
