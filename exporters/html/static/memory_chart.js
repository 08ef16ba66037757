// The chart of a step's memory: areas stacked by kind over the time of the CPU, the peak marked, the phases below.

const DRAWING = "http://www.w3.org/2000/svg";

function drawn(tag, properties, ...children) {
  const made = document.createElementNS(DRAWING, tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

class MemoryChart {
  constructor(view) {
    Object.assign(this, { view, at: 0 });
    this.drawing = drawn("svg", { tabindex: "0", role: "slider", "aria-label": "memory over the step; arrow keys read it, p goes to the peak", "aria-valuemin": "0" });
    this.about = element("p", { class: "about", role: "status" });
    this.note = element("p", { class: "quiet" });
    this.root = element("div", { class: "memory-chart" }, this.drawing, this.about, this.note);
    this.drawing.addEventListener("pointermove", event => this.point(event));
    this.drawing.addEventListener("keydown", event => this.key(event));
  }

  width() {
    return Math.max(this.root.clientWidth, BOX.left + 200);
  }

  x(time) {
    return BOX.left + ((this.width() - BOX.left - BOX.right) * time) / Math.max(this.view.step.wall, 1);
  }

  y(bytes) {
    return BOX.top + BOX.plot * (1 - bytes / this.most);
  }

  draw() {
    const { step } = this.view;
    const [width, height] = [this.width(), BOX.top + BOX.plot + BOX.band + BOX.axis];
    this.most = 1.04 * Math.max(step.peak, 1);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.setAttribute("aria-valuemax", String(step.times.length - 1));
    this.drawing.style.height = `${height}px`;
    this.cursor = drawn("path", { class: "cursor" });
    this.drawing.replaceChildren(...this.rules(), ...this.areas(), ...this.band(), ...this.axis(), ...this.peak(), this.cursor);
    this.note.textContent = this.noteText();
    this.tell(this.at);
  }

  noteText() {
    const { times, moments, device } = this.view.step;
    const whose = device === "CPU" ? "" : "The time is the CPU's, which allocates before the device runs. ";
    const all = times.length === moments ? "Every allocation and free is drawn." : `${moments.toLocaleString("en")} moments as ${times.length}: of those close together the highest.`;
    return whose + all;
  }

  rules() {
    const every = roundSize(this.most / 4);
    const values = Array.from({ length: Math.floor(this.most / every) + 1 }, (_, at) => at * every);
    return values.flatMap(value => [drawn("path", { class: "rule", d: `M${BOX.left} ${this.y(value)}H${this.width() - BOX.right}` }),
      drawn("text", { x: BOX.left - 6, y: this.y(value) + 4, "text-anchor": "end" }, sizeText(value))]);
  }

  // Parameters and what else stays are at the bottom, a floor under what comes and goes.
  areas() {
    const { step, marked } = this.view;
    let below = step.times.map(() => 0);
    return step.kinds.map((kind, number) => {
      const top = below.map((bytes, at) => bytes + step.bytes[number][at]);
      const area = drawn("path", { d: this.area(below, top), opacity: !marked || marked === kind ? 1 : 0.15 }, drawn("title", {}, kind.label));
      area.style.fill = `var(--${kind.color})`;
      below = top;
      return area;
    });
  }

  // Bytes stay as they are from each moment to the next.
  area(below, top) {
    const ends = [...this.view.step.times.slice(1), this.view.step.wall];
    const forth = top.map((bytes, at) => `V${this.y(bytes).toFixed(1)}H${this.x(ends[at]).toFixed(1)}`);
    const back = below.map((bytes, at) => `V${this.y(bytes).toFixed(1)}H${this.x(this.view.step.times[at]).toFixed(1)}`).reverse();
    return `M${this.x(this.view.step.times[0]).toFixed(1)} ${this.y(below[0]).toFixed(1)}${forth.join("")}${back.join("")}z`;
  }

  band() {
    const { phases, wall } = this.view.step;
    return phases.map(([begin, phase], at) => {
      const end = phases[at + 1]?.[0] ?? wall;
      return drawn("rect", { class: PHASES[phase], x: this.x(begin), y: BOX.top + BOX.plot + 3, width: Math.max(this.x(end) - this.x(begin), 0.5), height: BOX.band - 4 },
        drawn("title", {}, phaseName(phase)));
    });
  }

  axis() {
    const { wall } = this.view.step;
    const every = roundStep(wall / Math.max((this.width() - BOX.left) / 110, 1));
    const times = Array.from({ length: Math.floor(wall / every) + 1 }, (_, at) => at * every);
    const bottom = BOX.top + BOX.plot + BOX.band + 13;
    return times.filter(time => this.x(time) < this.width() - 40).map(time => drawn("text", { x: this.x(time), y: bottom }, timeText(time)));
  }

  peak() {
    const { peak, at } = this.view.step;
    const isRight = this.x(at) > this.width() / 2;
    return [drawn("path", { class: "peak", d: `M${this.x(at)} ${BOX.top - 4}V${BOX.top + BOX.plot}` }),
      drawn("text", { class: "peak", x: this.x(at) + (isRight ? -5 : 5), y: BOX.top - 6, "text-anchor": isRight ? "end" : "start" }, `peak ${sizeText(peak)}`)];
  }

  point(event) {
    const { left, width } = this.drawing.getBoundingClientRect();
    const time = ((((event.clientX - left) * this.width()) / width - BOX.left) * this.view.step.wall) / (this.width() - BOX.left - BOX.right);
    this.tell(this.view.step.momentAt(time));
  }

  key(event) {
    const last = this.view.step.times.length - 1;
    const to = { ArrowRight: this.at + 1, ArrowUp: this.at + 1, ArrowLeft: this.at - 1, ArrowDown: this.at - 1, PageUp: this.at + 20, PageDown: this.at - 20,
      Home: 0, End: last, p: this.view.step.peakAt }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.tell(Math.min(last, Math.max(0, to)));
  }

  tell(at) {
    const { step } = this.view;
    this.at = at;
    const parts = step.kinds.map((kind, number) => [kind.label, step.bytes[number][at]]).filter(([, bytes]) => bytes).sort((a, b) => b[1] - a[1]);
    const phase = step.phases.findLast(([begin]) => begin <= step.times[at]);
    const where = [`${timeText(step.times[at])} into the step`, phase ? phaseName(phase[1]) : null, at === step.peakAt ? "the peak" : null].filter(Boolean).join(", ");
    const words = `${where}: ${sizeText(step.totals[at])} allocated: ${parts.map(([label, bytes]) => `${label} ${sizeText(bytes)}`).join(", ")}`;
    this.about.textContent = words;
    this.drawing.setAttribute("aria-valuenow", String(at));
    this.drawing.setAttribute("aria-valuetext", words);
    this.cursor.setAttribute("d", `M${this.x(step.times[at])} ${BOX.top}V${BOX.top + BOX.plot}`);
  }
}

// The next of 1, 2, 5, 10, ... of the unit that sizes are shown in.
function roundSize(least) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(least, 1)) / 10));
  return unit * [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024].find(each => each * unit >= least);
}
