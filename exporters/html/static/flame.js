// The icicles of module, then line, then kernel: one of each phase that runs the model.

const DRAWN = ["forward", "backward", "recompute", "gradient_accumulation"];
const FILLS = { module: 0.45, line: 0.32, kernel: 0.2 }; // words stay legible on them, in the dark too

function flameTree(phase) {
  const root = { name: phaseName(phase), kind: "module", path: "", value: 0, below: new Map() };
  for (const site of sites) {
    for (const { place, time } of site.parts) {
      if (place.phase === phase) growFrames(root, site, place, time);
    }
  }
  return root;
}

function growFrames(root, site, place, time) {
  addAlong(root, frames(site, place), time);
}

// Add a value to a tree, along a path of frames from the root.
function addAlong(root, along, time) {
  root.value += time;
  let node = root;
  for (const step of along) {
    const key = `${step.kind} ${step.name}`;
    if (!node.below.has(key)) {
      node.below.set(key, { ...step, value: 0, below: new Map(), path: `${node.path}\n${key}` });
    }
    node = node.below.get(key);
    node.value += time;
  }
}

function lineLabel(line) {
  return `${line.name.split("/").at(-1)}  ${line.code}`;
}

function frames(site, place) {
  const names = place.module ? shownNames(place.module) : ["(no module)"];
  const line = place.line ? lineLabel(place.line) : place.gap ? `(${place.gap})` : "(no line)";
  return [
    ...names.map(name => ({ name, kind: "module" })),
    { name: line, kind: "line", target: place.line?.path },
    { name: site.kernel.short, kind: "kernel", target: kernelId(site.kernel), phase: PHASES[place.phase] },
  ];
}

// An icicle: `frames` says what its frames are.
class Icicle {
  constructor(name, frames, host) {
    Object.assign(this, { name, host });
    this.title = element("h3");
    this.box = element("div", { class: "flame", tabindex: "0", role: "application", "aria-roledescription": "flame graph",
      "aria-label": `${this.name} by ${frames}; arrow keys go from frame to frame, Enter zooms, Escape goes back`,
      keydown: event => this.key(event) });
    this.about = element("p", { class: "quiet about", role: "status" }, "click a frame to zoom; click the top to go back");
    host.append(this.title, this.box, this.about);
  }

  key(event) {
    const root = d3.select(this.box).datum();
    const acts = {
      ArrowDown: () => this.drawn().find(node => node.parent === this.current), ArrowUp: () => this.current.parent,
      ArrowRight: () => this.beside(1), ArrowLeft: () => this.beside(-1), Enter: () => this.current,
      Escape: () => root, Home: () => root,
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.current ??= root;
    this.current = acts[event.key]() ?? this.current;
    if (["Enter", "Escape"].includes(event.key)) this.chart.zoomTo(this.current);
    this.tell(this.current);
  }

  // The frames that are wide enough to be drawn, from left to right.
  drawn() {
    return [...this.box.querySelectorAll("g")].map(frame => d3.select(frame).datum()).sort((a, b) => a.x0 - b.x0);
  }

  beside(by) {
    const row = this.drawn().filter(node => node.depth === this.current.depth);
    return row[row.indexOf(this.current) + by];
  }

  tell(node) {
    this.current = node;
    const { kind, target, name } = node.data;
    this.about.replaceChildren(`${kind} `, target ? link(kind, target, name) : name, ` · ${this.text(node).split(" · ").at(-1)}`);
    d3.select(this.box).selectAll("g").classed("current", each => each === node);
  }

  draw() {
    this.data = this.tree();
    this.title.textContent = this.heading();
    this.box.replaceChildren();
    this.current = null;
    this.chart = flamegraph.default()
      .width(this.width()).cellHeight(20).inverted(true).transitionDuration(0)
      .minFrameSize(1).sort(inOrder).getChildren(node => [...node.below.values()])
      .label(node => this.text(node)).onClick(node => this.clicked(node))
      .setSearchMatch((node, term) => node.data.name.toLowerCase().includes(term.toLowerCase()))
      .setSearchHandler(() => {}).setColorMapper(node => this.fill(node));
    d3.select(this.box).datum(this.data).call(this.chart);
    const drawing = this.box.querySelector("svg");
    const size = [drawing.getAttribute("width"), drawing.getAttribute("height")];
    drawing.setAttribute("viewBox", `0 0 ${size.join(" ")}`); // paper is narrower than the screen
  }

  isStale() {
    return this.chart?.width() !== this.width();
  }

  width() {
    return Math.max(this.box.clientWidth, 200);
  }

  fill({ data, highlight }) {
    return highlight ? "var(--found)" : this.color(data);
  }

  text({ data }) {
    const part = percentText(data.value, this.data.value);
    return `${data.name} · ${this.amount(data.value)} (${part} of ${this.name})`;
  }

  clicked(node) {
    this.tell(node);
  }

  search(term) {
    if (term) this.chart?.search(term);
    else this.chart?.clear();
  }
}

// The icicle of a phase's time.
class Flame extends Icicle {
  constructor(phase, host) {
    super(phaseName(phase), "module, line and kernel", host);
    this.phase = phase;
  }

  tree() {
    return flameTree(this.phase);
  }

  heading() {
    return `${this.name}: ${sumText(this.data.value)}${slice.spans > 1 ? ` (${sumWords()})` : ""}`;
  }

  amount(time) {
    return sumText(time);
  }

  color(data) {
    return `color-mix(in oklab, var(--${data.phase ?? PHASES[this.phase]}) ${100 * FILLS[data.kind]}%, var(--card))`;
  }

  clicked(node) {
    super.clicked(node);
    if (!Flame.following) this.follow(node.data.path);
  }

  // The others zoom to the same module or line, where they have it.
  follow(path) {
    Flame.following = true;
    for (const other of Flame.all) {
      if (other !== this) other.zoomTo(path);
    }
    Flame.following = false;
  }

  zoomTo(path) {
    const root = d3.select(this.box).datum();
    const same = root.descendants().find(node => node.data.path === path);
    if (same) this.chart.zoomTo(same);
  }
}
Flame.all = [];
Flame.following = false;

function inOrder(a, b) {
  if (a.data.kind !== b.data.kind) return a.data.kind < b.data.kind ? 1 : -1;
  if (a.data.kind !== "module") return b.data.value - a.data.value;
  return a.data.name.localeCompare(b.data.name, "en", { numeric: true });
}

// What is not drawn: the optimizer and all that is in no phase.
function leftOut() {
  const rest = SPENT.filter(phase => !DRAWN.includes(PHASES[phase]));
  const times = rest.map(phase => [phase, kernels.reduce((time, each) => time + each.phases[phase], 0)]);
  const named = times.filter(([, time]) => time).map(([phase, time]) => `${phaseName(phase)} ${sumText(time)}`);
  return named.length ? `not in it: ${named.join(", ")}` : "";
}

function drawnPhases() {
  return DRAWN.map(name => PHASES.indexOf(name)).filter(phase => SPENT.includes(phase));
}

function makeFlames(host) {
  Flame.all = drawnPhases().map(phase => {
    const column = element("div", {});
    host.append(column);
    return new Flame(phase, column);
  });
  window.addEventListener("resize", () => Flame.all.filter(flame => flame.isStale()).forEach(flame => flame.draw()));
}

function drawFlames() {
  document.getElementById("left-out").textContent = leftOut();
  Flame.all.forEach(flame => flame.draw());
}
