// A table of any length: sorted by a click, searched, shown page by page, rows that open.

const PAGE_ROWS = 15;

class PagedTable {
  // `note` says what is not listed, and `legend` what its bars are.
  constructor(columns, rowsOf, { textOf, detail = null, order = 1, note = () => "", legend = null }) {
    Object.assign(this, { columns, rowsOf, textOf, detail, note, first: 0, open: new Set(), term: "" });
    this.order = { column: columns[order], down: true };
    this.heads = element("tr");
    this.body = element("tbody");
    this.pager = element("div", { class: "pager quiet" });
    this.root = element("div", { class: "table" }, legend,
      element("div", { class: "scroll" }, element("table", {}, element("thead", {}, this.heads), this.body)), this.pager);
    this.refresh();
  }

  // Take the rows again: the sums are of something else now.
  refresh() {
    this.rows = this.rowsOf();
    this.sort();
  }

  sortBy(column) {
    const down = this.order.column === column ? !this.order.down : true;
    this.order = { column, down };
    this.sort();
  }

  // Numbers begin with the largest, texts with the first of the alphabet.
  sort() {
    const { column, down } = this.order;
    const isText = this.rows.some(row => typeof column.value(row) === "string");
    this.rows = sorted(this.rows, column.value, down !== isText);
    keepingFocus(this.heads, () => this.heads.replaceChildren(
      ...this.columns.map(each => columnHead(each, this.order, () => this.sortBy(each)))));
    this.texts = this.rows.map(row => this.textOf(row).toLowerCase());
    this.search(this.term);
  }

  search(term) {
    this.term = term;
    const wanted = term.toLowerCase();
    this.found = wanted ? this.rows.filter((row, at) => this.texts[at].includes(wanted)) : this.rows;
    this.first = 0;
    this.draw();
  }

  draw() {
    keepingFocus(this.root, () => {
      const shown = this.found.slice(this.first, this.first + PAGE_ROWS);
      this.body.replaceChildren(...shown.flatMap((row, at) => this.row(row, at)));
      this.pager.replaceChildren(...this.pagerParts());
    });
  }

  row(row, at) {
    const cells = rowCells(this.columns, row);
    if (!this.detail) return [element("tr", {}, cells)];
    const isOpen = this.open.has(row);
    cells[0].prepend(twist(isOpen, row.name, () => this.toggle(row), `row ${at}`));
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
    if (at < 0) return this.root;
    this.first = at - (at % PAGE_ROWS);
    if (this.detail) this.open.add(row);
    this.draw();
    const before = this.found.slice(this.first, at).filter(each => this.open.has(each)).length;
    return this.body.rows[at - this.first + before];
  }

  pagerParts() {
    const { length } = this.found;
    const note = this.term ? "" : this.note();
    const count = this.term ? `${countText(length, "row")} with “${this.term}”` : countText(length, "row");
    if (length <= PAGE_ROWS) return [[count, note].filter(Boolean).join("; ")];
    const last = Math.min(this.first + PAGE_ROWS, length);
    const range = `${this.first + 1} to ${last} of ${count}`;
    return [this.turn("previous", -PAGE_ROWS), ` ${range} `, this.turn("next", PAGE_ROWS), note && ` ${note}`];
  }

  turn(title, by) {
    const to = this.first + by;
    const button = element("button", { type: "button", "data-key": title, click: () => { this.first = to; this.draw(); } }, title);
    button.disabled = to < 0 || to >= this.found.length;
    return button;
  }
}
