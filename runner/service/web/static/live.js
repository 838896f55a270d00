// A validation while it runs. Events come in thousands: they are counted at once, and shown together, once per frame.

import { el, number, oneLine, seconds, shown } from "./elements.js";
import { follow } from "./stream.js";
import { announce, fetched, swap } from "./swapping.js";

const ROWS = 200;
const LINES = 300;
const NOTICES = 100;
const COMPONENTS = 8;
const CONNECTION = { live: "live", lost: "connection lost, trying again", gone: "no longer to be followed" };

export function live(section) {
  const place = section.querySelector("#progress");
  const connection = section.querySelector("#connection");
  const counts = { rollouts: 0, failed: 0, errors: 0, warnings: 0, calls: null };
  const means = new Map();
  const fresh = { phases: [], rollouts: [], lines: [], notices: [] };
  let frame = 0;
  let waiting = document.querySelector("#state .waits") !== null;

  const view = build();
  place.replaceChildren(...view.all);

  function told(kind, data) {
    if (kind === "end") {
      ended(data);
      return;
    }
    take[kind]?.(data);
    // what waits has begun, or what ran waits again for an executor
    const waits = kind === "phase" && data.phase === "queued";
    if (waits !== waiting) begun(waits);
    if (!frame) frame = requestAnimationFrame(show);
  }

  const take = {
    phase: (data) => fresh.phases.push(data),
    log: (data) => keep(fresh.lines, data, LINES),
    calls: (data) => { counts.calls = data.in_flight; },
    finding: (data) => {
      counts[data.severity === "error" ? "errors" : "warnings"] += 1;
      fresh.notices.push(data);
    },
    rollout: (data) => {
      counts.rollouts += 1;
      if (isBad(data)) counts.failed += 1;
      for (const [component, value] of Object.entries(data.rewards ?? {})) {
        const mean = means.get(component) ?? { sum: 0, count: 0 };
        if (Number.isFinite(value)) means.set(component, { sum: mean.sum + value, count: mean.count + 1 });
      }
      keep(fresh.rollouts, data, ROWS);
    },
  };

  function show() {
    frame = 0;
    view.rolloutCount.textContent = counts.rollouts.toLocaleString("en");
    view.failedCount.textContent = counts.failed.toLocaleString("en");
    view.errorCount.textContent = counts.errors.toLocaleString("en");
    view.warningCount.textContent = counts.warnings.toLocaleString("en");
    if (counts.calls !== null) {
      view.calls.hidden = false;
      view.callCount.textContent = counts.calls.toLocaleString("en");
    }
    showPhases();
    showMeans();
    if (fresh.rollouts.length) {
      view.rollouts.hidden = false;
      view.rows.prepend(...fresh.rollouts.splice(0).reverse().map(row));
      trim(view.rows, ROWS, false);
      view.rowsLeft.textContent = counts.rollouts > ROWS
        ? `The newest ${ROWS} of ${counts.rollouts.toLocaleString("en")}. The report has them all.` : "";
    }
    const room = NOTICES - view.notices.childElementCount;
    const notices = fresh.notices.splice(0);
    view.notices.append(...notices.slice(0, Math.max(0, room)).map(notice));
    if (notices.length) view.findings.hidden = false;
    if (fresh.lines.length) showLines();
  }

  function showPhases() {
    for (const phase of fresh.phases.splice(0)) {
      view.phases.querySelector("[aria-current]")?.removeAttribute("aria-current");
      view.phases.append(el("li", { "aria-current": "step" }, el("span", { class: "phase" }, oneLine(phase.phase, 40)), " ", oneLine(phase.text)));
      announce(oneLine(phase.text));
    }
    trim(view.phases, NOTICES, true);
  }

  function showMeans() {
    const some = [...means].slice(0, COMPONENTS);
    view.means.textContent = some.length
      ? `Mean rewards so far: ${some.map(([name, mean]) => `${oneLine(name, 40)} ${number(mean.sum / mean.count)}`).join(", ")}` : "";
  }

  function showLines() {
    const { box, lines } = view;
    view.output.hidden = false;
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    lines.append(...fresh.lines.splice(0).map(line));
    trim(lines, LINES, true);
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  async function begun(waits) {
    waiting = waits;
    try {
      const page = await fetched(section.dataset.page);
      // it may be over by now, and then that is shown
      if (page.querySelector("#live") && section.isConnected) swap(page, "#facts");
    } catch (error) {
      if (error.name !== "AbortError") announce(error.message);
    }
  }

  async function ended(data) {
    cancelAnimationFrame(frame);
    show();
    const address = section.dataset.page;
    try {
      const page = await fetched(address);
      const { fresh: over, held } = swap(page, "#validation");
      document.title = page.title;
      if (held) over.querySelector("h1").focus();
      announce(`${section.dataset.name} is over: ${oneLine(over.querySelector("#state").textContent)}`);
    } catch (error) {
      if (error.name === "AbortError") return;
      connection.textContent = `over: ${data.judgement ?? data.state}; load the page again`;
    }
  }

  function changed(state) {
    connection.hidden = false;
    if (connection.textContent === CONNECTION[state]) return;
    if (connection.textContent) announce(CONNECTION[state]);
    connection.textContent = CONNECTION[state];
    connection.dataset.state = state;
  }

  follow({ events: section.dataset.events, facts: section.dataset.facts, told, changed });
}

function build() {
  const tile = (name) => {
    const value = el("dd", {}, "0");
    return { value, whole: el("div", {}, el("dt", {}, name), value) };
  };
  const [rolloutTile, failedTile, callTile, errorTile, warningTile] =
    ["rollouts", "not ended well", "model calls in flight", "errors", "warnings"].map(tile);
  callTile.whole.hidden = true;
  const phases = el("ol", { class: "phases" });
  const means = el("p", { class: "quiet" });
  const notices = el("ul", { class: "notices" });
  const rows = el("tbody", {});
  const rowsLeft = el("p", { class: "quiet" });
  const lines = el("ol", {});
  const box = el("div", { class: "output", tabindex: 0, role: "region", "aria-label": "Output" }, lines);
  const heads = [["rollout"], ["pass"], ["ended"], ["rewards"], ["took", "number"]];
  const table = el("table", {}, el("thead", {}, el("tr", {}, heads.map(([name, look]) => el("th", { class: look }, name)))), rows);
  const findings = el("div", { hidden: true }, el("h3", {}, "Findings"), notices);
  const rollouts = el("div", { hidden: true }, el("h3", {}, "Rollouts"), means,
    el("div", { class: "scroll newest", tabindex: 0, role: "region", "aria-label": "Newest rollouts" }, table), rowsLeft);
  const output = el("div", { hidden: true }, el("h3", {}, "Output"), box);
  const tiles = el("dl", { class: "tiles" }, [rolloutTile, failedTile, callTile, errorTile, warningTile].map((one) => one.whole));
  return {
    all: [tiles, el("h3", {}, "Phases"), phases, findings, rollouts, output],
    rolloutCount: rolloutTile.value, failedCount: failedTile.value, errorCount: errorTile.value,
    warningCount: warningTile.value, callCount: callTile.value, calls: callTile.whole,
    phases, means, notices, rows, rowsLeft, lines, box, findings, rollouts, output,
  };
}

function keep(list, one, most) {
  list.push(one);
  // of what comes faster than it can be shown only the newest is
  if (list.length > 2 * most) list.splice(0, list.length - most);
}

function trim(parent, most, first) {
  while (parent.childElementCount > most) (first ? parent.firstElementChild : parent.lastElementChild).remove();
}

function isBad(rollout) {
  return rollout.origin === "runner" || Boolean(rollout.error);
}

function row(rollout) {
  const rewards = Object.entries(rollout.rewards ?? {}).slice(0, COMPONENTS)
    .map(([name, value]) => `${oneLine(name, 40)} ${typeof value === "number" ? number(value) : oneLine(value, 20)}`);
  return el("tr", {}, el("th", { scope: "row" }, el("code", {}, oneLine(rollout.rollout_id, 64))), el("td", {}, oneLine(rollout.pass, 40)),
    el("td", {}, el("span", { class: isBad(rollout) ? "state bad" : "state good" }, oneLine(rollout.reason, 60)),
      rollout.error ? el("span", { class: "quiet" }, " ", oneLine(rollout.error, 200)) : null),
    el("td", {}, rewards.join(", ") || "–"), el("td", { class: "number" }, seconds(rollout.seconds)));
}

function notice(finding) {
  const where = finding.file ? `${finding.file}${finding.line ? `:${finding.line}` : ""}` : "";
  return el("li", { class: `notice ${finding.severity === "error" ? "error" : "warning"}` },
    el("p", {}, el("span", { class: "badge" }, finding.severity === "error" ? "Error" : "Warning"), " ", el("code", {}, oneLine(finding.code, 60)), " ",
      oneLine(`${finding.what}: ${finding.message}`, 1000), "."),
    where ? el("p", { class: "quiet" }, oneLine(where, 300)) : null, finding.fix ? el("p", {}, el("b", {}, "Next:"), " ", oneLine(finding.fix, 1000)) : null);
}

function line(output) {
  const from = output.rollout_id ?? output.logger ?? "";
  return el("li", { class: output.stream === "stderr" || output.level >= 40 ? "bad" : null },
    el("span", { class: "source" }, oneLine(from || output.stream, 64)), " ", shown(output.text ?? "").slice(0, 4000));
}
