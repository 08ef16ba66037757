// A source file with time in the margin of its lines.

import { perStep, sum } from "./rows.js";
import { element } from "./shared/dom.js";
import { phaseText } from "./shared/format.js";
import { simpleTable } from "./shared/table.js";
import { spentText } from "./words.js";

export function fileNames(runs) {
  return [...new Set(runs.flatMap((run) => run.data.files.map((file) => file.name)))];
}

// The text is that of the first run that has the file.
export function source(runs, rows, name, picked, onPick) {
  const first = runs.findIndex((run) => run.data.files.some((file) => file.name === name));
  const { files, phases } = runs[first].data;
  const number = files.findIndex((file) => file.name === name);
  const here = rows.filter((row) => row.cells[first]?.file === number);
  const byLine = new Map(here.map((row) => [row.cells[first].line, row]));
  const columns = runs.length > 1 ? runColumns(runs) : phaseColumns(runs[0], here, phases);
  const most = Math.max(1, ...here.map((row) => perStep(runs[first], row.cells[first], "")));
  const heads = [...columns.map((column) => [column.title]), [""], [""]];
  const context = { columns, byLine, picked, onPick,
    heat: (row) => perStep(runs[first], row.cells[first], "") / most };
  return element("div", { class: "source" },
    files[number].missing ? element("p", { class: "quiet" }, partial(files[number])) : null,
    simpleTable(heads, lines(files[number], context)));
}

function partial(file) {
  return `Only the recorded lines are shown: where this was exported, ${file.missing}.`;
}

function runColumns(runs) {
  return runs.map((run, at) => ({
    title: run.name, text: (row) => spentText(perStep(run, row.cells[at], "")),
  }));
}

function phaseColumns(run, rows, phases) {
  const spent = (phase) => sum(rows.map((row) => perStep(run, row.cells[0], phase)));
  return phases.filter(spent).map((phase) => ({
    title: phaseText(phase), text: (row) => spentText(perStep(run, row.cells[0], phase)),
  }));
}

function lines(file, context) {
  let before = 0;
  return file.lines.flatMap(([number, text]) => {
    const gap = number > before + 1 ? [gapRow(context.columns.length)] : [];
    before = number;
    return [...gap, lineRow(number, text, context)];
  });
}

function gapRow(columns) {
  return element("tr", {}, element("td", { colspan: columns + 2, class: "quiet" }, "\u22ef"));
}

function lineRow(number, text, { columns, byLine, picked, onPick, heat }) {
  const row = byLine.get(number);
  const times = columns.map((column) =>
    element("td", { class: "number" }, row ? column.text(row) : ""));
  const code = element("td", { class: "code" }, text || " ");
  const cells = [...times, element("td", { class: "at" }, String(number)), code];
  if (!row) return element("tr", {}, cells);
  const pick = () => onPick(row);
  const made = element("tr", {
    class: "timed", tabindex: "0", "aria-selected": String(row.key === picked),
    click: pick, keydown: (event) => event.key === "Enter" && pick(),
  }, cells);
  made.style.setProperty("--heat", heat(row).toFixed(3));
  return made;
}
