// Elements, and text made fit to be seen. Text gets into the page as text alone: nothing here makes markup of it.

const SVG = "http://www.w3.org/2000/svg";

// what hides or reorders text; joiners stay, since scripts and emoji need them
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function shown(text) {
  return String(text).replace(UNSEEN, (found) => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
}

function oneLine(text, most = 300) {
  const line = shown(text).replace(/\s+/g, " ").trim();
  return line.length > most ? line.slice(0, most - 1) + "…" : line;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
  return parent;
}

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : shown(value));
  }
  return append(made, children);
}

function icon(path) {
  const drawn = document.createElementNS(SVG, "svg");
  drawn.setAttribute("viewBox", "0 0 16 16");
  drawn.setAttribute("aria-hidden", "true");
  drawn.setAttribute("class", "icon");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  drawn.append(line);
  return drawn;
}

const OK_ICON = "M3 8.5l3.5 3.5L13 4.5";
const BAD_ICON = "M4 4l8 8M12 4l-8 8";

function status(ok) {
  return el("span", { class: ok ? "status good" : "status bad" }, icon(ok ? OK_ICON : BAD_ICON),
    el("span", { class: "unseen" }, ok ? "ended well" : "failed"));
}

function button(text, action, attributes = {}) {
  return el("button", { type: "button", ...attributes, onclick: action }, text);
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || (size < 1e-3 && size > 0) ? value.toExponential(2) : String(Number(value.toPrecision(3)));
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 60) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return value >= 1 ? `${Number(value.toPrecision(3))} s` : `${Number((value * 1000).toPrecision(3))} ms`;
}

function counted(count, what) {
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}
