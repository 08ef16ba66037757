// The columns of the tables: of one run its phases, of several runs their times and the change.

import { perStep, sum } from "./rows.js";
import { element, phaseBar } from "./shared/dom.js";
import { percentText, phaseText } from "./shared/format.js";
import { HEADINGS, changeText, countText, spentText } from "./words.js";

export function columnsOf(runs, by, rows, phase) {
  const names = HEADINGS[by].map((title, at) => textColumn(title, (row) => row.names[at] || null));
  return runs.length > 1
    ? [...besides(runs, phase), ...names]
    : alone(runs[0], by, rows, phase, names);
}

// A text that is cut where there is no room; the pointer over it shows all.
function textColumn(title, value) {
  const show = (row) => (value(row) === null ? "" : element("span", { title: value(row) }, value(row)));
  return { title, kind: "name", value, show };
}

function numbers(title, value, textOf, about) {
  return { title, kind: "number", value, show: (row) => textOf(value(row)), about };
}

function alone(run, by, rows, phase, names) {
  const { data } = run;
  const time = (row) => perStep(run, row.cells[0], phase);
  const total = sum(rows.map(time));
  const most = Math.max(1, ...rows.map(time));
  const shown = phase ? [phase] : data.phases;
  const parts = (row) => shown.map((each) => [each, perStep(run, row.cells[0], each)]);
  const steps = Math.max(data.steps, 1);
  const beside = by === "line" ? 2 : 1; // a line's code stands beside it
  const spent = shown.filter((each) => sum(rows.map((row) => perStep(run, row.cells[0], each))));
  const phases = by === "phase" || phase ? [] : spent.map((each) =>
    numbers(phaseText(each), (row) => perStep(run, row.cells[0], each), spentText));
  return [
    numbers("time/step", time, spentText),
    numbers("% busy", time, (ns) => percentText(ns, total, "")),
    { title: "", kind: "bars", show: (row) => phaseBar(parts(row), most) },
    ...names.slice(0, beside),
    ...phases,
    ...names.slice(beside),
    ...(by === "module" ? [numbers("with submodules", below(rows, time), spentText, BELOW)] : []),
    ...(phase ? [] : [
      ...(by === "kernel" ? [] : [
        numbers("inclusive", (row) => row.cells[0].inclusive_ns / steps, spentText, INCLUSIVE),
      ]),
      numbers("launches/step", (row) => row.cells[0].launches / steps, countText),
      ...rooflines(rows, steps),
    ]),
  ];
}

function rooflines(rows, steps) {
  const saved = (row) => (row.cells[0].could_save_ns ?? 0) / steps;
  const roofline = (row) => row.cells[0].roofline || null;
  return [
    ...(rows.some(roofline) ? [textColumn("roofline", roofline)] : []),
    ...(rows.some(saved) ? [numbers("max saving", saved, spentText, COULD_SAVE)] : []),
  ];
}

const COULD_SAVE = "per step, by the roofline model";
const INCLUSIVE = "time of the launches that hold a part of it, each counted whole";
const BELOW = "its own time and that of the modules below it";

function below(rows, time) {
  const total = new Map();
  for (const row of rows) {
    const parts = row.names[0].split(".");
    for (let end = 1; end <= parts.length; end++) {
      const path = parts.slice(0, end).join(".");
      total.set(path, (total.get(path) ?? 0) + time(row));
    }
  }
  return (row) => total.get(row.names[0]);
}

function besides(runs, phase) {
  const time = (at) => (row) => perStep(runs[at], row.cells[at], phase);
  return runs.flatMap((run, at) => [
    numbers(run.name, time(at), spentText, "time per step"),
    ...(at ? [numbers(`change in ${run.name}`, (row) => time(at)(row) - time(0)(row), changeText,
      `against ${runs[0].name}`)] : []),
  ]);
}
