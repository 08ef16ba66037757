// The source files with time in the margin of each line.

const LONG_FILE = 60;
const CONTEXT = 4;
const HEAT = 32; // percent of a colour at most: words stay legible on it, in the dark too

class SourceView {
  constructor(host) {
    this.files = report.files.map(file => ({ file, lines: linesOf(file) })).sort(byImportance);
    this.chooser = element("select", { "aria-label": "source file", change: () => this.show(this.chooser.value) },
      this.files.map(({ file }, at) => element("option", { value: String(at) }, this.title(at))));
    this.note = element("p", { class: "quiet" });
    this.box = element("div", { class: "source", tabindex: "0", role: "group", "aria-label": "source with time in the margin" });
    this.excerpt = element("input", { type: "checkbox", change: () => this.draw() });
    const label = element("label", {}, this.excerpt, " only near lines that took time");
    host.append(element("p", {}, this.chooser, " ", label), this.note, barLegend("the largest line of the file"), this.box);
    if (this.files.length) this.show(0);
  }

  // The sums are of something else now.
  refresh() {
    if (!this.files.length) return;
    [...this.chooser.options].forEach((option, at) => { option.textContent = this.title(at); });
    this.show(this.files.indexOf(this.current), this.excerpt.checked);
  }

  title(at) {
    const { file, lines: there } = this.files[at];
    const time = [...there.values()].reduce((total, line) => total + line.total, 0);
    return `${file.name} (${sumText(time)})`;
  }

  show(at, excerpt = null) {
    this.chooser.value = String(at);
    this.current = this.files[at];
    const { file } = this.current;
    this.most = Math.max(1, ...[...this.current.lines.values()].map(line => line.total));
    this.columns = PHASE_COLUMNS.filter(column => [...this.current.lines.values()].some(line => phaseTime(line, column)));
    this.box.style.setProperty("--phases", this.columns.length);
    this.note.textContent = file.missing ? `Only the recorded lines are shown: ${file.missing}.` : file.path;
    this.excerpt.checked = excerpt ?? file.lines.length > LONG_FILE;
    this.draw();
  }

  draw() {
    const { file } = this.current;
    const rows = [];
    let before = 0;
    file.lines.forEach((text, row) => {
      const number = file.missing ? file.numbers[row] : row + 1;
      if (this.excerpt.checked && !this.isNear(number)) return;
      if (number > before + 1) rows.push(element("div", { class: "skip quiet" }, "⋮"));
      rows.push(this.row(number, text));
      before = number;
    });
    this.box.replaceChildren(this.heads(), ...rows);
  }

  isNear(number) {
    for (let other = number - CONTEXT; other <= number + CONTEXT; other += 1) {
      if (this.current.lines.has(other)) return true;
    }
    return false;
  }

  heads() {
    const names = this.columns.map(({ title, about }) => element("span", { class: "number", title: about }, title));
    const calls = element("span", { class: "number", title: "time of all that the line calls" }, "callees");
    return element("div", { class: "row head" }, names, calls, element("span", { class: "bars" }, "by phase"),
      element("span", { class: "number" }, "line"), element("span", {}, "code"));
  }

  row(number, text) {
    const line = this.current.lines.get(number);
    return line?.total ? this.timedRow(line, text) : this.plainRow(line, number, text);
  }

  plainRow(line, number, text) {
    const calls = line?.through ? sumText(line.through) : "";
    return element("div", { class: "row", "data-number": String(number) }, this.columns.map(() => element("span")),
      element("span", { class: "number quiet" }, calls), element("span", { class: "bars" }),
      element("span", { class: "number quiet" }, String(number)), element("code", {}, text || " "));
  }

  timedRow(line, text) {
    const calls = element("span", { class: "number quiet" }, line.through ? sumText(line.through) : "");
    return element("div", { class: "row opens", "data-line": line.path, "data-number": String(line.number), click: event => this.clicked(event, line) },
      this.columns.map(column => this.phaseCell(line, column)), calls, element("div", { class: "bars" }, timeBar(line, this.most)),
      element("span", { class: "number" }, twist(false, line.name, () => this.toggle(line)),
        link("line", line.path, String(line.number))),
      element("code", {}, text));
  }

  phaseCell(line, column) {
    const time = phaseTime(line, column);
    const main = column.phases.reduce((most, phase) => (line.phases[phase] > line.phases[most] ? phase : most));
    return element("span", { class: "number heat", style: this.heat(time, PHASES[main]), title: phaseTitle(line, column) },
      time ? sumText(time) : "");
  }

  heat(time, phase) {
    const strength = Math.round(HEAT * Math.sqrt(time / this.most));
    return time ? `background:color-mix(in oklab, var(--${phase}) ${strength}%, transparent)` : "";
  }

  clicked(event, line) {
    if (!event.target.closest("a, button")) this.toggle(line);
  }

  toggle(line) {
    const row = this.rowOf(line.number);
    const isOpen = row.nextSibling?.classList?.contains("detail");
    if (isOpen) row.nextSibling.remove();
    else row.after(element("div", { class: "detail" }, launchesDetail(line)));
    turnTwist(row.querySelector(".twist"), !isOpen, line.name);
  }

  rowOf(number) {
    return this.box.querySelector(`:scope > [data-number="${number}"]`);
  }

  // Show a file, and return the row of a line of it; a line that was left out brings all back.
  goTo(file, number) {
    const at = this.files.findIndex(each => each.file === file);
    if (this.files[at] !== this.current) this.show(at);
    if (number === null) return this.box;
    if (!this.rowOf(number)) {
      this.excerpt.checked = false;
      this.draw();
    }
    return this.rowOf(number) ?? this.box;
  }

  // Show a line with the launches that it is fused into, and return its row.
  reveal(line) {
    const row = this.goTo(line.file, line.number);
    if (line.launches && !row.nextSibling?.classList?.contains("detail")) this.toggle(line);
    return row;
  }
}

function linesOf(file) {
  return new Map(lines.filter(line => line.file === file).map(line => [line.number, line]));
}

function byImportance(a, b) {
  const time = ({ lines: there }) => [...there.values()].reduce((total, line) => total + line.total, 0);
  return (b.file.own - a.file.own) || time(b) - time(a);
}
