// The search: what it finds, where one goes from hit to hit, and how hits are marked.

const MOST_HITS = 2000;
const LISTED_HITS = 60;
const MOST_MARKS = 5000;
const HIT_WORDS = { module: "module", kernel: "kernel", line: "source line", code: "line of generated code", graph: "graph" };

class Search {
  constructor(shown, source) {
    Object.assign(this, { shown, source, hits: [], at: -1, term: "" });
    this.field = document.getElementById("search");
    this.status = document.getElementById("status");
    this.list = document.getElementById("hits");
    this.field.addEventListener("input", () => this.typed());
    this.field.addEventListener("keydown", event => this.key(event));
    document.getElementById("next").addEventListener("click", () => this.go(1));
    document.getElementById("previous").addEventListener("click", () => this.go(-1));
    new MutationObserver(() => this.mark()).observe(document.querySelector("main"), { childList: true, subtree: true });
  }

  typed() {
    this.search(this.field.value);
    keepInAddress("search", this.field.value);
  }

  key(event) {
    if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") this.search(this.field.value = "");
  }

  search(term) {
    this.term = term.trim().toLowerCase();
    this.field.value = term;
    for (const { view } of Object.values(this.shown)) view.search?.(this.term);
    for (const flame of Flame.all) flame.search(this.term);
    this.hits = this.term ? this.find() : [];
    this.at = -1;
    this.say();
    this.mark();
  }

  find() {
    const found = [];
    for (const hit of this.every()) {
      if (!hit.text.toLowerCase().includes(this.term)) continue;
      if (found.push(hit) === MOST_HITS) break;
    }
    return found;
  }

  *every() {
    for (const row of modules) if (row.launches) yield { kind: "module", text: `${row.path} ${row.type}`, row };
    for (const row of kernels) if (row.launches) yield { kind: "kernel", text: row.own === row.name ? row.name : `${row.name} ${row.own}`, row };
    yield* fileLines();
    yield* generatedLines();
    for (const row of graphs) yield { kind: "graph", text: `${row.key} ${row.compile_id} ${row.output_module}`, row };
  }

  go(by) {
    if (!this.hits.length) return;
    this.at = (this.at + by + this.hits.length + (this.at < 0 && by < 0 ? 1 : 0)) % this.hits.length;
    this.say();
    pointAt(this.elementOf(this.hits[this.at]));
  }

  elementOf({ kind, row, file, number, kernel }) {
    if (kind === "line") return this.source.goTo(file, number);
    if (kind !== "code") return this.shown[kind].view.reveal(row);
    const shown = this.shown.kernel.view.reveal(kernel).nextSibling;
    return shown.querySelectorAll(`[data-code="${number}"]`)[0] ?? shown;
  }

  say() {
    const count = this.hits.length === MOST_HITS ? `more than ${MOST_HITS}` : this.hits.length;
    this.status.textContent = this.term ? `${this.at >= 0 ? `${this.at + 1} of ` : ""}${countOf(count)}${this.kinds()}` : "";
    for (const id of ["next", "previous"]) document.getElementById(id).disabled = !this.hits.length;
    this.list.replaceChildren(...this.listed());
    this.list.hidden = !this.hits.length;
  }

  kinds() {
    const named = Object.entries(HIT_WORDS).map(([kind, word]) => [this.hits.filter(hit => hit.kind === kind).length, word]);
    const texts = named.filter(([count]) => count).map(([count, word]) => countOf(count, word));
    return texts.length ? `: ${texts.join(", ")}` : "";
  }

  // The hits about the present one, each a button that leads to it.
  listed() {
    const first = Math.max(0, Math.min(this.at - LISTED_HITS / 2, this.hits.length - LISTED_HITS));
    const rows = this.hits.slice(first, first + LISTED_HITS).map((hit, index) => this.item(hit, first + index));
    const left = this.hits.length - rows.length;
    return left > 0 ? [...rows, element("li", { class: "quiet" }, `and ${left.toLocaleString("en")} more`)] : rows;
  }

  item(hit, at) {
    const go = () => { this.at = at - 1; this.go(1); };
    const properties = { type: "button", click: go, "aria-current": at === this.at ? "true" : null };
    return element("li", {}, element("button", properties, element("span", { class: "quiet" }, `${HIT_WORDS[hit.kind]} `),
      ...(hit.where ? [`${hit.where} `] : []), element("span", { class: "found" }, hit.text.trim())));
  }

  // Mark the words on the page, without a change of its elements.
  mark() {
    if (!window.CSS?.highlights) return;
    CSS.highlights.delete("found");
    if (this.term) CSS.highlights.set("found", new Highlight(...firstOf(rangesOf(this.term), MOST_MARKS)));
  }
}

function countOf(count, word = "hit") {
  return word.startsWith("line") && count !== 1 ? `${count} ${word.replace("line", "lines")}` : `${count} ${word}${count === 1 ? "" : "s"}`;
}

function* fileLines() {
  for (const file of report.files) {
    for (const [at, text] of file.lines.entries()) {
      const number = file.missing ? file.numbers[at] : at + 1;
      yield { kind: "line", where: `${file.name}:${number}`, text, file, number };
    }
  }
}

function* generatedLines() {
  for (const kernel of kernels) {
    const code = [...kernel.sites.keys()].map(site => codeOf(kernel, site.graph)).find(Boolean);
    for (const [number, text] of (code ?? "").split("\n").entries()) {
      if (text) yield { kind: "code", where: `${kernel.name}:${number + 1}`, text, kernel, number };
    }
  }
}

function* rangesOf(term) {
  for (const part of [document.querySelector("main"), document.getElementById("hits")]) {
    const walk = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) yield* rangesIn(node, term);
  }
}

function firstOf(all, most) {
  const first = [];
  for (const each of all) if (first.push(each) === most) break;
  return first;
}

function* rangesIn(node, term) {
  const text = node.data.toLowerCase();
  for (let at = text.indexOf(term); at >= 0; at = text.indexOf(term, at + term.length)) {
    const range = new Range();
    range.setStart(node, at);
    range.setEnd(node, Math.min(at + term.length, node.length));
    yield range;
  }
}

function pointAt(found) {
  for (const old of document.querySelectorAll(".target")) old.classList.remove("target");
  found.classList.add("target");
  found.scrollIntoView({ block: "center" });
}
