// The two lists, of rollouts and of examples, and what is asked of them.

const wanted = { text: "", inside: false, ended: "", reason: "", group: null, sort: "" };
let asked = 0;

// as many components as there is room for
function componentsShown() {
  const width = document.documentElement.clientWidth;
  return Math.min(table.components.length, width < 700 ? 1 : width < 1200 ? 2 : 4);
}

function shade(value, component) {
  if (value === null) return "";
  const [low, high] = ranges[component];
  return `heat${high > low ? Math.min(6, Math.floor((value / 2 - low / 2) / (high / 2 - low / 2) * 7)) : 3}`;
}

const ranges = table.rollouts.rewards.map((column) => {
  let [low, high] = [Infinity, -Infinity];
  for (const value of column) {
    if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
  }
  return [low, high];
});

function rolloutColumns() {
  const { rollouts } = table;
  const hasTokens = rollouts.tokens.some((value) => value !== null);
  return [
    { title: "", spoken: "ended well", class: "c-status", cell: (place) => status(rollouts.ok[place]) },
    { title: "rollout", class: "c-id", cell: (place) => oneLine(rollouts.id[place], 80) },
    { title: "ended", class: "c-reason", cell: (place) => oneLine(table.reasons[rollouts.reason[place]], 60) },
    ...table.components.slice(0, componentsShown()).map((name, component) => ({
      title: oneLine(name, 24), class: "c-number",
      cell: (place) => el("span", { class: `value ${shade(rollouts.rewards[component][place], component)}` }, number(rollouts.rewards[component][place])),
    })),
    { title: "time", class: "c-number c-time", cell: (place) => seconds(rollouts.seconds[place]) },
    ...(hasTokens ? [{ title: "tokens", class: "c-number c-tokens", cell: (place) => rollouts.tokens[place]?.toLocaleString("en") ?? "–" }] : []),
    { title: "cause", class: "c-cause", cell: (place) => oneLine(rollouts.cause[place]) },
  ];
}

function exampleColumns(groups) {
  return [
    { title: "", spoken: "position", class: "c-position", cell: (place) => table.groups.position[place] },
    { title: "example", class: "c-id", cell: (place) => oneLine(table.groups.example[place], 80) },
    { title: "ended well", class: "c-number", cell: (place) => `${groups[place].ok} of ${table.groups.rollouts[place]}` },
    ...table.components.slice(0, componentsShown()).map((name, component) => ({
      title: oneLine(name, 24), class: "c-number c-wide",
      cell: (place) => {
        const values = groups[place].values[component];
        const average = mean(values);
        const range = values.length > 1 && Math.min(...values) < Math.max(...values)
          ? ` ${number(Math.min(...values))}…${number(Math.max(...values))}` : "";
        return [el("span", { class: "quiet" }, range, " "), el("span", { class: `value ${shade(average, component)}` }, number(average))];
      },
    })),
    { title: "error", class: "c-cause", cell: (place) => oneLine(table.groups.error[place]) },
  ];
}

function choice(label, options, change) {
  const select = el("select", { onchange: () => change(select.value) },
    options.map(([value, text]) => el("option", { value }, oneLine(text, 60))));
  return [el("label", {}, el("span", {}, label), select), select];
}

function lists() {
  const groups = groupFacts();
  const count = el("p", { class: "count", role: "status" });
  const detail = new Detail({
    step: (by) => { rollouts.move(by); },
    closed: () => rollouts.element.focus({ preventScroll: true }),
  });
  const rollouts = new Grid({
    name: "rollout-list", label: "Rollouts", rows: rolloutCount, columns: rolloutColumns(),
    rowClass: (place) => (table.rollouts.ok[place] ? "" : "bad"),
    opened: (place) => detail.show(place, { focus: true }),
    moved: (place) => { if (detail.open) detail.show(place); },
  });
  const examples = new Grid({
    name: "example-list", label: "Examples", rows: groups.length, columns: exampleColumns(groups),
    rowClass: (place) => (groups[place].ok < table.groups.rollouts[place] ? "bad" : ""),
    opened: (place) => { wanted.group = place; view("rollouts"); ask(); rollouts.element.focus(); },
    moved: () => {},
  });
  examples.show(table.groups.position.map((_, place) => place));

  const search = el("input", { type: "search", placeholder: "id, example, reason, cause", oninput: () => { wanted.text = search.value; later(); } });
  const inside = el("input", { type: "checkbox", onchange: () => { wanted.inside = inside.checked; ask(); } });
  const [ended, endedSelect] = choice("Ended", [["", "in any way"], ["good", "well"], ["bad", "not well"], ["found", "with findings"]], (value) => { wanted.ended = value; ask(); });
  const [reason, reasonSelect] = choice("Reason", [["", "any"], ...table.reasons.map((name, place) => [place, name])], (value) => { wanted.reason = value; ask(); });
  const orders = [["", "as they ran"], ["seconds:down", "slowest first"], ["seconds:up", "fastest first"], ["tokens:down", "most tokens first"],
    ...table.components.flatMap((name, at) => [[`reward-${at}:down`, `${name}, highest first`], [`reward-${at}:up`, `${name}, lowest first`]])];
  const [order, orderSelect] = choice("Order", orders, (value) => { wanted.sort = value; ask(); });
  const only = el("span", { class: "chip", hidden: true });
  const reset = button("Reset", () => { clear(); ask(); });
  let timer = 0;

  function later() {
    clearTimeout(timer);
    timer = setTimeout(ask, wanted.inside ? 300 : 60);
  }

  function clear() {
    Object.assign(wanted, { text: "", inside: false, ended: "", reason: "", group: null, sort: "" });
    search.value = "";
    inside.checked = false;
    for (const select of [endedSelect, reasonSelect, orderSelect]) select.value = "";
  }

  async function ask() {
    const mine = asked += 1;
    only.hidden = wanted.group === null;
    if (wanted.group !== null) only.textContent = oneLine(`example ${table.groups.position[wanted.group]} · ${table.groups.example[wanted.group]}`, 60);
    let places = found(wanted);
    if (wanted.inside && wanted.text.trim()) {
      const progress = (done, of) => { count.textContent = `Looking into transcripts: ${Math.floor(100 * done / of)} %`; };
      try {
        places = await foundInside(wanted, { progress, current: () => mine === asked });
      } catch (error) {
        count.textContent = `Transcripts cannot be searched: ${error.message}`;
        return;
      }
      if (places === null || mine !== asked) return;
    }
    rollouts.show(places);
    count.textContent = `${places.length.toLocaleString("en")} of ${counted(rolloutCount, "rollout")}`;
  }

  const tabs = {
    rollouts: button("Rollouts", () => view("rollouts"), { "aria-pressed": "true" }),
    examples: button("Examples", () => view("examples"), { "aria-pressed": "false" }),
  };
  const panes = {
    rollouts: el("div", { class: "pane" }, el("div", { class: "filters", role: "search", "aria-label": "Rollouts" },
      el("label", { class: "search" }, el("span", {}, "Search"), search), ended, reason, order,
      el("label", { class: "check" }, inside, el("span", {}, "also in transcripts and output")), only, reset), count,
    el("div", { class: "split" }, el("div", { class: "side" }, rollouts.element, rollouts.empty), detail.element)),
    examples: el("div", { class: "pane", hidden: true }, el("p", { class: "quiet" }, "Mean of each component, with lowest … highest of the group; Enter shows an example’s rollouts."), examples.element, examples.empty),
  };

  function view(name) {
    for (const key of Object.keys(tabs)) {
      tabs[key].setAttribute("aria-pressed", String(key === name));
      panes[key].hidden = key !== name;
    }
    (name === "rollouts" ? rollouts : examples).resized();
  }

  function open(place) {
    clear();
    view("rollouts");
    ask();
    rollouts.go(place);
    detail.show(place, { focus: true });
    document.getElementById("rollouts").scrollIntoView();
  }

  function filterReason(place) {
    clear();
    wanted.reason = reasonSelect.value = String(place);
    view("rollouts");
    ask();
    document.getElementById("rollouts").scrollIntoView();
    rollouts.element.focus({ preventScroll: true });
  }

  function recount() {
    rollouts.setColumns(rolloutColumns());
    examples.setColumns(exampleColumns(groups));
  }

  const parent = document.getElementById("lists");
  parent.append(el("div", { class: "tabs", role: "group", "aria-label": "List of" }, tabs.rollouts, tabs.examples), panes.rollouts, panes.examples);
  parent.hidden = false;
  ask();
  return { rollouts, detail, search, open, filterReason, recount, view };
}
