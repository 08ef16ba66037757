"use strict";
// Owns a table of any length: sorted by a click, searched, shown page by page, rows that open.
// A column has a title, a value to sort by, and what its cell shows (by default the value).

const PAGE_ROWS = 50;

class PagedTable {
  constructor(columns, rowsOf, { textOf, detail = null, order = 1 }) {
    Object.assign(this, { columns, rowsOf, textOf, detail, first: 0, open: new Set(), term: "" });
    this.sorting = { column: columns[order], down: true };
    this.heads = element("tr");
    this.body = element("tbody");
    this.pager = element("div", { class: "pager quiet" });
    this.root = element("div", {}, element("table", {}, element("thead", {}, this.heads), this.body), this.pager);
    this.refresh();
  }

  // Take the rows anew: the sums are of something else now.
  refresh() {
    this.rows = this.rowsOf();
    this.sort();
  }

  head(column) {
    const title = typeof column.title === "function" ? column.title() : column.title;
    const button = element("button", { type: "button", click: () => this.sortBy(column) }, title);
    const sorted = this.sorting.column === column ? (this.sorting.down ? "descending" : "ascending") : null;
    return element("th", { class: column.type ?? "", scope: "col", title: column.about ?? null, "aria-sort": sorted }, button);
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
    this.heads.replaceChildren(...this.columns.map(each => this.head(each)));
    this.search(this.term);
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
    if (!this.detail) return [element("tr", {}, cells)];
    const isOpen = this.open.has(row);
    cells[0].prepend(twist(isOpen, row.name, () => this.toggle(row)));
    const shown = [element("tr", { class: "opens", click: event => this.clicked(event, row) }, cells)];
    return isOpen ? [...shown, this.detailRow(row)] : shown;
  }

  detailRow(row) {
    const cell = element("td", { colspan: String(this.columns.length) }, this.detail(row));
    return element("tr", { class: "detail" }, cell);
  }

  clicked(event, row) {
    if (!event.target.closest("a, button")) this.toggle(row);
  }

  toggle(row) {
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
    if (length <= PAGE_ROWS) return [countText(length, "row")];
    const last = Math.min(this.first + PAGE_ROWS, length);
    const range = `${this.first + 1} to ${last} of ${countText(length, "row")}`;
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
