"use strict";
// Owns the page as a whole: puts the parts in their places, searches them, follows links into them.

const place = name => document.querySelector(`#${name} .content`);
const shown = {
  line: { table: linesTable(), section: "lines", has: isLine },
  module: { table: modulesTable(), section: "modules", has: (row, name) => row.name === name },
  kernel: { table: kernelsTable(), section: "kernels", has: (row, name) => row.name === name },
  graph: { table: graphsTable(), section: "graphs", has: (row, name) => String(row.at) === name },
};
const field = document.getElementById("search");
const statusLine = document.getElementById("status");
let source = null;

function isLine(row, name) {
  return [row.path, row.name].includes(name) || row.path.endsWith(`/${name}`);
}

function start() {
  for (const { table, section } of Object.values(shown)) {
    place(section).append(table.root);
    document.getElementById(section).hidden = table.rows.length === 0;
  }
  document.getElementById("flame").hidden = sites.length === 0;
  document.getElementById("source").hidden = report.files.length === 0;
  source = new SourceView(place("source"));
  if (sites.length) drawFlames(place("flame"));
  field.addEventListener("input", () => {
    search(field.value);
    history.replaceState(null, "", hashOf("search", field.value));
  });
  window.addEventListener("hashchange", follow);
  follow();
}

function search(term) {
  for (const { table } of Object.values(shown)) table.search(term);
  for (const flame of Flame.all) flame.search(term);
  const count = Object.entries(shown).map(([kind, { table }]) => `${table.found.length} ${kind}s`);
  statusLine.textContent = term ? count.join(", ") : "";
}

// #line=model.py:12, #kernel=NAME, #module=PATH, #graph=0 and #search=WORDS lead to a place.
function follow() {
  for (const [kind, name] of new URLSearchParams(location.hash.slice(1))) {
    if (kind === "search") {
      field.value = name;
      search(name);
    } else if (kind in shown) {
      reveal(kind, name);
    }
  }
}

function reveal(kind, name) {
  const { table, has } = shown[kind];
  const row = table.rows.find(each => has(each, name));
  statusLine.textContent = row ? "" : `this report has no ${kind} ${name}`;
  if (!row) return;
  const inFile = kind === "line" && row.path && source.files.some(({ file }) => file === row.file);
  const found = inFile ? source.reveal(row) : table.reveal(row);
  for (const old of document.querySelectorAll(".target")) old.classList.remove("target");
  found.classList.add("target");
  found.scrollIntoView({ block: "center" });
}

start();
