// Device memory: a step over time stacked by kind, the icicle of its peak by module, and the table of its blocks.

const KIND_COLORS = { parameters: "line-0", gradients: "line-1", saved_activations: "line-2", optimizer_state: "line-3", temporaries: "line-4",
  workspaces: "line-5", communication: "line-6", buffers: "line-7", graph_pools: "cause-1", batch: "cause-3", held: "cause-2" };
const MEMORY_KINDS = report.memory.kinds.map(([name, label, meaning]) => ({ name, label, meaning, color: KIND_COLORS[name] ?? "line-others" }));
const BOX = { left: 70, right: 8, top: 18, plot: 200, band: 12, axis: 20 }; // pixels

function summedUp(changes) {
  let at = 0;
  return changes.map(change => (at += change));
}

// A step's memory on a device, with its rows.
class StepMemory {
  constructor(step) {
    Object.assign(this, step);
    this.kinds = step.kinds.map(at => MEMORY_KINDS[at]);
    this.times = summedUp(step.times);
    this.bytes = step.bytes.map(summedUp);
    this.totals = this.times.map((_, at) => this.bytes.reduce((sum, of) => sum + of[at], 0));
    this.peakAt = this.totals.indexOf(step.peak);
    this.rows = step.rows.map(numbers => memoryRow(numbers));
  }

  // The last moment at or before a time.
  momentAt(time) {
    const after = this.times.findIndex(each => each > time);
    return Math.max(0, (after < 0 ? this.times.length : after) - 1);
  }

  name() {
    const rank = report.roofline_rank === null ? "" : `rank ${this.rank}, `;
    return `${rank}step ${this.step}, ${this.device}: ${sizeText(this.peak)}`;
  }
}

function memoryRow([kind, phase, line, label, code, owner, module, op, kernel, gap, evidence, reason, because, neededBy, heldBy,
  neededLine, blocks, peak, allocations, allocated, lifetime]) {
  const textOf = at => (at === ABSENT ? "" : report.memory.texts[at]);
  return { kind: MEMORY_KINDS[kind], phase, line: lines[line] ?? null, name: textOf(label), code: textOf(code), owner: textOf(owner),
    module: module === ABSENT ? null : textOf(module), op: textOf(op), kernel: textOf(kernel), gap: textOf(gap), evidence: textOf(evidence),
    reason: textOf(reason), because: textOf(because), neededBy: textOf(neededBy), heldBy: textOf(heldBy), neededLine: lines[neededLine] ?? null,
    blocks, peak, allocations, allocated, lifetime };
}

class MemoryView {
  constructor() {
    this.steps = report.memory.steps.map(step => new StepMemory(step));
    this.step = this.steps[0];
    this.marked = null; // a kind
    this.chooser = element("select", { change: () => this.show(Number(this.chooser.value)) },
      this.steps.map((step, at) => element("option", { value: String(at) }, step.name())));
    this.legend = element("p", { class: "legend" });
    this.chart = new MemoryChart(this);
    this.reserved = element("p", { class: "quiet" });
    this.box = element("div", {});
    this.flame = new MemoryFlame(this);
    this.table = memoryTable(this);
    this.rest = element("p", { class: "quiet" });
    this.root = element("div", { class: "memory" }, element("p", { class: "tools" }, element("label", {}, "shown: ", this.chooser)), this.legend,
      this.chart.root, this.reserved, this.box, element("h3", {}, "What is alive at the peak, and what the step allocates"), this.table.root, this.rest);
  }

  get rows() {
    return this.step.rows;
  }

  // What has to be on the page to be drawn.
  start() {
    new ResizeObserver(() => this.chart.draw()).observe(this.root);
    window.addEventListener("resize", () => { if (this.flame.isStale()) this.flame.draw(); });
    this.show(0);
  }

  show(at) {
    this.chooser.value = String(at);
    this.step = this.steps[at];
    this.marked = null;
    this.chart.at = this.step.peakAt;
    this.drawAll();
    if (searching) searching.again();
  }

  drawAll() {
    const [left, bytes] = this.step.rest;
    this.rest.textContent = left ? `${countText(left, "more row")} with ${sizeText(bytes)} at the peak: by_memory.csv has them` : "";
    this.reserved.textContent = this.step.reserved;
    this.writeLegend();
    this.chart.draw();
    this.flame.draw();
    this.table.refresh();
  }

  // The page is narrowed to a step or a rank: show that, if it is here.
  refresh() {
    const at = this.steps.findIndex(({ rank, step }) => step === (slice.step ?? step) && (slice.rank ?? rank) === rank);
    const isShown = (slice.step ?? this.step.step) === this.step.step && (slice.rank ?? this.step.rank) === this.step.rank;
    if (at >= 0 && !isShown) this.show(at);
    else this.flame.draw(); // layers may be folded now
  }

  // The keys of kinds are buttons: they show a kind alone, here and in the table.
  writeLegend() {
    const { step } = this;
    const keys = step.kinds.map((kind, at) => [kind, step.bytes[at][step.peakAt]]).sort((a, b) => b[1] - a[1]);
    keepingFocus(this.legend, () => this.legend.replaceChildren(element("span", { class: "quiet" }, "at the peak:"), ...keys.map(([kind, bytes]) =>
      element("button", { type: "button", class: "mark", "data-key": kind.name, "aria-pressed": String(this.marked === kind), title: kind.meaning,
        click: () => this.mark(this.marked === kind ? null : kind) }, keyOf(kind), `${kind.label} ${sizeText(bytes)}`))));
  }

  mark(kind) {
    this.marked = kind;
    this.writeLegend();
    this.chart.draw();
    this.table.refresh();
  }

  search(term) {
    this.table.search(term);
    this.flame.search(term);
  }

  reveal(row) {
    if (this.marked && row.kind !== this.marked) this.mark(null);
    return this.table.reveal(row);
  }
}

function keyOf(kind) {
  const key = element("span", { class: "key" });
  key.style.background = `var(--${kind.color})`;
  return key;
}

function memoryTable(view) {
  const number = (title, about, value, show, kind = "number") => ({ title, about, kind, value, show: row => (value(row) ? show(value(row)) : "") });
  const columns = [
    nameColumn("line or owner", row => row.name, memoryName),
    { title: "kind", kind: null, value: row => row.kind.label, show: row => element("span", { class: "phase" }, keyOf(row.kind), row.kind.label) },
    { title: "module", kind: "wide-only module", value: row => row.module ?? "", show: row => (row.module === null ? "" : row.module || "(the model itself)") },
    { title: "allocated in", about: "the phase of the allocation, or before the recording", kind: "wide-only", value: row => memoryPhase(row), show: row => (row.phase === ABSENT ? memoryPhase(row) : phaseTag(row.phase)) },
    { title: "why it lives", about: "why it is still allocated at the peak; empty of what is not", kind: "widest-only phase", value: row => row.reason },
    number("at peak", "bytes that are alive at the peak", row => row.peak, sizeText),
    number("% peak", "part of the peak", row => row.peak, bytes => percentText(bytes, view.step.peak), "number percent"),
    number("blocks", "blocks of the allocator that are alive at the peak", row => row.blocks, count => count.toLocaleString("en")),
    number("a step", "bytes that the step allocates, freed again or not", row => row.allocated, sizeText),
    number("lifetime", "of the block that lives longest; empty if it is older or outlives the recording", row => row.lifetime, timeText, "number wide-only"),
  ];
  const rowsOf = () => view.step.rows.filter(row => !view.marked || row.kind === view.marked);
  return new PagedTable(columns, rowsOf, { textOf: row => [row.name, row.owner, row.kind.label, row.module, row.code, row.op, row.kernel, row.reason, row.neededBy].join(" "),
    detail: memoryDetail, order: 5 });
}

function memoryPhase(row) {
  return row.phase === ABSENT ? "before" : phaseName(row.phase);
}

function memoryName(row) {
  if (!row.line) return element("div", { class: "over" }, row.owner ? `${row.owner} ` : "", element("span", { class: "quiet", title: row.code }, `${row.name} ${row.code}`));
  return element("div", { class: "over" }, link("line", row.line.path, row.name), element("span", { class: "quiet", title: row.code }, ` ${row.code}`));
}

function memoryDetail(row) {
  const facts = [["bytes at the peak", row.peak.toLocaleString("en")], ["bytes a step", `${row.allocated.toLocaleString("en")} in ${countText(row.allocations, "allocation")}`],
    ["name", row.owner], ["lives because", row.because && `it ${row.because}`], ["needed by", row.neededBy && [row.neededBy, ...(row.neededLine ? [" at ", link("line", row.neededLine.path, row.neededLine.name)] : [])]],
    ["held by", row.heldBy], ["ATen op", row.op], ["kernel", row.kernel], ["known by", row.evidence && `it ${row.evidence}`], ["no line because", row.gap], ["kind", `it ${row.kind.meaning}`]];
  return simpleTable([["what", null], ["of these blocks", "wrap"]], facts.filter(([, said]) => said).map(([name, said]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "wrap" }, said))));
}

// By module, then line or kind, then what it is.
class MemoryFlame extends Icicle {
  constructor(view) {
    super("the peak", "module, line and kind", view.box);
    this.view = view;
  }

  tree() {
    const root = { name: this.view.step.device, kind: "module", path: "", value: 0, below: new Map() };
    for (const row of this.view.step.rows) if (row.peak) addAlong(root, memoryFrames(row), row.peak);
    return root;
  }

  heading() {
    return `The peak by module, then line: ${sizeText(this.data.value)}`;
  }

  amount(bytes) {
    return sizeText(bytes);
  }

  color(data) {
    return data.color ? `var(--${data.color})` : "var(--track)";
  }
}

function memoryFrames(row) {
  const names = row.module === null ? ["(no module)"] : (isFolded() ? foldedNames(row.module) : namesOf(row.module));
  const line = row.line ? `${shortLine(row.line)}  ${row.code}` : row.name;
  return [...names.map(name => ({ name, kind: "module" })), { name: line, kind: "line", target: row.line?.path },
    { name: row.owner ? `${row.kind.label} ${row.owner}` : row.kind.label, kind: "memory", color: row.kind.color }];
}
