// What every page has: light and dark, and the parts that only some pages have.

import { button } from "./elements.js";
import { listing } from "./listing.js";
import { live } from "./live.js";
import { sending } from "./sending.js";

const THEMES = ["auto", "light", "dark"];
const YEAR_S = 365 * 86_400;

const root = document.documentElement;
const theme = button(`Theme: ${root.dataset.theme ?? "auto"}`, () => {
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
  if (next === "auto") delete root.dataset.theme;
  else root.dataset.theme = next;
  theme.textContent = `Theme: ${next}`;
  // a cookie, so that the next page comes as it is wanted and does not flash
  document.cookie = `benchmax_theme=${next}; path=/; samesite=strict; max-age=${next === "auto" ? 0 : YEAR_S}`;
}, { title: "Light, dark, or as the system" });
document.getElementById("switches").append(theme);

for (const element of document.querySelectorAll("[data-without-script]")) element.hidden = true;
for (const [selector, begin] of [["#results", listing], ["#live", live], ["#new", sending]]) {
  const found = document.querySelector(selector);
  if (found) begin(found);
}

root.dataset.ready = "";
