"use strict";
// Owns a table of any length: sorted by a click, searched, shown page by page, rows that open.
// A column has a title, a value to sort by, and what its cell shows (by default the value).

const PAGE_ROWS = 50;

class PagedTable {
  constructor(columns, rows, { textOf, detail = null, order = 0 }) {
    Object.assign(this, { columns, rows, textOf, detail, found: rows, first: 0, open: new Set() });
    this.sorting = { column: columns[order], down: true };
    this.heads = columns.map(column => this.head(column));
    this.body = element("tbody");
    this.pager = element("div", { class: "pager quiet" });
    const head = element("thead", {}, element("tr", {}, this.heads));
    this.root = element("div", {}, element("table", {}, head, this.body), this.pager);
    this.sort();
  }

  head(column) {
    const button = element("button", { type: "button", click: () => this.sortBy(column) }, column.title);
    return element("th", { class: column.type ?? "" }, button);
  }

  sortBy(column) {
    const down = this.sorting.column === column ? !this.sorting.down : true;
    this.sorting = { column, down };
    this.sort();
  }

  sort() {
    const { column, down } = this.sorting;
    const sign = down ? -1 : 1;
    this.rows = [...this.rows].sort((a, b) => sign * compare(column.value(a), column.value(b)));
    this.heads.forEach((head, at) => {
      if (this.columns[at] === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.search(this.term ?? "");
  }

  search(term) {
    this.term = term;
    const wanted = term.toLowerCase();
    this.found = this.rows.filter(row => this.textOf(row).toLowerCase().includes(wanted));
    this.first = 0;
    this.draw();
  }

  draw() {
    const shown = this.found.slice(this.first, this.first + PAGE_ROWS);
    this.body.replaceChildren(...shown.flatMap(row => this.row(row)));
    this.pager.replaceChildren(...this.pagerParts());
  }

  row(row) {
    const cells = this.columns.map(column => element("td", { class: column.type ?? "" },
      (column.show ?? column.value)(row)));
    const opens = this.detail ? { class: "opens", click: event => this.toggle(event, row) } : {};
    const shown = [element("tr", opens, cells)];
    if (this.open.has(row)) {
      const cell = element("td", { colspan: String(this.columns.length) }, this.detail(row));
      shown.push(element("tr", { class: "detail" }, cell));
    }
    return shown;
  }

  toggle(event, row) {
    if (event.target.closest("a")) return;
    if (!this.open.delete(row)) this.open.add(row);
    this.draw();
  }

  // Turn to a row's page, open the row, and return its element.
  reveal(row) {
    if (!this.found.includes(row)) this.search("");
    const at = this.found.indexOf(row);
    this.first = at - (at % PAGE_ROWS);
    if (this.detail) this.open.add(row);
    this.draw();
    const before = this.found.slice(this.first, at).filter(each => this.open.has(each)).length;
    return this.body.rows[at - this.first + before];
  }

  pagerParts() {
    const { length } = this.found;
    if (length <= PAGE_ROWS) return [`${length.toLocaleString("en")} rows`];
    const last = Math.min(this.first + PAGE_ROWS, length);
    const range = `${this.first + 1} to ${last} of ${length.toLocaleString("en")} rows`;
    return [this.turn("previous", -PAGE_ROWS), ` ${range} `, this.turn("next", PAGE_ROWS)];
  }

  turn(title, by) {
    const to = this.first + by;
    const button = element("button", { type: "button", click: () => { this.first = to; this.draw(); } }, title);
    button.disabled = to < 0 || to >= this.found.length;
    return button;
  }
}

function compare(a, b) {
  if (typeof a === "number") return a - b;
  return String(b ?? "").localeCompare(String(a ?? ""), "en", { numeric: true });
}
