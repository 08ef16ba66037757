// The page as a whole: the parts in their places, narrowed, and links into them followed.

const host = name => document.querySelector(`#${name} .content`);
const KINDS = ["line", "module", "kernel", "graph", "memory"];
const shown = shownViews();
let source = null;
let timeline = null;
let searching = null;

// The tables that are on the page: one without rows is not.
function shownViews() {
  const every = {
    line: { make: linesTable, section: "lines", rows: () => [...lines, ...unplaced.values()], has: isLine },
    module: { make: () => new ModuleTree(), section: "modules", rows: () => modules, has: (row, name) => row.name === name },
    kernel: { make: kernelsTable, section: "kernels", rows: () => kernels, has: isKernel },
    graph: { make: graphsTable, section: "graphs", rows: () => graphs, has: (row, name) => String(row.at) === name },
    memory: { make: () => new MemoryView(), section: "memory", rows: () => shown.memory.view.rows, has: (row, name) => [row.owner, row.name].includes(name) },
  };
  const there = Object.entries(every).filter(([, { section }]) => host(section));
  return Object.fromEntries(there.map(([kind, each]) => [kind, { ...each, view: each.make() }]));
}

function isLine(row, name) {
  return [row.path, row.name].includes(name) || row.path.endsWith(`/${name}`);
}

function isKernel(row, name) {
  return [row.name, kernelId(row)].includes(name);
}

function start() {
  for (const { view, section } of Object.values(shown)) host(section).append(view.root);
  if (host("timeline")) timeline = new Timeline(host("timeline"));
  if (host("source")) source = new SourceView(host("source"));
  if (host("flame")) makeFlames(host("flame"));
  if (sites.length) drawFlames();
  searching = new Search(shown, source);
  document.getElementById("fold")?.addEventListener("change", refresh);
  shown.memory?.view.start();
  watchChoosers(refresh);
  watchCharts();
  window.addEventListener("hashchange", follow);
  follow();
}

function refresh() {
  for (const { view } of Object.values(shown)) view.refresh();
  source?.refresh();
  timeline?.refresh();
  if (sites.length) drawFlames();
  searching.again();
}

// Keep a choice in the page's address, beside what is there.
function keepInAddress(name, value) {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const kind of KINDS) kept.delete(kind);
  if (value) kept.set(name, value);
  else kept.delete(name);
  history.replaceState(null, "", `#${kept}`);
}

// #line=model.py:12, #kernel=NAME, #module=PATH, #graph=0 lead to a place; #search=WORDS searches,
// #rank=1 and #step=3 narrow.
function follow() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const chosen = ["rank", "step", "unit"].filter(name => wanted.has(name) && setChooser(name, wanted.get(name)));
  if (chosen.length) choose(refresh);
  if (wanted.has("search")) searching.search(wanted.get("search"));
  for (const [kind, name] of wanted) if (KINDS.includes(kind)) reveal(kind, name);
}

function reveal(kind, name) {
  const { view, rows, has } = shown[kind] ?? { rows: () => [] };
  const row = rows().find(each => has(each, name));
  searching.status.textContent = row ? "" : `this report has no ${kind} ${name}`;
  if (!row) return;
  if (["line", "kernel"].includes(kind)) timeline?.mark(row);
  const inFile = kind === "line" && row.path && source?.files.some(({ file }) => file === row.file);
  pointAt(inFile ? source.reveal(row) : view.reveal(row), true);
}

start();
