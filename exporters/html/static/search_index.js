// What the search looks in: one entry for each file, line with time, module, kernel, graph, line of source and of
// generated code, by kind, in the order in which hits are listed. Made once, in pieces between other work.

const HIT_WORDS = { file: "file", timed: "line with time", module: "module", kernel: "kernel", graph: "graph", memory: "row of memory",
  line: "source line", code: "line of generated code" };
const PIECE_MS = 8;

// Run a generator to its end in short pieces, so that no key waits for it; a newer run of the same name ends it.
const runs = new Map();

function inPieces(name, work, done = () => {}) {
  const number = (runs.get(name) ?? 0) + 1;
  runs.set(name, number);
  const piece = () => {
    if (runs.get(name) !== number) return;
    const end = performance.now() + PIECE_MS;
    while (performance.now() < end) if (work.next().done) return done();
    setTimeout(piece);
  };
  setTimeout(piece);
}

function byTime(rows) {
  return rows.filter(row => row.total).sort((a, b) => b.total - a.total);
}

// Each entry's text is in lower case; what `where` says is found too, but for source without time.
function* entriesOf() {
  for (const file of report.files) yield entry("file", file.name, { file, number: null });
  for (const row of byTime(lines)) yield entry("timed", `${row.name} ${row.code}`, { where: row.name, shown: row.code, file: row.file, number: row.number });
  for (const row of modules) if (row.launches) yield entry("module", `${row.name} ${row.type}`, { named: row.name, row });
  for (const row of byTime(kernels)) yield entry("kernel", row.own === row.name ? row.name : `${row.name} ${row.own}`, { named: row.name, row });
  for (const row of graphs) yield entry("graph", `${row.key} ${row.compile_id} ${row.output_module}`, { row });
  for (const row of shown.memory?.view.rows ?? []) yield entry("memory", `${row.name} ${row.owner} ${row.kind.label} ${row.code}`, { named: row.owner || row.name, row });
  yield* fileLines();
  yield* generatedLines();
}

function entry(kind, text, rest) {
  return { kind, text: text.toLowerCase(), shown: text, ...rest };
}

function* fileLines() {
  for (const file of report.files) {
    const timed = new Set(lines.filter(line => line.file === file && line.total).map(line => line.number));
    for (const [at, text] of file.lines.entries()) {
      const number = file.missing ? file.numbers[at] : at + 1;
      if (!timed.has(number)) yield entry("line", text, { where: `${file.name}:${number}`, file, number });
    }
  }
}

function* generatedLines() {
  for (const kernel of kernels) {
    const code = [...kernel.sites.keys()].map(site => codeOf(kernel, site.graph)).find(Boolean);
    for (const [number, text] of (code ?? "").split("\n").entries()) {
      if (text) yield entry("code", text, { where: `${kernel.name}:${number + 1}`, kernel, number });
    }
  }
}

class SearchIndex {
  constructor() {
    this.entries = null;
  }

  // The hits of a term, those that are just it first of their kind, by and by.
  *find(term, found) {
    if (!this.entries) yield* this.make();
    const place = term.match(/^(.+):(\d+)$/);
    for (const each of this.entries) {
      if (each.text.includes(term) || (place && each.kind === "line" && isAt(each, place))) found.push(each);
      yield;
    }
    found.sort((a, b) => KIND_ORDER.get(a.kind) - KIND_ORDER.get(b.kind) || nearness(b, term) - nearness(a, term));
  }

  *make() {
    const entries = [];
    for (const each of entriesOf()) yield entries.push(each);
    this.entries = entries;
  }

  // The sums are of something else now.
  forget() {
    this.entries = null;
  }
}

const KIND_ORDER = new Map(Object.keys(HIT_WORDS).map((kind, at) => [kind, at]));

function isAt({ file, number }, [, name, line]) {
  return String(number) === line && (file.name.toLowerCase() === name || file.name.toLowerCase().endsWith(`/${name}`));
}

// Two for what is the term, one for what begins with it.
function nearness({ where, named, text }, term) {
  const name = (where ?? named ?? text).toLowerCase();
  return name === term || name.endsWith(`/${term}`) ? 2 : Number(name.startsWith(term));
}
