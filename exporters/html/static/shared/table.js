// What tables are made of. A column has a title, a kind (the class of its cells), a value to sort by, what its
// cell shows (by default the value), and what is said about it.

import { element } from "./dom.js";

// Sorts by a column's value; what has none comes last, whichever way.
export function sorted(rows, value, down) {
  const sign = down ? -1 : 1;
  const compare = (a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === right) return 0;
    if (left === null || right === null) return left === null ? 1 : -1;
    if (typeof left === "string") return sign * left.localeCompare(right, "en", { numeric: true });
    return sign * (left - right);
  };
  return [...rows].sort(compare);
}

// The head of a column; with `onSort` it is sorted by a click. `order` is that of the table.
export function columnHead(column, order = null, onSort = null) {
  const title = typeof column.title === "function" ? column.title() : column.title;
  const canSort = onSort !== null && column.value;
  const shown = canSort ? element("button", { type: "button", "data-key": `sort ${title}`, click: () => onSort(column) }, title) : title;
  const direction = order?.column === column ? (order.down ? "descending" : "ascending") : null;
  return element("th", { class: column.kind, scope: "col", title: column.about, "aria-sort": direction }, shown);
}

export function rowCells(columns, row) {
  return columns.map(column => element("td", { class: column.kind }, (column.show ?? column.value)(row)));
}

// A table whose heads are [title, kind].
export function simpleTable(heads, rows, kind = null) {
  const head = heads.map(([title, type]) => columnHead({ title, kind: type }));
  return tableOf(head, rows, kind);
}

export function tableOf(heads, rows, kind = null) {
  return element("table", { class: kind },
    element("thead", {}, element("tr", {}, heads)), element("tbody", {}, rows));
}
