// The events of a validation, each once and in order, however often the connection is lost.

const KINDS = ["phase", "rollout", "log", "calls", "finding", "verdict", "end"];
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

// `told` gets each event's kind and data; `changed` is told how the connection is: live, lost, or gone for good
export function follow({ events, facts, told, changed }) {
  let last = 0;
  let over = false;
  let source = null;
  let pause = FIRST_PAUSE_MS;
  let timer = 0;

  function close() {
    clearTimeout(timer);
    timer = 0;
    source?.close();
    source = null;
  }

  function open() {
    close();
    // a browser has six connections to a server, and tabs that nobody looks at leave theirs to others
    if (over || document.visibilityState === "hidden") return;
    source = new EventSource(`${events}?after=${last}`);
    source.addEventListener("open", () => {
      pause = FIRST_PAUSE_MS;
      changed("live");
    });
    source.addEventListener("error", () => {
      changed("lost");
      // else the browser itself tries again, from the event that it had last
      if (source?.readyState === EventSource.CLOSED) refused();
    });
    for (const kind of KINDS) source.addEventListener(kind, take);
  }

  function take(event) {
    const seq = Number(event.lastEventId);
    if (seq <= last || over) return;
    last = seq;
    if (event.type === "end") end(JSON.parse(event.data));
    else told(event.type, JSON.parse(event.data));
  }

  function end(data) {
    over = true;
    close();
    told("end", data);
  }

  async function refused() {
    close();
    try {
      const answer = await fetch(facts);
      if ([401, 403, 404].includes(answer.status)) {
        over = true;
        changed("gone");
        return;
      }
      const found = answer.ok ? await answer.json() : null;
      if (found && ["done", "failed", "cancelled"].includes(found.state) && found.last_seq <= last) {
        end(found);
        return;
      }
    } catch {
      // the server is not there either: it may come back
    }
    if (over || source) return;
    timer = setTimeout(open, pause);
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  }

  document.addEventListener("visibilitychange", open);
  addEventListener("online", open);
  addEventListener("pagehide", close);
  open();
}
