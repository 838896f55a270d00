// A bundle and its data, chosen or dropped, sent as the client sends them, and validated.

import { digestOf } from "./digest.js";
import { button, counted, el, number, oneLine } from "./elements.js";
import { announce } from "./swapping.js";

const PARTS = { "env-cls.pkl": "pickle", "env-metadata.json": "metadata" };
const BESIDE = ["env-facts.json", "pylock.toml"];
const AT_ONCE = 3;
const TRIES = 20;
const LISTED = 200;

export function sending(form) {
  const drop = form.querySelector("#drop");
  const list = form.querySelector("#chosen");
  const problem = form.querySelector("#problem");
  const stop = form.querySelector("#stop");
  const start = form.querySelector("button.main");
  // by role: pickle, metadata, or data/ and the path
  const chosen = new Map();
  let under = null;
  form.hidden = false;

  function take(found) {
    const homes = found.filter((one) => Object.hasOwn(PARTS, one.file.name)).map((one) => one.path.slice(0, -one.file.name.length));
    for (const { path, file } of found) {
      // as the client has it: what begins with a dot stays
      if (path.split("/").some((segment) => segment.startsWith("."))) continue;
      const home = path.slice(0, -file.name.length);
      if (Object.hasOwn(PARTS, file.name)) chosen.set(PARTS[file.name], file);
      else if (!(BESIDE.includes(file.name) && homes.includes(home))) chosen.set(`data/${path.slice(path.indexOf("/") + 1)}`, file);
    }
    const top = homes[0]?.split("/")[0];
    const name = form.elements.namedItem("name");
    if (top && !name.value) name.value = top.slice(0, 200);
    show();
    announce(`${counted(chosen.size, "file")} chosen`);
  }

  function show() {
    const rows = [...chosen].slice(0, LISTED).map(([role, file]) => el("tr", { "data-role": role },
      el("th", { scope: "row" }, oneLine(role.startsWith("data/") ? role.slice(5) : file.name)),
      el("td", {}, role.startsWith("data/") ? "data" : role), el("td", { class: "number" }, size(file.size)),
      el("td", { class: "sent" }, button("Remove", () => remove(role), { "aria-label": `Remove ${oneLine(file.name)}` }))));
    const missing = Object.entries(PARTS).filter(([, role]) => !chosen.has(role)).map(([name]) => name);
    const heads = [["file"], ["what"], ["size", "number"], [""]];
    list.replaceChildren(
      chosen.size ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Chosen files" },
        el("table", {}, el("thead", {}, el("tr", {}, heads.map(([name, look]) => name ? el("th", { class: look }, name) : el("td", {})))), el("tbody", {}, rows))) : "",
      chosen.size > LISTED ? el("p", { class: "quiet" }, `and ${counted(chosen.size - LISTED, "more file")}`) : "",
      missing.length ? el("p", { class: "quiet" }, `Still missing: ${missing.join(" and ")}.`) : "",
      el("div", { id: "going", hidden: true }, el("label", {}, el("span", {}, "Sending"), el("progress", { max: 1, value: 0 })), el("p", { class: "quiet" })));
  }

  function remove(role) {
    chosen.delete(role);
    show();
    form.querySelector("#files").focus();
  }

  for (const input of form.querySelectorAll('input[type="file"]')) {
    input.addEventListener("change", () => {
      take([...input.files].map((file) => ({ file, path: file.webkitRelativePath || `/${file.name}` })));
      input.value = "";
    });
  }
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  drop.addEventListener("dragleave", (event) => {
    if (!drop.contains(event.relatedTarget)) drop.classList.remove("over");
  });
  drop.addEventListener("drop", async (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    // what was dropped is there only until this function waits
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
    const loose = entries.length ? [] : [...event.dataTransfer.files];
    try {
      const found = (await Promise.all(entries.map(below))).flat();
      take([...found, ...loose.map((file) => ({ file, path: `/${file.name}` }))]);
    } catch (error) {
      tell(`What was dropped cannot be read: ${error.message}.`);
    }
  });

  stop.addEventListener("click", () => under?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (under) return;
    const wrong = check();
    tell(wrong);
    if (wrong) return;
    under = new AbortController();
    start.disabled = true;
    stop.hidden = false;
    try {
      location.assign(`/validations/${await send(under.signal)}`);
    } catch (error) {
      tell(error.name === "AbortError" ? "Stopped. What was sent stays for now, and nothing was begun." : error.message);
      show();
    } finally {
      // of several at once the others need not go on
      under.abort();
      under = null;
      start.disabled = false;
      stop.hidden = true;
    }
  });

  function check() {
    for (const [name, role] of Object.entries(PARTS)) if (!chosen.has(role)) return `${name} is missing: choose the bundle's folder, or its two files.`;
    const files = chosen.size - 2;
    if (files > Number(form.dataset.files)) return `There may be ${counted(Number(form.dataset.files), "data file")}, not ${files}.`;
    for (const file of chosen.values()) if (file.size > Number(form.dataset.most)) return `${oneLine(file.name)} has ${size(file.size)}; a file may have ${size(Number(form.dataset.most))}.`;
    return "";
  }

  function tell(text) {
    problem.textContent = oneLine(text, 1000);
  }

  async function send(signal) {
    const going = list.querySelector("#going");
    const bar = going.querySelector("progress");
    const text = going.querySelector("p");
    const whole = [...chosen.values()].reduce((sum, file) => sum + file.size, 0);
    const sent = new Map();
    const ids = new Map();
    going.hidden = false;
    announce(`Sending ${counted(chosen.size, "file")}`);

    function progress() {
      const bytes = [...sent.values()].reduce((sum, one) => sum + one, 0);
      bar.value = whole ? bytes / whole : 1;
      text.textContent = `${ids.size} of ${counted(chosen.size, "file")}, ${size(bytes)} of ${size(whole)}`;
    }

    async function one(role, file) {
      const cell = list.querySelector(`tr[data-role="${CSS.escape(role)}"] .sent`);
      cell?.replaceChildren("reading");
      const path = role.startsWith("data/") ? role.slice(5) : file.name;
      const asked = { path, bytes: file.size, sha256: await digestOf(file, signal) };
      const place = await api("/api/v1/uploads", asked, signal);
      const address = new URL(place.url);
      cell?.replaceChildren("sending");
      // by whatever name the service is called here
      await put(address.pathname + address.search, file, signal, (bytes) => {
        sent.set(role, bytes);
        progress();
      });
      sent.set(role, file.size);
      ids.set(role, place.id);
      cell?.replaceChildren("sent");
      progress();
    }

    const left = [...chosen];
    progress();
    await Promise.all(Array.from({ length: AT_ONCE }, async () => {
      for (let next = left.shift(); next; next = left.shift()) await one(...next);
    }));
    const made = await api("/api/v1/validations", asked(form, ids), signal);
    return made.id;
  }

  show();
}

function asked(form, ids) {
  const value = (name) => form.elements.namedItem(name).value.trim();
  const options = { split: value("split") };
  if (value("model")) options.model = value("model");
  if (value("timeout_s")) options.timeout_s = Number(value("timeout_s"));
  if (value("max_context_tokens")) options.max_context_tokens = Number(value("max_context_tokens"));
  const files = [...ids].filter(([role]) => role.startsWith("data/")).map(([role, upload]) => ({ path: role.slice(5), upload }));
  return { name: value("name"), artifact: { pickle: ids.get("pickle"), metadata: ids.get("metadata") }, files, options };
}

async function api(address, body, signal) {
  for (let left = TRIES; ; left -= 1) {
    const answer = await fetch(address, {
      method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal,
    });
    if (answer.ok) return answer.json();
    if (left > 0 && (answer.status === 503 || (answer.status === 429 && !address.endsWith("/validations")))) {
      await new Promise((done) => setTimeout(done, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
      signal.throwIfAborted();
      continue;
    }
    throw await refusal(answer);
  }
}

async function refusal(answer) {
  let error = null;
  try {
    ({ error } = await answer.json());
  } catch {
    // not from the service itself
  }
  return new Error(error?.message ? `${error.message} ${error.hint ?? ""}` : `the service answered ${answer.status}.`);
}

function put(address, file, signal, onBytes) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    request.upload.addEventListener("progress", (event) => onBytes(event.loaded));
    request.addEventListener("load", () => {
      if (request.status === 201) done();
      else {
        refusal(new Response(request.response, { status: request.status })).then(failed);
      }
    });
    request.addEventListener("error", () => failed(new Error(`the connection was lost while ${oneLine(file.name)} was sent. Try again.`)));
    request.addEventListener("abort", () => failed(new DOMException("stopped", "AbortError")));
    request.addEventListener("loadend", () => signal.removeEventListener("abort", abort));
    signal.addEventListener("abort", abort);
    request.open("PUT", address);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.send(file);
  });
}

async function below(entry) {
  if (entry.isFile) {
    const file = await new Promise((done, failed) => entry.file(done, failed));
    return [{ file, path: entry.fullPath.split("/").length > 2 ? entry.fullPath.slice(1) : entry.fullPath }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    // a hundred at a time
    const some = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!some.length) break;
    found.push(...some);
  }
  return (await Promise.all(found.map(below))).flat();
}

function size(bytes) {
  for (const [least, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (bytes >= least) return `${number(bytes / least)} ${unit}`;
  return counted(bytes, "byte");
}
