// The search: where one goes from hit to hit, and how hits are marked. A key only starts a short wait; what
// follows runs in pieces.

const WAIT_MS = 120;
const LISTED_HITS = 60;
const MOST_MARKS = 2000;

class Search {
  constructor(shown, source) {
    Object.assign(this, { shown, source, hits: [], at: -1, term: "", index: new SearchIndex(), waiting: 0 });
    this.field = document.getElementById("search");
    this.status = document.getElementById("status");
    this.list = document.getElementById("hits");
    this.field.addEventListener("input", () => this.typed());
    this.field.addEventListener("keydown", event => this.key(event));
    document.getElementById("next").addEventListener("click", () => this.go(1));
    document.getElementById("previous").addEventListener("click", () => this.go(-1));
    const observer = new MutationObserver(() => this.term && this.mark());
    observer.observe(document.querySelector("main"), { childList: true, subtree: true });
  }

  typed() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.settle(), WAIT_MS);
  }

  // Search for what stands in the field now.
  settle() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    if (this.field.value.trim().toLowerCase() === this.term) return;
    this.search(this.field.value);
    keepInAddress("search", this.field.value);
  }

  key(event) {
    if (event.key === "Escape") {
      this.field.value = "";
      this.settle();
    }
    if (event.key !== "Enter") return;
    this.settle();
    if (this.isReady) this.go(event.shiftKey ? -1 : 1);
    else this.goes = event.shiftKey ? -1 : 1;
  }

  search(term) {
    this.term = term.trim().toLowerCase();
    this.field.value = term;
    Object.assign(this, { at: -1, goes: 0, isReady: false, isSettled: false });
    const found = [];
    inPieces("search", this.term ? this.index.find(this.term, found) : [].values(), () => this.found(found));
  }

  // Again, where the sums are of something else.
  again() {
    this.index.forget();
    if (this.term) this.search(this.field.value);
  }

  found(hits) {
    Object.assign(this, { hits, isReady: true });
    this.say();
    inPieces("narrow", this.narrow(), () => this.mark());
    if (this.goes) this.go(this.goes);
  }

  // Each table, tree and flame graph by itself.
  *narrow() {
    for (const { view } of Object.values(this.shown)) yield view.search?.(this.term);
    for (const flame of Flame.all) yield flame.search(this.term);
  }

  go(by) {
    if (!this.hits.length) return;
    this.at = (this.at + by + this.hits.length + (this.at < 0 && by < 0 ? 1 : 0)) % this.hits.length;
    this.say();
    pointAt(this.elementOf(this.hits[this.at]));
  }

  elementOf({ kind, row, file, number, kernel }) {
    if (file) return this.source.goTo(file, number);
    if (kind !== "code") return this.shown[kind].view.reveal(row);
    const shown = this.shown.kernel.view.reveal(kernel).nextSibling;
    return shown.querySelectorAll(`[data-code="${number}"]`)[0] ?? shown;
  }

  say() {
    const count = countOf(this.hits.length, "hit");
    this.status.textContent = this.term ? `${this.at >= 0 ? `${this.at + 1} of ` : ""}${count}${this.kinds()}` : "";
    for (const id of ["next", "previous"]) document.getElementById(id).disabled = !this.hits.length;
    keepingFocus(this.list, () => this.list.replaceChildren(...this.listed()));
    this.list.hidden = !this.hits.length;
  }

  kinds() {
    const counts = new Map();
    for (const { kind } of this.hits) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    const texts = Object.entries(HIT_WORDS).filter(([kind]) => counts.has(kind)).map(([kind, word]) => countOf(counts.get(kind), word));
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
    const properties = { type: "button", click: go, "data-key": String(at), "aria-current": at === this.at ? "true" : null };
    return element("li", {}, element("button", properties, element("span", { class: "quiet" }, `${HIT_WORDS[hit.kind]} `),
      ...(hit.where ? [`${hit.where} `] : []), element("span", { class: "found" }, hit.shown.trim())));
  }

  // Mark the words on the page, without a change of its elements.
  mark() {
    if (!window.CSS?.highlights) return; // an old browser
    const found = new Highlight();
    const work = this.term ? rangesOf(this.term, found) : [].values();
    inPieces("mark", work, () => {
      if (this.term) CSS.highlights.set("found", found);
      else CSS.highlights.delete("found");
      this.isSettled = this.isReady;
    });
  }
}

function countOf(count, word) {
  const several = word.startsWith("line ") ? word.replace("line", "lines") : `${word}s`;
  return `${count.toLocaleString("en")} ${count === 1 ? word : several}`;
}

function* rangesOf(term, found) {
  for (const part of [document.getElementById("hits"), document.querySelector("main")]) {
    const walk = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node && found.size < MOST_MARKS; node = walk.nextNode()) yield addRanges(node, term, found);
  }
}

function addRanges(node, term, found) {
  const text = node.data.toLowerCase();
  for (let at = text.indexOf(term); at >= 0; at = text.indexOf(term, at + term.length)) {
    const range = new Range();
    range.setStart(node, at);
    range.setEnd(node, Math.min(at + term.length, node.length));
    found.add(range);
  }
}

// Show an element as the one that a hit or a link leads to; after a link the keyboard goes on from there.
function pointAt(found, takesFocus = false) {
  for (const old of document.querySelectorAll(".target")) old.classList.remove("target");
  found.classList.add("target");
  found.scrollIntoView({ block: "center" });
  if (takesFocus) (found.querySelector("button, a") ?? found).focus({ preventScroll: true });
}
