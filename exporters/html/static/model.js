// The report's data: reads what the page carries and sums a slice of it (a rank or all, a step
// or all) by line, module, kernel, graph. Times are nanoseconds. -1 stands for "absent".

const report = JSON.parse(document.getElementById("data").textContent);
const ABSENT = -1;
const PHASES = report.phases;
const LAYERS = new Set(report.layers);

function sum() {
  return { total: 0, eager: 0, phases: PHASES.map(() => 0), sites: new Map(), launches: 0, whole: 0, through: 0 };
}

const lines = report.lines.map(([file, number], at) => ({
  ...sum(),
  at,
  file: report.files[file],
  number,
  name: `${report.files[file].name}:${number}`,
  path: `${report.files[file].path}:${number}`,
  code: lineText(report.files[file], number),
  roofline: null,
  holds(place) { return place.line === this; },
}));
const modules = report.modules.map(([path, type]) => ({
  ...sum(), path, type, name: path || "(the model itself)", names: namesOf(path), folded: foldedNames(path),
  holds(place) { return place.module === this; },
}));
const kernels = report.kernels.map(([name, own, kind, short, shortOwn], at) => ({
  ...sum(), at, name, own: own || name, kind, short, shortOwn, roofline: null,
}));
const graphs = report.graphs.map((graph, at) => ({ ...sum(), ...graph, at }));
for (const [name, rows] of Object.entries({ lines, kernels })) {
  for (const [at, text, saves, work, rate] of report.rooflines[name]) rows[at].roofline = { text, saves, work, rate };
}
// Of rows of the tree, folded or not, by path: with all that is below each.
const rooflineOfModules = new Map(report.rooflines.modules.map(([path, text, saves]) => [path, { text, saves, work: "" }]));
for (const [at, least, median, most, counts] of report.launch_stats.kernels) kernels[at].stats = { least, median, most, counts };
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
const everySite = report.sites.map(([kernel, graph, callSite, isEager, numbers]) => ({
  kernel: kernels[kernel],
  graph: graphs[graph] ?? null,
  callSite,
  isEager: isEager === 1,
  places: numbers.map(number => places[number]),
}));
for (const [at, least, median, most, shape] of report.launch_stats.sites) {
  everySite[at].stats = { least, median, most, shape: report.launch_stats.shapes[shape] };
}

let slice = null; // what the sums are of
let sites = []; // what ran in it
let wholeTime = 0;

function sumUp(chosen) {
  slice = chosen;
  for (const each of [...lines, ...modules, ...kernels, ...graphs]) Object.assign(each, sum());
  unplaced.clear();
  sites = running(chosen);
  sites.forEach(count);
  wholeTime = sites.reduce((time, site) => time + site.total, 0);
}

function running({ sites: numbers, launches, times }) {
  let at = 0;
  return numbers.map((number, index) => {
    const parts = everySite[number].places.map(place => ({ place, time: times[at++] }));
    const total = parts.reduce((time, part) => time + part.time, 0);
    return { ...everySite[number], launches: launches[index], total, parts };
  });
}

function lineText(file, number) {
  const at = file.missing ? file.numbers.indexOf(number) : number - 1;
  return (file.lines[at] ?? "").trim();
}

function namesOf(path) {
  return path.split(".").filter(Boolean);
}

// The names of a path; a layer that is one with its like is called "*".
function foldedNames(path) {
  const names = namesOf(path);
  return names.map((name, at) => (LAYERS.has(names.slice(0, at + 1).join(".")) ? "*" : name));
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
  const holds = place => !place.line && place.gap === gap;
  if (!unplaced.has(name)) unplaced.set(name, { ...sum(), name, path: "", code: "", roofline: null, holds });
  return unplaced.get(name);
}

// The parts of some launches, largest first; parts that agree in all that `keyOf` names are one.
function folded(chosen, keyOf) {
  const rows = new Map();
  for (const site of chosen) {
    for (const { place, time } of site.parts) {
      const key = JSON.stringify(keyOf(place));
      if (!rows.has(key)) rows.set(key, { place, time: 0, phases: PHASES.map(() => 0), modules: new Set(), nodes: new Set() });
      const row = rows.get(key);
      row.time += time;
      row.phases[place.phase] += time;
      row.modules.add(place.module);
      if (place.node) row.nodes.add(place.node);
    }
  }
  return [...rows.values()].sort((a, b) => b.time - a.time);
}

sumUp(report.slices[0]);
const hasBothScopes = new Set(sites.map(site => site.isEager)).size > 1;
