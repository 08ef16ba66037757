// The view's state, and how it is laid out.

import { columnsOf } from "./columns.js";
import { detail } from "./detail.js";
import { matching, mergedRows, sum } from "./rows.js";
import { listRuns, loadRun } from "./runs.js";
import { element } from "./shared/dom.js";
import { percentText, phaseText } from "./shared/format.js";
import { fileNames, source } from "./source.js";
import { table } from "./table.js";
import { TITLES, spentText } from "./words.js";

const NOTHING = "No attribution is in this log folder. Write one with " +
  "`profiler-ext export DIR -o LOGDIR/RUN`, or prof.export(\"LOGDIR/RUN\").";

export class Page {
  constructor(root) {
    this.side = element("aside");
    this.main = element("main");
    root.replaceChildren(element("div", { class: "page" }, this.side, this.main));
    this.loaded = new Map();
    this.chosen = new Set();
    this.by = "line";
    this.search = "";
    this.phase = "";
    this.sorting = { title: "time/step", down: true };
    this.picked = null;
    this.file = null;
  }

  async reload() {
    const answer = await listRuns().catch((error) => ({ runs: [], error: error.message }));
    this.loaded.clear();
    this.names = answer.runs;
    this.problem = answer.error ?? (answer.runs.length ? null : NOTHING);
    this.chosen = new Set(answer.runs.filter((name) => this.chosen.has(name)));
    if (!this.chosen.size && answer.runs.length) this.chosen.add(answer.runs[0]);
    await this.show();
  }

  async show() {
    const missing = [...this.chosen].filter((name) => !this.loaded.has(name));
    for (const run of await Promise.all(missing.map(loadRun))) this.loaded.set(run.name, run);
    this.draw();
  }

  draw() {
    const inOrder = this.names.filter((name) => this.chosen.has(name) && this.loaded.has(name));
    const chosen = inOrder.map((name) => this.loaded.get(name));
    this.runs = chosen.filter((run) => run.data);
    const failed = chosen.filter((run) => run.error);
    this.side.replaceChildren(...this.sideParts());
    this.main.replaceChildren(
      ...(this.problem ? [message(this.problem)] : []),
      ...failed.map((run) => message(`${run.name}: ${run.error}`)),
      ...(this.runs.length ? this.parts() : []));
  }

  sideParts() {
    const boxes = this.names.map((name) => {
      const change = (event) => {
        if (event.target.checked) this.chosen.add(name);
        else this.chosen.delete(name);
        this.show();
      };
      const box = element("input", { type: "checkbox", checked: this.chosen.has(name) ? "" : null, change });
      return element("label", {}, box, name);
    });
    const reload = element("button", { type: "button", class: "act", click: () => this.reload() },
      "reload runs");
    return [element("h2", {}, "Runs"), ...boxes, reload];
  }

  parts() {
    this.content = element("div", { class: "content" });
    this.aside = element("div", {});
    this.fill();
    return [
      ...this.runs.map(heading), this.bar(), this.content, this.aside,
      element("div", { class: "summaries" }, ...this.runs.map(summary)),
    ];
  }

  bar() {
    const tabs = Object.entries(TITLES).map(([by, title]) => element("button", {
      type: "button", role: "tab", "aria-selected": String(by === this.by),
      click: () => this.turnTo(by),
    }, title));
    return element("div", { class: "controls" },
      element("div", { role: "tablist", class: "tabs" }, ...tabs),
      ...(this.by === "source" ? [this.fileChoice()] : [this.searchBox(), this.phaseChoice()]));
  }

  searchBox() {
    return element("input", { type: "search", placeholder: "search", value: this.search,
      "aria-label": "search", input: (event) => {
        this.search = event.target.value;
        this.fill();
      } });
  }

  phaseChoice() {
    const phases = [...new Set(this.runs.flatMap((run) => run.data.phases))];
    return choice("phase", [["", "all phases"], ...phases.map((each) => [each, phaseText(each)])],
      this.phase, (value) => {
        this.phase = value;
        this.fill();
      });
  }

  fileChoice() {
    const names = fileNames(this.runs);
    return choice("file", names.map((name) => [name, name]), this.fileShown(), (value) => {
      this.file = value;
      this.fill();
    });
  }

  fileShown() {
    const names = fileNames(this.runs);
    return names.includes(this.file) ? this.file : names[0];
  }

  turnTo(by) {
    this.by = by;
    this.picked = null;
    this.draw();
  }

  fill() {
    const by = this.by === "source" ? "line" : this.by;
    const rows = mergedRows(this.runs, by);
    const onPick = (row) => {
      this.picked = row.key;
      this.fill();
    };
    this.content.replaceChildren(
      this.by === "source" ? this.sourceOf(rows, onPick) : this.tableOf(rows, onPick));
    const row = rows.find((each) => each.key === this.picked);
    this.content.classList.toggle("short", Boolean(row));
    const toSource = this.by === "source" ? null : (file) => this.open(file);
    this.aside.replaceChildren(...(row ? [detail(this.runs, by, row, toSource)] : []));
  }

  tableOf(rows, onPick) {
    const { phase } = this;
    const columns = columnsOf(this.runs, this.by, rows, phase);
    if (!columns.some((each) => each.title === this.sorting.title)) {
      this.sorting = { title: columns[0].title, down: true };
    }
    const column = columns.find((each) => each.title === this.sorting.title);
    const order = { column, down: this.sorting.down };
    const spent = phase ? rows.filter((row) => this.hasPhase(row)) : rows;
    const onSort = (other) => {
      const down = other === column ? !order.down : other.kind === "number";
      this.sorting = { title: other.title, down };
      this.fill();
    };
    return table(columns, matching(spent, this.search), order, onSort, onPick, this.picked);
  }

  hasPhase(row) {
    return row.cells.some((cell, at) =>
      cell && cell.phase_ns[this.runs[at].data.phases.indexOf(this.phase)] > 0);
  }

  sourceOf(rows, onPick) {
    const name = this.fileShown();
    if (name === undefined) return message("No time is attributed to a source line.");
    return source(this.runs, rows, name, this.picked, onPick);
  }

  open(file) {
    const { picked } = this;
    this.file = file;
    this.turnTo("source");
    this.picked = picked;
    this.fill();
    this.content.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "center" });
  }
}

function findings(recommendations) {
  if (!recommendations) return [];
  const items = recommendations.findings.map((each) => element("details", {},
    element("summary", {}, element("b", {}, each.saving), ` ${each.summary}`),
    ...[each.location, each.evidence].filter(Boolean).map((text) =>
      element("p", { class: "quiet" }, text)),
    element("p", {}, `Try: ${each.remedy}`)));
  return [
    element("h2", {}, recommendations.title),
    ...items,
    ...(recommendations.more ? [element("p", { class: "quiet" }, recommendations.more)] : []),
  ];
}

function message(text) {
  return element("p", { class: "message", role: "status" }, text);
}

function choice(label, options, value, onPick) {
  const made = options.map(([key, text]) =>
    element("option", { value: key, selected: key === value ? "" : null }, text));
  return element("select", { "aria-label": label, change: (event) => onPick(event.target.value) }, made);
}

// One line of what was recorded and one of what to change first; the rest stands below the table.
function heading(run) {
  const { recommendations, heading: recorded, notes } = run.data;
  const top = recommendations?.findings[0];
  const more = notes.length ? ` \u00b7 ${notes.length === 1 ? "a note" : `${notes.length} notes`} below` : "";
  return element("header", { class: "heading" },
    element("p", {}, element("b", {}, run.name), ` \u00b7 ${recorded}${more}`),
    top ? element("p", { class: "quiet" }, "Top recommendation: ",
      element("b", {}, top.saving), ` ${top.summary}`) : null);
}

function summary(run) {
  const { breakdown, notes, overview, steps } = run.data;
  const wall = sum(breakdown.map((each) => each.duration_ns));
  const accounts = breakdown.map((each) => element("tr", {},
    element("td", {}, each.name),
    element("td", { class: "number" }, spentText(each.duration_ns / Math.max(steps, 1))),
    element("td", { class: "number" }, percentText(each.duration_ns, wall, ""))));
  const sentences = (overview ?? []).map((sentence) => element("p", {}, sentence));
  return element("section", { class: "summary" },
    element("h1", {}, run.name),
    ...notes.map((note) => element("p", { class: "message" }, note)),
    ...findings(run.data.recommendations),
    element("h2", {}, "Step time breakdown"),
    element("table", {}, element("tbody", {}, ...accounts)),
    sentences.length ? element("details", {},
      element("summary", {}, "Attribution and idle time"), ...sentences) : null);
}
