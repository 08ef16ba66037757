"use strict";
// Owns the tables of lines, modules, kernels and graphs.

const SPENT = PHASES.map((name, phase) => phase).filter(phase => kernels.some(each => each.phases[phase]));

const COULD_SAVE = {
  title: "could save",
  type: "number",
  value: row => row.near?.saves ?? 0,
  show: row => (row.near ? [row.near.saves ? timeText(row.near.saves) : "",
    element("div", { class: "quiet", title: row.near.work }, row.near.text)] : ""),
};

function sumColumns(rows) {
  const most = Math.max(1, ...rows.map(row => row.total));
  return [
    { title: "time", type: "number", value: row => row.total, show: row => timeText(row.total) },
    { title: "part", type: "number", value: row => row.total, show: row => percentText(row.total, wholeTime) },
    { title: "", type: "track", value: row => row.total, show: row => phaseBar(row, most) },
    ...SPENT.map(phase => ({
      title: phaseName(phase).replace("gradient accumulation", "grad. acc."),
      type: "number",
      value: row => row.phases[phase],
      show: row => (row.phases[phase] ? timeText(row.phases[phase]) : ""),
    })),
    ...(hasBothScopes ? [{
      title: "of it eager",
      type: "number",
      value: row => row.eager,
      show: row => (row.eager ? timeText(row.eager) : ""),
    }] : []),
    ...(rows.some(row => row.near?.text) ? [COULD_SAVE] : []),
    { title: "launches", type: "number", value: row => row.launches, show: row => row.launches.toLocaleString("en") },
  ];
}

function nameColumn(title, value, show = row => value(row), type = "name wide") {
  return { title, type, value, show: row => element("div", { class: "clip", title: value(row) }, show(row)) };
}

function linesTable() {
  const rows = [...lines.filter(line => line.total), ...unplaced.values()];
  const columns = [...sumColumns(rows),
    nameColumn("line", row => row.name, row => (row.path ? lineLink(row) : row.name), "name"),
    nameColumn("code", row => row.code)];
  return new PagedTable(columns, rows, { textOf: row => `${row.path} ${row.name} ${row.code}`, detail: launchesDetail });
}

function modulesTable() {
  const columns = [...sumColumns(modules), nameColumn("module", row => row.name),
    nameColumn("class", row => row.type, row => row.type, "name")];
  return new PagedTable(columns, modules, { textOf: row => `${row.name} ${row.type}`, detail: launchesDetail });
}

function kernelsTable() {
  const columns = [...sumColumns(kernels), nameColumn("kernel", row => row.name),
    nameColumn("the device's name", row => row.own), { title: "kind", value: row => row.kind }];
  return new PagedTable(columns, kernels, { textOf: row => `${row.name} ${row.own} ${row.kind}`, detail: kernelDetail });
}

function graphsTable() {
  const number = (title, value) => ({ title, type: "number", value: row => value(row) ?? 0,
    show: row => value(row)?.toLocaleString("en") ?? "" });
  const columns = [
    { title: "graph", type: "number", value: row => -row.at, show: row => String(row.at) },
    { title: "device time", type: "number", value: row => row.total, show: row => timeText(row.total) },
    { title: "compile id", type: "", value: row => row.compile_id ?? "" },
    { title: "phase", type: "", value: row => row.phase },
    number("FX nodes", row => row.fx_nodes),
    number("call sites", row => row.call_sites),
    { title: "cache", type: "", value: row => row.cache_state.replace("_", " "), show: cacheText },
    { title: "compile time", type: "number", value: row => row.compile_ns, show: row => timeText(row.compile_ns) },
    nameColumn("generated module", row => row.output_module ?? "", moduleText),
  ];
  return new PagedTable(columns, graphs, { textOf: row => `${row.key} ${row.compile_id} ${row.output_module}` });
}

function cacheText(graph) {
  const state = graph.cache_state.replace("_", " ");
  return graph.cache_detail ? [state, element("div", { class: "quiet" }, graph.cache_detail)] : state;
}

function moduleText(graph) {
  if (!graph.output_module) return "";
  const count = Object.keys(graph.kernels).length;
  const said = graph.module_is_here ? `${count} kernels shown here` : "was not there when this report was made";
  return [graph.output_module, element("div", { class: "quiet" }, said)];
}
