"use strict";
// Owns the report's data: reads what the page carries and sums it by line, module, kernel, graph.
// Numbers are nanoseconds over all profiled steps. -1 stands for "absent".

const report = JSON.parse(document.getElementById("data").textContent);
const ABSENT = -1;
const PHASES = report.phases;

function sum() {
  return { total: 0, eager: 0, phases: PHASES.map(() => 0), sites: new Map(), launches: 0, whole: 0, through: 0, near: null };
}

const lines = report.lines.map(([file, number], at) => ({
  ...sum(),
  at,
  file: report.files[file],
  number,
  name: `${report.files[file].name}:${number}`,
  path: `${report.files[file].path}:${number}`,
  code: lineText(report.files[file], number),
}));
const modules = report.modules.map(([path, type]) => ({
  ...sum(), path, type, name: path || "(the model itself)",
}));
const kernels = report.kernels.map(([name, own, kind]) => ({ ...sum(), name, own, kind }));
const graphs = report.graphs.map((graph, at) => ({ ...sum(), ...graph, at }));
for (const [name, rows] of Object.entries({ lines, modules, kernels })) {
  for (const [at, text, part, saves, work] of report.near[name]) rows[at].near = { text, part, saves, work };
}
const unplaced = new Map(); // reason to its sum: what has no line

const places = report.places.map(([line, module, op, phase, gap, stack, node]) => ({
  line: lines[line] ?? null,
  module: modules[module] ?? null,
  op: op === ABSENT ? "" : report.ops[op],
  phase,
  gap: gap === ABSENT ? "" : report.gaps[gap],
  callers: report.stacks[stack].map(number => lines[number]),
  node,
}));
const sites = report.sites.map(([kernel, graph, callSite, isEager, launches, total, numbers]) => ({
  kernel: kernels[kernel],
  graph: graphs[graph] ?? null,
  callSite,
  isEager: isEager === 1,
  launches,
  total,
  parts: pairs(numbers),
}));
sites.forEach(count);
const hasBothScopes = new Set(sites.map(site => site.isEager)).size > 1;
const wholeTime = sites.reduce((time, site) => time + site.total, 0);

function lineText(file, number) {
  const at = file.missing ? file.numbers.indexOf(number) : number - 1;
  return (file.lines[at] ?? "").trim();
}

function pairs(numbers) {
  const parts = [];
  for (let at = 0; at < numbers.length; at += 2) {
    parts.push({ place: places[numbers[at]], time: numbers[at + 1] });
  }
  return parts;
}

function count(site) {
  for (const part of site.parts) {
    const { line, module, gap, phase, callers } = part.place;
    const keys = [line ?? reason(gap), site.kernel, module, site.graph];
    for (const key of keys) if (key) add(key, site, phase, part.time);
    for (const caller of callers) caller.through += part.time;
  }
}

function add(key, site, phase, time) {
  key.total += time;
  if (site.isEager) key.eager += time;
  key.phases[phase] += time;
  if (!key.sites.has(site)) {
    key.launches += site.launches;
    key.whole += site.total;
  }
  key.sites.set(site, (key.sites.get(site) ?? 0) + time);
}

function reason(gap) {
  const name = gap ? `(${gap})` : "(no source line)";
  if (!unplaced.has(name)) unplaced.set(name, { ...sum(), name, path: "", code: "" });
  return unplaced.get(name);
}

// The parts of some launches, largest first; parts that agree in all that `keyOf` names are one.
function folded(chosen, keyOf) {
  const rows = new Map();
  for (const site of chosen) {
    for (const { place, time } of site.parts) {
      const key = JSON.stringify(keyOf(place));
      if (!rows.has(key)) rows.set(key, { place, time: 0, modules: new Set(), nodes: new Set() });
      const row = rows.get(key);
      row.time += time;
      row.modules.add(place.module);
      if (place.node) row.nodes.add(place.node);
    }
  }
  return [...rows.values()].sort((a, b) => b.time - a.time);
}

function opName(place) {
  return place.op || place.node || (place.gap ? `(${place.gap})` : "(unknown)");
}

function phaseName(phase) {
  return PHASES[phase].replaceAll("_", " ");
}

function timeText(time) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    const value = time / size;
    if (value >= 0.9995) return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
  }
  return `${time.toFixed(0)} ns`;
}

function percentText(time, total) {
  return total ? `${((100 * time) / total).toFixed(1)}%` : "";
}
