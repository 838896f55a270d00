// A list of any length of which only the rows in view are in the document. One row is the active one; the keys move it.

const OVERSCAN = 6;

class Grid {
  // rows: how many there are at most; columns: [{ title, class, cell(place) }]; opened(place): a row was chosen; moved(place): the active row changed
  constructor({ name, label, rows, columns, opened, moved, rowClass }) {
    Object.assign(this, { name, columns, opened, moved, rowClass });
    this.order = [];
    this.active = 0;
    this.drawn = new Map();
    this.head = el("div", { role: "row", class: "grid-row grid-head", "aria-rowindex": 1 });
    this.body = el("div", { role: "rowgroup", class: "grid-body" });
    this.element = el("div", { role: "grid", class: `grid ${name}`, tabindex: 0, "aria-label": label, "aria-multiselectable": "false" },
      el("div", { role: "rowgroup", class: "grid-top" }, this.head), this.body);
    // as high as all of them, so that it stays so whatever is looked for
    this.element.style.setProperty("--rows", rows);
    this.empty = el("p", { class: "quiet empty", hidden: true }, "Nothing fits.");
    this.element.addEventListener("scroll", () => this.soon(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("focus", () => this.move(0));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-at]");
      if (!row) return;
      this.active = Number(row.dataset.at);
      this.draw();
      this.opened(this.order[this.active]);
    });
    new ResizeObserver(() => this.resized()).observe(this.element);
    this.setColumns(columns);
  }

  setColumns(columns) {
    this.columns = columns;
    this.head.replaceChildren(...columns.map((column, at) => el("div",
      { role: "columnheader", class: column.class, "aria-colindex": at + 1 },
      column.title || el("span", { class: "unseen" }, column.spoken))));
    this.element.setAttribute("aria-colcount", columns.length);
    this.redraw();
  }

  show(order) {
    const current = this.order[this.active];
    this.order = order;
    this.active = Math.max(0, order.indexOf(current));
    this.element.setAttribute("aria-rowcount", order.length + 1);
    this.empty.hidden = order.length > 0;
    this.resized();
    this.redraw();
  }

  resized() {
    this.height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 34;
    this.body.style.height = `${this.order.length * this.height}px`;
    this.redraw();
  }

  redraw() {
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
    this.draw();
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    if (!this.height) return;
    const view = this.element.clientHeight;
    let first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - OVERSCAN);
    let last = Math.min(this.order.length, Math.ceil((this.element.scrollTop + view) / this.height) + OVERSCAN);
    if (this.whole) [first, last] = [0, Math.min(this.order.length, this.whole)];
    for (const [at, row] of this.drawn) {
      if (at < first || at >= last) { row.remove(); this.drawn.delete(at); }
    }
    for (let at = first; at < last; at += 1) {
      if (!this.drawn.has(at)) this.add(at);
    }
    for (const [at, row] of this.drawn) row.setAttribute("aria-selected", String(at === this.active));
    const active = this.drawn.get(this.active);
    if (active) this.element.setAttribute("aria-activedescendant", active.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  add(at) {
    const place = this.order[at];
    const row = el("div", { role: "row", id: `${this.name}-row-${at}`, "data-at": at, "aria-rowindex": at + 2,
      class: `grid-row ${this.rowClass(place)}` },
      this.columns.map((column, index) => el("div", { role: "gridcell", class: column.class, "aria-colindex": index + 1 }, column.cell(place))));
    row.style.top = `${at * this.height}px`;
    this.drawn.set(at, row);
    // in order, so that what is read aloud is too
    let after = null;
    for (let next = at + 1; next < at + 200 && !after; next += 1) after = this.drawn.get(next) ?? null;
    this.body.insertBefore(row, after);
  }

  move(by) {
    if (!this.order.length) return;
    this.active = Math.min(this.order.length - 1, Math.max(0, this.active + by));
    const top = this.active * this.height;
    const head = this.head.offsetHeight;
    const view = this.element.clientHeight - head;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.height > this.element.scrollTop + view) this.element.scrollTop = top + this.height - view;
    this.draw();
    if (by) this.moved(this.order[this.active]);
  }

  go(place) {
    const at = this.order.indexOf(place);
    if (at >= 0) { this.active = at; this.move(0); }
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.order.length, End: this.order.length };
    if (event.key in steps) this.move(steps[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && this.order.length) this.opened(this.order[this.active]);
    else return;
    event.preventDefault();
  }

  // for paper: so many rows, all in the document
  printed(most) {
    this.whole = most;
    this.redraw();
  }
}
