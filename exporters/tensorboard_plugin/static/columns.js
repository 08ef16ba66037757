// The columns of the tables: of one run its phases, of several runs their times and the change.

import { perStep } from "./rows.js";
import {
  HEADINGS, bar, changeText, countText, percentText, phaseText, sum, timeText,
} from "./words.js";

export function columnsOf(runs, by, rows, phase) {
  const names = HEADINGS[by].map((title, at) => ({
    title, value: (row) => row.names[at] || null, text: (row) => row.names[at],
  }));
  return runs.length > 1
    ? [...besides(runs, phase), ...names]
    : alone(runs[0], by, rows, phase, names);
}

function numbers(title, value, text, hint) {
  return { title, value, text: (row) => text(value(row)), isNumber: true, hint };
}

function alone(run, by, rows, phase, names) {
  const { data } = run;
  const time = (row) => perStep(run, row.cells[0], phase);
  const total = sum(rows.map(time));
  const most = Math.max(1, ...rows.map(time));
  const shown = phase ? [phase] : data.phases;
  const parts = (row) => shown.map((each) => [each, perStep(run, row.cells[0], each)]);
  const steps = Math.max(data.steps, 1);
  const spent = shown.filter((each) => sum(rows.map((row) => perStep(run, row.cells[0], each))));
  const phases = by === "phase" || phase ? [] : spent.map((each) =>
    numbers(phaseText(each), (row) => perStep(run, row.cells[0], each), timeText));
  return [
    numbers("time/step", time, timeText),
    numbers("part", time, (ns) => percentText(ns, total)),
    { title: "", cell: (row) => bar(parts(row), most) },
    ...names,
    ...phases,
    ...(by === "module" ? [numbers("with submodules", below(rows, time), timeText, BELOW)] : []),
    ...(phase ? [] : [
      ...(by === "kernel" ? [] : [
        numbers("inclusive", (row) => row.cells[0].inclusive_ns / steps, timeText, INCLUSIVE),
      ]),
      numbers("launches/step", (row) => row.cells[0].launches / steps, countText),
      ...rooflines(rows, steps),
    ]),
  ];
}

function rooflines(rows, steps) {
  const saved = (row) => (row.cells[0].could_save_ns ?? 0) / steps;
  const near = (row) => row.cells[0].near || null;
  return [
    ...(rows.some(near) ? [{ title: "roofline", value: near, text: (row) => near(row) ?? "" }] : []),
    ...(rows.some(saved) ? [numbers("could save", saved, timeText, COULD_SAVE)] : []),
  ];
}

const COULD_SAVE = "in a step, by the roofline model";
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
    numbers(run.name, time(at), timeText, "time of a step"),
    ...(at ? [numbers(`change in ${run.name}`, (row) => time(at)(row) - time(0)(row), changeText,
      `against ${runs[0].name}`)] : []),
  ]);
}
