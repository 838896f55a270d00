// Parts of a page taken from a newer one, and what is said to people who listen to the page.

const BETWEEN_MS = 2_000;

let said = 0;
let waiting = null;
let timer = 0;

// the last of several things that happen at once is said: whoever listens is not to be flooded
export function announce(text) {
  waiting = text;
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    said = performance.now();
    document.getElementById("said").textContent = waiting;
  }, Math.max(0, said + BETWEEN_MS - performance.now()));
}

export async function fetched(address, options = {}) {
  const answer = await fetch(address, { ...options, redirect: "manual" });
  if (answer.type === "opaqueredirect") {
    // the session is over: go where the page itself would have led
    location.assign(address);
    throw new DOMException("the session is over", "AbortError");
  }
  if (!answer.ok) throw new Error(`the page could not be loaded: ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

export function swap(page, selector) {
  const old = document.querySelector(selector);
  const fresh = document.importNode(page.querySelector(selector), true);
  const held = old.contains(document.activeElement);
  old.replaceWith(fresh);
  for (const element of fresh.querySelectorAll("[data-without-script]")) element.hidden = true;
  return { fresh, held };
}
