// The list of validations: filters without loading the page again, and states that change while it is looked at.

import { announce, fetched, swap } from "./swapping.js";

const TYPING_MS = 200;
const LOOK_MS = 3_000;

export function listing() {
  const filters = document.querySelector("[data-filters]");
  let timer = 0;
  let asking = null;

  async function filter() {
    asking?.abort();
    asking = new AbortController();
    const wanted = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
    const address = wanted.size ? `/validations?${wanted}` : "/validations";
    try {
      const page = await fetched(address, { signal: asking.signal });
      history.replaceState(null, "", address);
      announce(swap(page, "#results").fresh.querySelector(".count").textContent);
      choose();
    } catch (error) {
      if (error.name !== "AbortError") announce(error.message);
    }
  }

  filters.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(filter, TYPING_MS);
  });
  filters.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    filter();
  });
  document.addEventListener("change", choose);
  choose();
  setInterval(look, LOOK_MS);
}

// two can be compared
function choose() {
  const form = document.querySelector("[data-compare]");
  if (form) form.querySelector("button").disabled = form.querySelectorAll("input:checked").length !== 2;
}

async function look() {
  const open = [...document.querySelectorAll("#results tr[data-open]")];
  if (!open.length || document.visibilityState === "hidden") return;
  let page;
  try {
    page = await fetched(location.href);
  } catch {
    // the server may be there again the next time
    return;
  }
  for (const row of open) {
    const found = page.getElementById(row.id);
    if (!found || !row.isConnected || found.dataset.state === row.dataset.state) continue;
    row.dataset.state = found.dataset.state;
    row.toggleAttribute("data-open", "open" in found.dataset);
    for (const cell of [".cell-state", ".cell-took"]) row.querySelector(cell).replaceWith(document.importNode(found.querySelector(cell), true));
    row.querySelector("input").disabled = found.querySelector("input").disabled;
    announce(`${row.querySelector("a").textContent}: ${row.querySelector(".cell-state").textContent.trim()}`);
  }
}
