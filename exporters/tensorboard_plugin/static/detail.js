// What a row is fused with: the launches that hold it, and all that is in each of them.

import { sum } from "./rows.js";
import { element } from "./shared/dom.js";
import { percentText, phaseText } from "./shared/format.js";
import { simpleTable } from "./shared/table.js";
import { countText, spentText } from "./words.js";

const MOST_FUSIONS = 100;

export function detail(runs, by, row, toSource) {
  const found = runs.map((run, column) => [run, row.cells[column]]).filter(([, cell]) => cell);
  const sections = found.map(([run, cell]) => section(run, by, cell, runs.length > 1));
  const [first, cell] = found[0];
  const isShown = toSource && cell.file !== undefined;
  const click = () => toSource(first.data.files[cell.file].name);
  return element("section", { class: "detail" },
    element("h2", {}, ...row.names.filter(Boolean).map((name) => element("code", {}, name))),
    isShown ? element("button", { type: "button", class: "act", click }, "show in source") : null,
    ...sections);
}

function section(run, by, cell, isNamed) {
  const { data } = run;
  const isPart = {
    line: (part) => part[1] === cell.index,
    module: (part) => part[2] === cell.index,
    kernel: (part) => data.fusions[part[0]][0] === cell.index,
    phase: (part) => data.phases[part[4]] === cell.names[0],
  }[by];
  const own = sum(cell.phase_ns) / Math.max(data.steps, 1);
  const whole = cell.inclusive_ns / Math.max(data.steps, 1);
  const fused = whole > own ? ` of ${spentText(whole)} in the launches that hold it` : "";
  const text = `${spentText(own)} per step${fused}, ${countText(cell.launches)} launches in ` +
    `${countText(data.steps)} steps`;
  const fusions = byFusion(data, isPart);
  const left = fusions.length - MOST_FUSIONS;
  return element("div", {},
    isNamed ? element("h3", {}, run.name) : null,
    element("p", {}, text),
    ...fusions.slice(0, MOST_FUSIONS).map((each, at) => fusionBox(data, each, isPart, at === 0)),
    left > 0 ? element("p", { class: "quiet" }, `and ${countText(left)} more`) : null);
}

function byFusion(data, isPart) {
  const own = new Map();
  for (const part of data.parts) {
    if (isPart(part)) own.set(part[0], (own.get(part[0]) ?? 0) + part[6]);
  }
  return [...own].sort((a, b) => b[1] - a[1]);
}

// The contents are drawn when the box is first opened.
function fusionBox(data, [fusion, own], isPart, isOpen) {
  const [kernel, launches, whole] = data.fusions[fusion];
  const steps = Math.max(data.steps, 1);
  const part = own < whole ? `${spentText(own / steps)} of ` : "";
  const text = ` ${part}${spentText(whole / steps)} per step, ${countText(launches)} launches`;
  const name = data.tables.kernel[kernel].names[0];
  const box = element("details", {},
    element("summary", {}, element("code", {}, name), text));
  const fill = () => {
    if (box.open && box.children.length === 1) box.append(contents(data, fusion, whole, isPart));
  };
  box.addEventListener("toggle", fill);
  box.open = isOpen;
  fill();
  return box;
}

function contents(data, fusion, whole, isPart) {
  const heads = ["time/step", "% of kernel", "op", "phase", "line", "module"];
  const rows = fusedOps(data, fusion, isPart).map((each) => element("tr",
    { class: each.isOwn ? "own" : "" },
    element("td", { class: "number" }, spentText(each.ns / Math.max(data.steps, 1))),
    element("td", { class: "number" }, percentText(each.ns, whole, "")),
    element("td", {}, element("code", {}, data.ops[each.op])),
    element("td", {}, phaseText(data.phases[each.phase])),
    element("td", {}, data.tables.line[each.line].names.filter(Boolean).join("  ")),
    element("td", { title: each.modules.join("\n") }, moduleText(each.modules))));
  return simpleTable(heads.map((head) => [head]), rows);
}

// One row for an op of a line in a phase, whichever of the repeated layers it ran for.
function fusedOps(data, fusion, isPart) {
  const found = new Map();
  for (const part of data.parts) {
    if (part[0] !== fusion) continue;
    const [, line, module, op, phase, , ns] = part;
    const key = `${line} ${op} ${phase}`;
    if (!found.has(key)) found.set(key, { line, op, phase, ns: 0, modules: [], isOwn: false });
    const row = found.get(key);
    row.ns += ns;
    row.isOwn ||= isPart(part);
    row.modules.push(data.tables.module[module].names[0]);
  }
  for (const row of found.values()) inOrder(row.modules);
  return [...found.values()].sort((a, b) => b.ns - a.ns);
}

function moduleText(modules) {
  return modules.length > 1 ? `${modules[0]} and ${modules.length - 1} more` : modules[0];
}

function inOrder(names) {
  return names.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}
