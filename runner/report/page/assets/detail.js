// One rollout: how it ended, its rewards, what was found, its messages, what it logged and printed.

const LEVELS = [[50, "critical"], [40, "error"], [30, "warning"], [20, "info"], [10, "debug"]];

function levelOf(line) {
  if (line.stream !== "log") return line.stream;
  return LEVELS.find(([least]) => (line.level ?? 0) >= least)?.[1] ?? "log";
}

function facts(pairs) {
  return el("dl", { class: "terms" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function part(title, ...children) {
  return el("section", { class: "part" }, el("h3", {}, title), children);
}

function tableOf(caption, heads, rows) {
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, el("table", {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, at) => at ? el("td", {}, cell) : el("th", { scope: "row" }, cell)))))));
}

function tokensOf(use) {
  const about = use.estimated ? "≈ " : "";
  return `${about}${use.prompt_tokens.toLocaleString("en")} prompt, ${use.completion_tokens.toLocaleString("en")} completion`;
}

function callsOf(use) {
  const slowest = use.seconds.length ? `, slowest ${seconds(Math.max(...use.seconds))}` : "";
  return counted(use.calls, "call") + (use.failed ? ` (${use.failed} failed)` : "") + slowest;
}

function logsOf(outcome) {
  const lines = longList(outcome.logs ?? [], (line) => el("li", { class: `log ${levelOf(line)}` },
    el("span", { class: "source" }, levelOf(line), line.logger ? ` ${oneLine(line.logger, 60)}` : ""),
    longText(line.text.replace(/\n$/, ""))), el("ol", { class: "logs" }));
  return [
    outcome.logs?.length ? lines : el("p", { class: "quiet" }, "It logged and printed nothing."),
    outcome.dropped_logs ? el("p", { class: "quiet" }, `${counted(outcome.dropped_logs, "line")} beyond the limits.`) : null,
  ];
}

function rewardsOf(outcome) {
  const rewards = Object.entries(outcome.rewards);
  if (!rewards.length) return el("p", { class: "quiet" }, "It has no rewards.");
  const list = rewards.slice(0, SHOWN_ITEMS).map(([name, value]) => [oneLine(name, 120), value === null ? "not finite" : String(value)]);
  return [tableOf("Rewards of this rollout", ["component", "value"], list),
    rewards.length > SHOWN_ITEMS ? el("details", {}, el("summary", {}, `All ${rewards.length}`), longText(pretty(outcome.rewards))) : null];
}

function findingsOf(outcome) {
  if (!outcome.findings?.length) return null;
  return part("Findings", tableOf("Findings of this rollout", ["severity", "code", "what", "where", "times"],
    outcome.findings.map((one) => [one.severity, one.code, one.message, `call ${one.call} ${one.field}`, String(one.count)])));
}

function detailOf(place, outcome) {
  const group = table.rollouts.group[place];
  const cause = outcome.cause || outcome.error;
  return [
    facts([
      ["ended", [status(outcome.ok), " ", outcome.termination_reason, outcome.origin === "runner" ? " (chosen by the runner)" : ""]],
      ["example", `${table.groups.position[group]} · ${table.groups.example[group]}`],
      ["ran", seconds(outcome.seconds)],
      ["model", outcome.model_use ? callsOf(outcome.model_use) : null],
      ["tokens", outcome.model_use ? tokensOf(outcome.model_use) : null],
    ]),
    cause ? part(outcome.error ? "Error" : "Cause", longText(cause, { class: "failure" })) : null,
    findingsOf(outcome),
    part("Rewards", rewardsOf(outcome)),
    part("Transcript", transcriptOf(outcome)),
    outcome.stack ? part("Where it was when it was ended", longText(outcome.stack)) : null,
    part("Output", logsOf(outcome)),
  ];
}

class Detail {
  constructor({ step, closed }) {
    this.place = null;
    this.closed = closed;
    this.title = el("h3", { tabindex: -1, class: "detail-title" });
    this.body = el("div", { class: "detail-body", tabindex: 0, role: "group", "aria-label": "What is known of the rollout" });
    this.element = el("aside", { class: "detail", "aria-label": "Rollout", hidden: true },
      el("div", { class: "detail-head" }, this.title,
        button("↑", () => step(-1), { "aria-label": "Previous rollout", title: "Previous (k)" }),
        button("↓", () => step(1), { "aria-label": "Next rollout", title: "Next (j)" }),
        button("Close", () => this.close(), { title: "Close (Esc)" })),
      this.body);
  }

  get open() {
    return this.place !== null;
  }

  async show(place, { focus = false } = {}) {
    this.place = place;
    this.element.hidden = false;
    document.body.classList.add("with-detail");
    this.title.textContent = oneLine(table.rollouts.id[place], 120);
    if (focus) this.title.focus();
    let content;
    try {
      content = detailOf(place, await outcomeAt(place));
    } catch (error) {
      // a browser without decompression, or a file that was cut
      content = [el("p", { class: "failure" }, `This rollout cannot be shown: ${error.message}`)];
    }
    if (this.place !== place) return;
    this.body.replaceChildren();
    append(this.body, content);
    this.body.scrollTop = 0;
  }

  close() {
    if (!this.open) return;
    this.place = null;
    this.element.hidden = true;
    this.body.replaceChildren();
    document.body.classList.remove("with-detail");
    this.closed();
  }
}
