// What opens on a click: the launches of a line, the fused ops and the code of a kernel.

const SHOWN_PARTS = 12;
const SHOWN_ROWS = 40;
const SHOWN_FUSED = 200;

// The launches that a line (or module, or reason) is fused into, and what is fused in them.
// Call sites of one kernel that hold the same (the layers of a model) are one row.
function launchesDetail(key) {
  const rows = alike(key).sort((a, b) => b.time - a.time);
  const heads = [["kernel", "name"], ["this line", "number"], ["kernel total", "number"], [launchesWords(), "number wide-only"],
    ["fused ops", "name"]];
  if (!lines.includes(key)) heads[1][0] = "this row";
  const more = rows.length - SHOWN_ROWS;
  return element("div", { class: "launches" }, simpleTable(heads, rows.slice(0, SHOWN_ROWS).map(row => alikeRow(row, key))),
    more > 0 ? element("p", { class: "quiet" }, `and ${more.toLocaleString("en")} more`) : null);
}

function alike(key) {
  const rows = new Map();
  for (const [site, time] of key.sites) {
    const others = site.parts.filter(({ place }) => !key.holds(place));
    const what = new Set(others.map(({ place }) => JSON.stringify(partKey(place))));
    const name = [site.kernel.at, site.graph?.at, ...[...what].sort()].join("\n");
    if (!rows.has(name)) rows.set(name, { time: 0, total: 0, launches: 0, sites: [], parts: [] });
    const row = rows.get(name);
    row.time += time;
    row.total += site.total;
    row.launches += site.launches;
    row.sites.push(site);
    row.parts.push(...site.parts);
  }
  return [...rows.values()];
}

function partKey({ op, line, phase, gap }) {
  return [op, line?.at, phase, gap];
}

function alikeRow({ time, total, launches, sites: chosen, parts }, key) {
  return element("tr", {},
    element("td", { class: "name" }, kernelLink(chosen[0].kernel), sitesNote(chosen)),
    timeCell(time),
    timeCell(total),
    element("td", { class: "number wide-only" }, launchesText(launches)),
    element("td", { class: "fused" }, fusedParts(parts, key)));
}

function sitesNote(chosen) {
  return element("div", { class: "quiet cut", title: sitesNumbers(chosen) }, sitesText(chosen));
}

function sitesText(chosen) {
  const [{ graph, kernel }] = chosen;
  const where = graph ? `graph ${graph.at} (${graph.phase})` : kernel.kind;
  const numbers = siteNumbers(chosen);
  if (!numbers.length) return where;
  return `${where}, ${numbers.length === 1 ? `call site ${numbers[0]}` : countText(numbers.length, "call site")}`;
}

function siteNumbers(chosen) {
  return chosen.map(site => site.callSite).filter(number => number !== ABSENT);
}

function sitesNumbers(chosen) {
  const numbers = siteNumbers(chosen);
  return numbers.length > 1 ? `call sites ${numbers.join(", ")}` : null;
}

// The ops that are fused in a launch, with their lines; those of the opened row first.
function fusedParts(parts, key) {
  const rows = folded([{ parts }], partKey);
  const isOwn = row => key.holds(row.place);
  const paid = rows.filter(row => row.time).sort((a, b) => isOwn(b) - isOwn(a));
  const free = [...new Set(rows.filter(row => !row.time).map(row => opName(row.place)))];
  const shown = paid.slice(0, SHOWN_PARTS).map(row => fusedPart(row, isOwn(row)));
  const more = paid.length > SHOWN_PARTS ? `and ${paid.length - SHOWN_PARTS} more` : "";
  const rest = [more, free.length ? `at no cost: ${free.slice(0, SHOWN_PARTS).join(", ")}` : ""].filter(Boolean);
  return [...shown, ...rest.map(text => element("div", { class: "quiet" }, text))];
}

// One of the opened row's own has no line to say.
function fusedPart({ place, time }, isOwn) {
  const where = isOwn ? [] : [" ", lineLink(place.line), element("span", { class: "quiet" }, ` ${place.line?.code ?? ""}`)];
  return element("div", {}, `${sumText(time)} `, opName(place), " ", phaseTag(place.phase), ...where);
}

// The fused ops of a kernel, their lines with all their forward and backward, its launches, and its generated code.
function kernelDetail(kernel) {
  const chosen = [...kernel.sites.keys()];
  const codes = generatedCodes(kernel, chosen);
  const fromLines = sourceLines(kernel);
  const beside = codes.length ? element("div", { class: "beside" }, fromLines, codes) : fromLines;
  const self = element("p", {}, kernelLink(kernel, "link to this kernel"));
  const work = kernel.roofline?.work ? element("p", { class: "quiet" }, `Over all launches it ${kernel.roofline.work}.`) : null;
  return element("div", {}, work, fusedTable(chosen), beside, ...launchesOf(kernel, chosen), self);
}

// What is fused, by op and line, with its time by phase.
function fusedTable(chosen) {
  const rows = folded(chosen, ({ op, line, gap }) => [op, line?.at, gap]);
  const columns = PHASE_COLUMNS.filter(column => rows.some(row => phaseTime(row, column)));
  const heads = [["fused op", "name"], ["line", "name"], [timeTitle(), "number"], ...columns.map(({ title }) => [title, "number"]),
    ["module", "name"]];
  const more = rows.length - SHOWN_FUSED;
  return element("div", {}, simpleTable(heads, rows.slice(0, SHOWN_FUSED).map(row => fusedRow(row, columns)), "fused-ops"),
    more > 0 ? element("p", { class: "quiet" }, `and ${more.toLocaleString("en")} more`) : null);
}

function fusedRow(row, columns) {
  const nodes = [...row.nodes];
  const names = new Set([...row.modules].map(module => (module?.path ? module.folded.join(".") : module?.name ?? "")));
  const count = nodes.length > 1 ? element("span", { class: "quiet" }, ` ×${nodes.length}`) : null;
  const code = element("div", { class: "quiet cut", title: row.place.line?.code }, row.place.line?.code ?? "");
  return element("tr", {}, element("td", { class: "name", title: nodes.slice(0, 20).join(", ") }, opName(row.place), count),
    element("td", { class: "name" }, lineLink(row.place.line), code), timeCell(row.time),
    columns.map(column => timeCell(phaseTime(row, column))),
    element("td", { class: "name" }, [...names].join(", ")));
}

// The lines that a kernel computes: their time in it, and in all kernels, forward and backward.
function sourceLines(kernel) {
  const own = new Map();
  for (const { place, time } of folded([...kernel.sites.keys()], ({ line }) => [line?.at])) if (place.line) own.set(place.line, time);
  const rows = [...own].map(([line, time]) => element("tr", {},
    element("td", { class: "name" }, lineLink(line), element("div", { class: "code" }, line.code)), timeCell(time), timeCell(line.total),
    PHASE_COLUMNS.slice(0, 2).map(column => timeCell(phaseTime(line, column)))));
  const heads = [["source line", "name"], ["this kernel", "number"], ["all kernels", "number"],
    ...PHASE_COLUMNS.slice(0, 2).map(({ title }) => [title, "number"])];
  return element("div", {}, element("h3", {}, "source lines"), rows.length ? simpleTable(heads, rows) : element("p", { class: "quiet" }, "no line"));
}

function generatedCodes(kernel, chosen) {
  if (kernel.kind === "extern") return []; // a library's
  const inside = new Set(chosen.map(site => site.graph).filter(graph => graph !== null));
  return [...inside].map(graph => element("div", { class: "generated" },
    element("h3", {}, `generated code, graph ${graph.at}`),
    codeOrReason(kernel, graph)));
}

function codeOrReason(kernel, graph) {
  const code = codeOf(kernel, graph);
  if (code) return element("pre", { tabindex: "0" }, codeLines(code));
  return element("p", { class: "quiet" }, missingCode(kernel, graph));
}

// Each line by itself, so that a search can lead to it.
function codeLines(code) {
  return code.split("\n").flatMap((text, at) => [at ? "\n" : "", element("span", { "data-code": String(at) }, text)]);
}

function codeOf(kernel, graph) {
  return report.codes[graph?.kernels[kernel.name]];
}

function missingCode(kernel, graph) {
  if (kernel.name in graph.kernels) return "left out: the page carries 2 MB of generated code, that of the kernels with most time";
  if (!graph.output_module) return "the path of the generated module was not recorded";
  if (!graph.module_is_here) return `${graph.output_module} was not there when this report was made`;
  return `${graph.output_module} holds no kernel of this name`;
}
