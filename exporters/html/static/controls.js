// What narrows the page: the rank, the step, the mean or the sum, and the chart of steps.

const CHOOSERS = ["rank", "step"].map(name => document.getElementById(name)).filter(Boolean);
const UNIT = document.getElementById("unit");

function chosenNumber(name) {
  const value = document.getElementById(name)?.value;
  return value ? Number(value) : null;
}

function choose(refresh) {
  const [rank, step] = [chosenNumber("rank"), chosenNumber("step")];
  const at = Math.max(0, report.slices.findIndex(each => each.rank === rank && each.step === step));
  isMean = UNIT?.value !== "sum";
  sumUp(report.slices[at]);
  for (const part of document.querySelectorAll("[data-slice]")) part.hidden = part.dataset.slice !== String(at);
  for (const part of document.querySelectorAll(".rank")) {
    part.hidden = rank !== null && part.dataset.rank !== String(rank);
    if (rank !== null && part.localName === "details") part.open = true;
  }
  StepChart.all.forEach(chart => chart.mark(step));
  for (const button of document.querySelectorAll(".step button")) button.setAttribute("aria-pressed", String(button.value === String(step)));
  refresh();
}

function watchChoosers(refresh) {
  for (const chooser of [...CHOOSERS, UNIT].filter(Boolean)) {
    chooser.addEventListener("change", () => {
      choose(refresh);
      keepInAddress(chooser.id, chooser.value);
    });
  }
}

// Set a chooser, where it has the value; the caller narrows the page then.
function setChooser(name, value) {
  const chooser = document.getElementById(name);
  if (![...(chooser?.options ?? [])].some(option => option.value === value)) return false;
  chooser.value = value;
  return true;
}

// The chart of a rank's steps: under the pointer it tells a column, a click chooses that step.
class StepChart {
  constructor(box, columns) {
    Object.assign(this, { columns, about: box.querySelector(".about"), drawing: box.querySelector("svg"), at: 0 });
    const last = String(columns.length - 1);
    for (const [name, value] of Object.entries({ tabindex: "0", role: "slider", "aria-valuemin": "0", "aria-valuemax": last })) {
      this.drawing.setAttribute(name, value);
    }
    this.drawing.setAttribute("aria-label", "steps; arrow keys read them, Enter shows one alone");
    this.drawing.addEventListener("pointermove", event => this.tell(this.columnAt(event)));
    this.drawing.addEventListener("click", event => this.pick(this.columnAt(event)));
    this.drawing.addEventListener("keydown", event => this.key(event));
    this.drawing.setAttribute("aria-valuenow", "0");
    this.about.textContent = "point at a step to read it; click it, or press Enter, to see it alone";
  }

  // Frame the column of the chosen step.
  mark(step) {
    const at = this.columns.findIndex(([first, last]) => step !== null && first <= step && step <= last);
    this.drawing.querySelector(".chosen").setAttribute("d", at < 0 ? "" : `M${at} 0h1v1000h-1z`);
  }

  columnAt(event) {
    const { left, width } = this.drawing.getBoundingClientRect();
    return Math.min(this.columns.length - 1, Math.max(0, Math.floor((this.columns.length * (event.clientX - left)) / width)));
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) this.tell(Math.min(this.columns.length - 1, Math.max(0, this.at + by)));
    if (event.key === "Enter") this.pick(this.at);
    if (by) event.preventDefault();
  }

  tell(at) {
    const [first, last, wall, , , busy, ...phases] = this.columns[at];
    const spent = phases.map((time, phase) => (time ? `${phaseName(phase)} ${timeText(time)}` : "")).filter(Boolean);
    const name = first === last ? `step ${first}` : `steps ${first} to ${last}, on average`;
    this.at = at;
    this.drawing.setAttribute("aria-valuenow", String(at));
    this.drawing.setAttribute("aria-valuetext", `${name}: ${timeText(wall)}`);
    this.about.textContent = `${name}: ${timeText(wall)}, device busy ${percentText(busy, wall)}; ${spent.join(", ")}`;
  }

  pick(at) {
    const [first, last] = this.columns[at];
    const there = [...(document.getElementById("step")?.options ?? [])].map(option => Number(option.value || NaN));
    const number = there.find(each => each >= first && each <= last);
    if (number === undefined) this.about.textContent += " (not among the steps that can be chosen)";
    else pickStep(String(number));
  }
}

StepChart.all = [];

function pickStep(number) {
  if (setChooser("step", number)) document.getElementById("step").dispatchEvent(new Event("change"));
}

// The line above a step's bar shows that step alone, and again all.
function watchStepBars() {
  const there = [...(document.getElementById("step")?.options ?? [])].map(option => option.value);
  for (const line of document.querySelectorAll(".step")) {
    const value = line.dataset.step;
    const pick = event => pickStep(event.target.getAttribute("aria-pressed") === "true" ? "" : value);
    if (there.includes(value)) line.replaceChildren(element("button", { type: "button", value, "aria-pressed": "false", click: pick }, line.textContent));
  }
}

function watchCharts() {
  watchStepBars();
  const columns = new Map(report.steps.map(([rank, each]) => [String(rank), each]));
  StepChart.all = [...document.querySelectorAll(".chart")].map(box => new StepChart(box, columns.get(box.dataset.rank)));
}
