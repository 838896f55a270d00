// A rollout's messages, whatever shape they have: roles, tool calls and their answers, reasoning, images.

const SHOWN_CHARACTERS = 20000;
const SHOWN_ITEMS = 200;

function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 1);
}

// text that may be long: its beginning, and the rest when it is asked for
function longText(text, attributes = {}) {
  const pre = el("pre", { dir: "auto", ...attributes });
  if (text.length <= SHOWN_CHARACTERS) return append(pre, [text]);
  append(pre, [text.slice(0, SHOWN_CHARACTERS)]);
  const more = button(`Show all ${text.length.toLocaleString("en")} characters`, () => {
    pre.textContent = shown(text);
    more.remove();
  });
  return [pre, more];
}

// items that may be many: the first, and more when they are asked for
function longList(items, make, parent, from = 0) {
  append(parent, items.slice(from, from + SHOWN_ITEMS).map((item, at) => make(item, from + at)));
  const left = items.length - from - SHOWN_ITEMS;
  if (left > 0) {
    const more = el("li", { class: "more" }, button(`Show more (${left.toLocaleString("en")} left)`, () => {
      more.remove();
      longList(items, make, parent, from + SHOWN_ITEMS);
    }));
    parent.append(more);
  }
  return parent;
}

function urlOf(part) {
  if (part.source && typeof part.source === "object") return `data:${part.source.media_type};base64,${part.source.data}`;
  const named = part.image_url ?? part.url ?? part.image;
  return named && typeof named === "object" ? named.url : named;
}

function partOf(part) {
  if (typeof part === "string") return longText(part);
  if (!part || typeof part !== "object") return longText(pretty(part));
  if (typeof part.text === "string" && Object.keys(part).every((key) => ["type", "text", "annotations"].includes(key))) return longText(part.text);
  if (/image/.test(part.type)) {
    const { image, why } = imageFrom(urlOf(part));
    return image ?? el("p", { class: "quiet" }, `${why}: `, el("code", {}, oneLine(urlOf(part) ?? pretty(part), 200)));
  }
  return longText(pretty(part));
}

function contentOf(content) {
  if (content === null || content === undefined || content === "") return [];
  return Array.isArray(content) ? content.map(partOf) : [partOf(content)];
}

function argumentsOf(given) {
  if (typeof given !== "string") return pretty(given);
  try {
    return JSON.stringify(JSON.parse(given), null, 1);
  } catch (error) {
    if (error instanceof SyntaxError) return given;
    throw error;
  }
}

function callOf(call) {
  const made = call && typeof call === "object" ? call : {};
  const what = made.function ?? made.custom ?? made;
  return el("div", { class: "tool-call" },
    el("p", {}, el("b", { class: "badge" }, "calls"), " ", el("code", {}, oneLine(what.name ?? "a tool")),
      made.id ? el("span", { class: "quiet" }, " ", oneLine(made.id, 60)) : null),
    longText(argumentsOf(what.arguments ?? what.input ?? call)));
}

const KNOWN = new Set(["role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning", "refusal", "function_call"]);

function messageOf(message, names, at) {
  if (!message || typeof message !== "object" || Array.isArray(message)) return el("li", { class: "message" }, longText(pretty(message)));
  const role = typeof message.role === "string" ? message.role : "message";
  const kind = ["system", "developer", "user", "assistant", "tool", "function"].includes(role) ? role : "other";
  const name = message.name ?? names.get(message.tool_call_id);
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls : message.function_call ? [{ function: message.function_call }] : [];
  const thought = message.reasoning_content ?? message.reasoning;
  const rest = Object.fromEntries(Object.entries(message).filter(([key, value]) => !KNOWN.has(key) && value !== null));
  return el("li", { class: `message ${kind}` },
    el("h4", {}, oneLine(role, 40), name ? el("span", { class: "quiet" }, " ", el("code", {}, oneLine(name, 80))) : null,
      el("span", { class: "place quiet" }, `${at + 1}`)),
    thought ? el("details", {}, el("summary", {}, "Reasoning"), longText(pretty(thought))) : null,
    contentOf(message.content),
    message.refusal ? [el("p", {}, el("b", { class: "badge" }, "refusal")), longText(pretty(message.refusal))] : null,
    calls.map(callOf),
    Object.keys(rest).length ? el("details", {}, el("summary", {}, "Other fields"), longText(pretty(rest))) : null);
}

function transcriptOf(outcome) {
  const messages = outcome.transcript;
  const omitted = outcome.transcript_omitted_bytes
    ? el("p", { class: "quiet" }, `${outcome.transcript_omitted_bytes.toLocaleString("en")} bytes of messages did not fit the limits.`) : null;
  if (!messages || !messages.length) return [omitted ?? el("p", { class: "quiet" }, "No transcript was shown.")];
  const names = new Map();
  for (const message of messages) {
    for (const call of Array.isArray(message?.tool_calls) ? message.tool_calls : []) {
      if (call?.id && typeof call.function?.name === "string") names.set(call.id, call.function.name);
    }
  }
  return [longList(messages, (message, at) => messageOf(message, names, at), el("ol", { class: "transcript" })), omitted];
}
