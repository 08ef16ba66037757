// What opens on a click: the launches of a line, the fused ops and the code of a kernel.

const SHOWN_PARTS = 12;
const SHOWN_ROWS = 40;
const SHOWN_FUSED = 200;

// The launches that a line (or module, or reason) is fused into, and what else is in them.
// Call sites of one kernel that hold the same (the layers of a model) are one row.
function launchesDetail(key) {
  const rows = alike(key).sort((a, b) => b.time - a.time);
  const heads = [["kernel", "name"], [`here, ${sumWords()}`, "number"], ["in all", "number"], [launchesWords(), "number"],
    ["also fused", "name"]];
  const more = rows.length - SHOWN_ROWS;
  return element("div", { class: "launches" }, simpleTable(heads, rows.slice(0, SHOWN_ROWS).map(alikeRow)),
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
    row.parts.push(...others);
  }
  return [...rows.values()];
}

function partKey({ op, line, phase, gap }) {
  return [op, line?.at, phase, gap];
}

function alikeRow({ time, total, launches, sites: chosen, parts }) {
  return element("tr", {},
    element("td", { class: "name" }, kernelLink(chosen[0].kernel),
      element("div", { class: "quiet wrap" }, sitesText(chosen))),
    timeCell(time),
    timeCell(total),
    element("td", { class: "number" }, launchesText(launches)),
    element("td", { class: "fused" }, otherParts(parts)));
}

function sitesText(chosen) {
  const [{ graph, kernel }] = chosen;
  const numbers = chosen.map(site => site.callSite).filter(number => number !== ABSENT);
  const where = graph ? `graph ${graph.at} (${graph.phase})` : kernel.kind;
  if (!numbers.length) return where;
  const shown = numbers.slice(0, SHOWN_PARTS).join(", ");
  return `${where}, call site${numbers.length > 1 ? "s" : ""} ${shown}${numbers.length > SHOWN_PARTS ? ", ..." : ""}`;
}

function otherParts(parts) {
  if (!parts.length) return element("span", { class: "quiet" }, "nothing");
  const rows = folded([{ parts }], partKey);
  const paid = rows.filter(row => row.time);
  const free = [...new Set(rows.filter(row => !row.time).map(row => opName(row.place)))];
  const shown = paid.slice(0, SHOWN_PARTS).map(row => element("div", {},
    `${sumText(row.time)} `, opName(row.place), " ", phaseTag(row.place.phase), " ",
    row.place.line ? lineLink(row.place.line) : "", element("span", { class: "cut" }, ` ${row.place.line?.code ?? ""}`)));
  const more = paid.length > SHOWN_PARTS ? `and ${paid.length - SHOWN_PARTS} more` : "";
  const rest = [more, free.length ? `at no cost: ${free.slice(0, SHOWN_PARTS).join(", ")}` : ""].filter(Boolean);
  return [...shown, ...rest.map(text => element("div", { class: "quiet" }, text))];
}

// The launches and the fused ops of a kernel; beside its source lines the code that was generated of them.
function kernelDetail(kernel) {
  const chosen = [...kernel.sites.keys()];
  const rows = folded(chosen, partKey);
  const fused = simpleTable([["fused op", "name"], [sumWords(), "number"], ["phase", ""], ["module", "name"]],
    rows.slice(0, SHOWN_FUSED).map(fusedRow));
  const codes = generatedCodes(kernel, chosen);
  const beside = codes.length ? element("div", { class: "beside" }, sourceLines(rows), codes) : sourceLines(rows);
  const self = element("p", {}, kernelLink(kernel, "link to this kernel"));
  const work = kernel.roofline?.work ? element("p", { class: "quiet" }, `Over all launches it ${kernel.roofline.work}.`) : null;
  return element("div", {}, work, fused, ...launchesOf(kernel, chosen), beside, self);
}

function fusedRow(row) {
  const nodes = [...row.nodes];
  const names = [...row.modules].map(module => module?.name ?? "");
  const title = nodes.slice(0, 20).join(", ");
  const count = nodes.length > 1 ? element("span", { class: "quiet" }, ` ×${nodes.length}`) : null;
  return element("tr", {}, element("td", { class: "name", title }, opName(row.place), count),
    timeCell(row.time), element("td", {}, phaseTag(row.place.phase)),
    element("td", { class: "name" }, element("div", { class: "cut", title: names.join(", ") }, names.join(", "))));
}

function sourceLines(rows) {
  const times = new Map();
  for (const { place, time } of rows) {
    if (place.line) times.set(place.line, (times.get(place.line) ?? 0) + time);
  }
  const shown = [...times].sort((a, b) => b[1] - a[1]).map(([line, time]) => element("tr", {},
    element("td", { class: "name" }, lineLink(line), element("div", { class: "code" }, line.code)), timeCell(time)));
  const heads = [["source line", "name"], [sumWords(), "number"]];
  return element("div", {}, element("h3", {}, "came from"), simpleTable(heads, shown));
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
