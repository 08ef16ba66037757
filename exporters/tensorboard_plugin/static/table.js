// A sortable table whose rows can be picked.

import { element } from "./shared/dom.js";
import { columnHead, rowCells, sorted, tableOf } from "./shared/table.js";
import { countText } from "./words.js";

const MOST_ROWS = 1000;

export function table(columns, rows, order, onSort, onPick, picked) {
  const all = sorted(rows, order.column.value, order.down);
  const shown = all.slice(0, MOST_ROWS);
  const heads = columns.map((column) => columnHead(column, order, onSort));
  const body = shown.map((row) => bodyRow(columns, row, onPick, row.key === picked));
  return element("div", {}, tableOf(heads, body), rest(all.length - shown.length, all.length));
}

function bodyRow(columns, row, onPick, isPicked) {
  const pick = () => onPick(row);
  const state = {
    tabindex: "0", "aria-selected": String(isPicked),
    click: pick, keydown: (event) => event.key === "Enter" && pick(),
  };
  return element("tr", state, rowCells(columns, row));
}

function rest(left, all) {
  const text = `${countText(left)} of ${countText(all)} rows are not shown; search to narrow them`;
  return left > 0 ? element("p", { class: "quiet" }, text) : null;
}
