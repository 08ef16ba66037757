// A sortable table. A column is {title, value(row), text(row) or cell(row), isNumber}.

import { sorted } from "./rows.js";
import { countText, element } from "./words.js";

const MOST_ROWS = 1000;

export function table(columns, rows, order, onSort, onPick, picked) {
  const column = columns.find((each) => each.title === order.title);
  const all = sorted(rows, column.value, order.isDescending);
  const shown = all.slice(0, MOST_ROWS);
  const heads = columns.map((each) => head(each, each === column ? order : null, onSort));
  const body = shown.map((row) => bodyRow(columns, row, onPick, row.key === picked));
  const made = element("table", {}, element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...body));
  return element("div", {}, made, rest(all.length - shown.length, all.length));
}

function head(column, order, onSort) {
  const side = column.isNumber ? "number" : "name";
  if (!column.value) return element("th", { className: side }, column.title);
  const button = element("button", { type: "button", onclick: () => onSort(column) }, column.title);
  const sort = !order ? "none" : order.isDescending ? "descending" : "ascending";
  return element("th", { className: side, title: column.hint ?? "", "aria-sort": sort }, button);
}

function bodyRow(columns, row, onPick, isPicked) {
  const cells = columns.map((column) => {
    const content = column.cell ? column.cell(row) : column.text(row);
    const title = column.isNumber || column.cell ? "" : content;
    return element("td", { className: column.isNumber ? "number" : "name", title }, content);
  });
  const pick = () => onPick(row);
  const onkeydown = (event) => event.key === "Enter" && pick();
  const state = { tabIndex: 0, onclick: pick, onkeydown, "aria-selected": String(isPicked) };
  return element("tr", state, ...cells);
}

function rest(left, all) {
  const text = `${countText(left)} of ${countText(all)} rows are not shown; search to narrow them`;
  return left > 0 ? element("p", { className: "quiet" }, text) : null;
}
