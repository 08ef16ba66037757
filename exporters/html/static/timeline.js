// The timeline of a step: what each stream ran, by line and by phase, and why the device was idle.

const MOST_GUTTER = 200; // pixels before the time, for the names of lanes
const AXIS = 20;
const LANE = 24;
const THIN = 12; // of the lane of phases
const LINE_COLORS = 8;
const CAUSE_COLORS = 5;

// The place of most time of each site: what a span of it is drawn as.
function mainPlaces() {
  const { sites: numbers } = report.slices[0];
  const largest = ({ parts }) => parts.reduce((most, part) => (part.time > most.time ? part : most)).place;
  return new Map(running(report.slices[0]).map((site, at) => [numbers[at], site.parts.length ? largest(site) : null]));
}

// Rows whose start is the time since the last row's.
function sinceStart(rows) {
  let at = 0;
  return rows.map(([lane, since, ...rest]) => [lane, at += since, ...rest]);
}

function spanOf(kind, lane, start, length, busy, count) {
  return { kind, lane, start, end: start + length, busy, count };
}

// A step's lanes from the top: the phases, the streams, why the device was idle.
class StepSpans {
  constructor(step, mains) {
    Object.assign(this, step);
    const kernelSpans = sinceStart(step.spans).map(([lane, start, length, busy, site, count]) => ({ ...spanOf("kernel", lane + 1, start, length, busy, count),
      site: everySite[site], place: mains.get(site) ?? null, line: mains.get(site)?.line ?? null }));
    const first = step.lanes.length + 1;
    const idleSpans = sinceStart(step.idle).map(([lane, start, length, busy, cause, line]) => ({ ...spanOf("idle", first + lane, start, length, busy, 1),
      cause: step.causes[cause], line: lines[line] ?? null }));
    this.names = ["phase", ...step.lanes, ...step.devices];
    this.byLane = this.names.map(() => []);
    for (const span of [...kernelSpans, ...idleSpans]) this.byLane[span.lane].push(span);
    this.gutter = Math.min(MOST_GUTTER, 14 + LETTER * Math.max(...this.names.map(name => name.length)));
    this.colors = topOf(kernelSpans, span => span.line, LINE_COLORS);
    this.causes = topOf(idleSpans, span => span.cause, CAUSE_COLORS);
    this.every = kernelSpans;
  }

  // The lane's span at a time, else null.
  at(lane, time) {
    const found = this.byLane[lane]?.[lastBefore(this.byLane[lane], time)];
    return found && time < found.end ? found : null;
  }
}

// The keys of most time, largest first, each with its time and the number of its colour.
function topOf(spans, keyOf, most) {
  const times = new Map();
  for (const span of spans) times.set(keyOf(span), (times.get(keyOf(span)) ?? 0) + span.busy);
  const named = [...times].filter(([key]) => key !== null).sort((a, b) => b[1] - a[1]).slice(0, most);
  return new Map(named.map(([key, time], at) => [key, { time, at }]));
}

function lastBefore(spans, time) {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].start <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

class Timeline {
  constructor(host) {
    this.mains = mainPlaces();
    this.chooser = element("select", { change: () => this.show(Number(this.chooser.value)) },
      report.timelines.map((step, at) => element("option", { value: String(at) }, timelineName(step))));
    this.legend = element("div", {});
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline",
      "aria-label": "kernels by line, phases and idle time of the step; arrow keys go from span to span, Enter goes to the line" });
    this.about = element("p", { class: "about", role: "status" });
    this.note = element("p", { class: "quiet" });
    host.append(this.tools(), this.legend, this.canvas, this.about, this.note);
    this.drawing = new TimelineDrawing(this);
    this.watch();
    this.show(0);
  }

  draw() {
    this.drawing.draw();
  }

  tools() {
    const button = (text, act) => element("button", { type: "button", click: act }, text);
    return element("p", { class: "tools" }, element("label", {}, "step ", this.chooser), button("zoom in", () => this.zoom(2)),
      button("zoom out", () => this.zoom(0.5)), button("whole step", () => this.look(0, this.step.wall)));
  }

  watch() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", event => this.moved(event));
    canvas.addEventListener("pointerdown", event => { this.dragged = { x: event.clientX, from: this.from, far: false }; });
    canvas.addEventListener("pointerup", event => this.released(event));
    canvas.addEventListener("pointerleave", () => { this.dragged = null; });
    canvas.addEventListener("wheel", event => this.wheeled(event), { passive: false });
    canvas.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(at) {
    this.chooser.value = String(at);
    this.step = new StepSpans(report.timelines[at], this.mains);
    Object.assign(this, { marked: null, chosen: null, dragged: null });
    this.note.textContent = this.noteText();
    this.about.textContent = "Click a kernel to go to its line. Ctrl+wheel, + and − zoom; drag to move; arrow keys go from kernel to kernel.";
    this.look(0, this.step.wall);
    this.writeLegend();
  }

  // The page is narrowed to a step: show that, if it is here.
  refresh() {
    const at = report.timelines.findIndex(({ rank, step }) => step === slice.step && (slice.rank ?? rank) === rank);
    if (at >= 0 && at !== Number(this.chooser.value)) this.show(at);
  }

  noteText() {
    const { launches, every, moment, rank, of } = this.step;
    const here = report.timelines.filter(step => step.rank === rank).length;
    const some = here < of ? ` Of ${of.toLocaleString("en")} steps the slowest, the median and the fastest are here.` : "";
    if (!moment) return `Every launch of the step (${launches.toLocaleString("en")}) is drawn.${some}`;
    return `${launches.toLocaleString("en")} launches as ${countText(every.length, "span")}: launches shorter than ${timeText(moment)} that begin `
      + `within the same such moment are merged, and drawn as the longest of them.${some}`;
  }

  // The keys of lines are buttons: they show a line's kernels alone.
  writeLegend() {
    const { colors, causes } = this.step;
    const byLine = [...colors].map(([line, { at }]) => element("button", { type: "button", class: "mark", "data-key": `mark ${line.at}`,
      "aria-pressed": String(this.marked === line), title: line.code, click: () => this.mark(this.marked === line ? null : line) },
    element("span", { class: `key line-${at}` }), shortLine(line)));
    const byCause = [...causes].map(([cause, { at, time }]) => element("span", {}, element("span", { class: `key cause-${at}` }), `${cause} ${timeText(time)}`));
    const byPhase = [...new Set(this.step.every.map(span => span.place?.phase))].filter(phase => phase !== undefined).sort()
      .map(phase => element("span", {}, element("span", { class: `key ${PHASES[phase]}` }), phaseName(phase)));
    const group = (title, keys) => (keys.length ? [element("p", { class: "legend" }, element("span", { class: "group quiet" }, title), ...keys)] : []);
    const others = element("span", {}, element("span", { class: "key line-others" }), "other lines");
    keepingFocus(this.legend, () => this.legend.replaceChildren(...group("kernels by line:", [...byLine, others]),
      ...group("phase:", byPhase), ...group("idle by cause:", byCause)));
  }

  // Dim all but the kernels of a line, or of a kernel's name.
  mark(row) {
    this.marked = row;
    this.writeLegend();
    this.draw();
  }

  isMarked(span) {
    return !this.marked || span.line === this.marked || span.site?.kernel === this.marked
      || (span.site?.places.some(place => place.line === this.marked) ?? false);
  }

  // Show a part of the step: at least a thousandth of it, or a microsecond.
  look(from, to) {
    const { wall } = this.step;
    const length = Math.min(wall, Math.max(to - from, Math.min(wall, 1_000), wall / 20_000));
    this.from = Math.max(0, Math.min(from, wall - length));
    this.to = this.from + length;
    this.draw();
  }

  zoom(by, about = this.chosen ? (this.chosen.start + this.chosen.end) / 2 : (this.from + this.to) / 2) {
    const inside = Math.min(this.to, Math.max(this.from, about));
    this.look(inside - (inside - this.from) / by, inside + (this.to - inside) / by);
  }

  width() {
    return Math.max(this.canvas.clientWidth, MOST_GUTTER + 100);
  }

  xOf(time) {
    return this.step.gutter + ((time - this.from) * (this.width() - this.step.gutter)) / (this.to - this.from);
  }

  timeAt(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    return this.from + ((x - this.step.gutter) * (this.to - this.from)) / (this.width() - this.step.gutter);
  }

  under(event) {
    const y = event.clientY - this.canvas.getBoundingClientRect().top - AXIS;
    const lane = y < THIN ? 0 : Math.floor((y - THIN) / LANE) + 1;
    if (lane > 0) return this.step.at(lane, this.timeAt(event));
    return this.step.lanes.map((name, at) => this.step.at(at + 1, this.timeAt(event))).find(Boolean) ?? null;
  }

  moved(event) {
    if (event.buttons && this.dragged) {
      const by = event.clientX - this.dragged.x;
      this.dragged.far ||= Math.abs(by) > 3;
      const from = this.dragged.from - (by * (this.to - this.from)) / (this.width() - this.step.gutter);
      if (this.dragged.far) this.look(from, from + this.to - this.from);
      return;
    }
    const span = this.under(event);
    this.canvas.style.cursor = span?.line ? "pointer" : "default";
    if (span && span !== this.chosen) this.choose(span);
  }

  released(event) {
    const isClick = this.dragged && !this.dragged.far;
    this.dragged = null;
    if (isClick) this.go(this.under(event));
  }

  wheeled(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1.25 : 0.8, this.timeAt(event));
  }

  key(event) {
    const acts = {
      ArrowRight: () => this.walk(1), ArrowLeft: () => this.walk(-1), ArrowDown: () => this.cross(1), ArrowUp: () => this.cross(-1),
      "+": () => this.zoom(2), "=": () => this.zoom(2), "-": () => this.zoom(0.5), Home: () => this.look(0, this.step.wall),
      Enter: () => this.go(this.chosen),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  // To the next span of the lane, or to the one of another lane at the same time.
  walk(by) {
    const lane = this.step.byLane[this.chosen?.lane ?? 1] ?? [];
    const at = this.chosen ? lane.indexOf(this.chosen) + by : lastBefore(lane, this.from) + 1;
    this.bring(lane[Math.min(lane.length - 1, Math.max(0, at))]);
  }

  cross(by) {
    const time = this.chosen?.start ?? this.from;
    for (let lane = (this.chosen?.lane ?? 1) + by; this.step.byLane[lane]; lane += by) {
      const spans = this.step.byLane[lane];
      if (spans.length) return this.bring(spans[Math.max(0, lastBefore(spans, time))]);
    }
    return null;
  }

  bring(span) {
    if (!span) return;
    const half = (this.to - this.from) / 2;
    if (span.start < this.from || span.end > this.to) this.look(span.start - half, span.start + half);
    this.choose(span);
  }

  choose(span) {
    this.chosen = span;
    this.about.replaceChildren(...(span.kind === "idle" ? this.idleWords(span) : this.kernelWords(span)));
    this.draw();
  }

  idleWords(span) {
    return [`device idle ${timeText(span.busy)}: ${span.cause}`, ...(span.line ? [" at ", link("line", span.line.path, span.line.name), ` ${span.line.code}`] : []),
      ` · ${timeText(span.start)} into the step`];
  }

  kernelWords(span) {
    const { kernel } = span.site;
    const others = new Set(span.site.places.map(place => place.line).filter(line => line && line !== span.line)).size;
    const where = span.line ? [" · ", link("line", span.line.path, span.line.name), others ? ` and ${countText(others, "more line")}` : "", ` ${span.line.code}`] : [];
    const merged = span.count > 1 ? `${span.count.toLocaleString("en")} merged launches, the longest: ` : "";
    const module = span.place?.module ? ` · ${span.place.module.name}` : "";
    return [merged, kernelLink(kernel, kernel.short), ` ${timeText(span.busy)}`, span.place ? ` · ${phaseName(span.place.phase)}` : "", ...where, module,
      ` · ${timeText(span.start)} into the step`];
  }

  // A click leads to the line, so that Back leads here again; a kernel without a line to itself.
  go(span) {
    if (!span) return;
    if (span.line) location.hash = hashOf("line", span.line.path);
    else if (span.site) location.hash = hashOf("kernel", kernelId(span.site.kernel));
  }
}

function timelineName({ rank, step, wall }) {
  const of = report.roofline_rank === null ? "" : `rank ${rank}, `;
  return `${of}${step} (${timeText(wall)})`;
}

function shortLine(line) {
  return line.name.split("/").at(-1);
}
