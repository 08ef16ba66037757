// The tables of lines, kernels and graphs.

function withTime(rows) {
  return rows.filter(row => row.total);
}

function largestOf(rows) {
  return rows.reduce((most, row) => Math.max(most, row.total), 0);
}

// What ran but took no time, such as ops that a fused kernel has at no cost, is counted and not listed.
function withoutTime(rows, word) {
  const count = rows.filter(row => row.launches && !row.total).length;
  return count ? `${countText(count, word)} fused at no cost` : "";
}

function linesTable() {
  const every = () => [...lines, ...unplaced.values()];
  const rowsOf = () => withTime(every());
  const columns = [nameColumn("line", row => row.name, lineName), ...sumColumns(rowsOf(), () => largestOf(every()))];
  return new PagedTable(columns, rowsOf, { textOf: row => `${row.path} ${row.name} ${row.code}`, detail: launchesDetail,
    note: () => withoutTime(every(), "more line"), legend: barLegend("the largest line") });
}

// The place and the code over the whole width of the table, above the numbers.
function lineName(row) {
  if (!row.path) return row.name;
  return element("div", { class: "over" }, link("line", row.path, row.name), element("span", { class: "quiet", title: row.code }, ` ${row.code}`));
}

function kernelsTable() {
  const rowsOf = () => withTime(kernels);
  const columns = [nameColumn("kernel", row => row.name, kernelName), ...sumColumns(rowsOf(), () => largestOf(kernels)), MEDIAN,
    ...(kernels.some(each => each.roofline?.rate) ? [RATE] : []), { title: "kind", kind: "widest-only", value: row => row.kind }];
  return new PagedTable(columns, rowsOf, { textOf: row => `${row.name} ${row.own} ${row.kind}`, detail: kernelDetail,
    legend: barLegend("the largest kernel") });
}

function kernelName(row) {
  const own = row.shortOwn ? element("span", { class: "quiet", title: row.own }, ` ${row.shortOwn}`) : null;
  return element("div", { class: "over" }, element("span", { class: "kernel", title: row.name }, row.short), own);
}

function graphsTable() {
  const number = (title, value) => ({ title, kind: "number wide-only", value: row => value(row) ?? 0,
    show: row => value(row)?.toLocaleString("en") ?? "" });
  const columns = [
    { title: "graph", kind: "number", value: row => -row.at, show: row => String(row.at) },
    { title: "compile id", kind: null, value: row => row.compile_id ?? "" },
    { title: "kind", kind: null, about: "a backward graph also recomputes, and accumulates gradients", value: row => `${row.phase} graph` },
    timeColumn(() => `device ${timeTitle()}`, row => row.total),
    number("FX nodes", row => row.fx_nodes),
    number("call sites", row => row.call_sites),
    { title: "cache", kind: null, value: row => row.cache_state.replace("_", " "), show: cacheText },
    { title: "compile time", kind: "number", value: row => row.compile_ns, show: row => timeText(row.compile_ns) },
    nameColumn("generated module", row => row.output_module ?? "", moduleText),
  ];
  return new PagedTable(columns, () => graphs, { textOf: row => `${row.key} ${row.compile_id} ${row.output_module}`, order: 0 });
}

function cacheText(graph) {
  const state = graph.cache_state.replace("_", " ");
  return graph.cache_detail ? [state, element("div", { class: "quiet" }, graph.cache_detail)] : state;
}

function moduleText(graph) {
  if (!graph.output_module) return "";
  const count = Object.keys(graph.kernels).length;
  const said = graph.module_is_here ? `${count} kernels shown here` : "was not there when this report was made";
  return [middle(graph.output_module), element("div", { class: "quiet" }, said)];
}
