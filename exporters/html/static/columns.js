// The columns that tables of sums share: the name first, then time, its phases, rooflines, launches.

const SPENT = PHASES.map((name, phase) => phase).filter(phase => kernels.some(each => each.phases[phase]));
const ROOFLINE_WHERE = report.roofline_rank === null ? "" : ` on rank ${report.roofline_rank}`;

// What the columns of time by phase hold: the model's phases, and all others as one. They add up to the total.
const RECOMPUTE = PHASES.indexOf("recompute");
const MODEL_PHASES = ["forward", "backward", "recompute"].map(name => PHASES.indexOf(name));
const REST = SPENT.filter(phase => !MODEL_PHASES.includes(phase));
const PHASE_COLUMNS = [
  ...MODEL_PHASES.filter(phase => phase !== RECOMPUTE || SPENT.includes(phase)).map(phase => ({ title: phaseName(phase), phases: [phase] })),
  ...(REST.length ? [{ title: "rest", phases: REST, about: REST.map(phaseName).join(", ") }] : []),
];

function phaseTime(row, { phases }) {
  return phases.reduce((time, phase) => time + row.phases[phase], 0);
}

function phaseColumn(column) {
  const value = row => phaseTime(row, column);
  return { title: column.title, kind: "number phase-time", about: column.about, value,
    show: row => (value(row) ? element("span", { title: phaseTitle(row, column) }, sumText(value(row))) : "") };
}

// Of several phases the time of each.
function phaseTitle(row, { phases }) {
  return phases.length < 2 ? null : phases.filter(phase => row.phases[phase])
    .map(phase => `${phaseName(phase)} ${sumText(row.phases[phase])}`).join(", ");
}

const MAX_SAVING = {
  title: "max saving",
  kind: "number saving",
  about: `over all steps${ROOFLINE_WHERE}, by the roofline model`,
  value: row => row.roofline?.saves ?? 0,
  show: row => (row.roofline?.saves ? savedText(row.roofline.saves) : ""),
};

const ROOFLINE = {
  title: "roofline",
  kind: "number wide-only",
  about: `how near it is to the bound that holds it${ROOFLINE_WHERE}; "launch" and "latency" are too short for one`,
  value: row => Number.parseFloat(row.roofline?.text) || null,
  show: row => (row.roofline?.text ? element("span", { title: row.roofline.work }, row.roofline.text) : ""),
};

function savedText(time) {
  return timeText(isMean ? time / Math.max(report.roofline_steps, 1) : time);
}

const RATE = {
  title: "GB/s",
  kind: "number widest-only",
  about: `what it moves over its time${ROOFLINE_WHERE}, where that is known`,
  value: row => row.roofline?.rate ?? 0,
  show: row => row.roofline?.rate?.toLocaleString("en") ?? "",
};

const MEDIAN = {
  title: "median launch",
  kind: "number wide-only",
  about: "of all steps, with the least and the largest",
  value: row => row.stats?.median ?? 0,
  show: row => (row.stats ? element("span", { title: spreadText(row.stats) }, timeText(row.stats.median)) : ""),
};

function spreadText({ least, median, most }) {
  return `least ${timeText(least)}, median ${timeText(median)}, largest ${timeText(most)}`;
}

function timeColumn(title, valueOf, kind = "number", about = null) {
  return { title, kind, about, value: valueOf, show: row => (valueOf(row) ? sumText(valueOf(row)) : "") };
}

// `most` is the time that fills a bar: that of the largest row.
function sumColumns(rows, most) {
  return [
    timeColumn(timeTitle, row => row.total),
    { title: "% device", kind: "number percent", about: "part of all device time", value: row => row.total,
      show: row => percentText(row.total, wholeTime) },
    { title: "by phase", kind: "track", about: "as long as its time, next to the largest row's",
      value: null, show: row => timeBar(row, most()) },
    ...PHASE_COLUMNS.map(phaseColumn),
    ...(hasBothScopes ? [timeColumn("eager", row => row.eager, "number widest-only", "the part that ran outside of compiled graphs")] : []),
    ...(rows.some(row => row.roofline?.text) ? [ROOFLINE] : []),
    ...(rows.some(row => row.roofline?.saves) ? [MAX_SAVING] : []),
    { title: launchesWords, kind: "number wide-only", value: row => row.launches, show: row => launchesText(row.launches) },
  ];
}

// What the colours and lengths of the bars are, for the top of a table.
function barLegend(largest) {
  const keys = SPENT.map(phase => element("span", {}, element("span", { class: `key ${PHASES[phase]}` }), phaseName(phase)));
  return element("p", { class: "legend quiet" }, keys, element("span", { class: "bar-meaning" }, `a full bar is ${largest}`));
}

function launchesWords() {
  return isMean && slice.spans > 1 ? "launches/step" : "launches";
}

function launchesText(count) {
  const shown = isMean ? count / Math.max(slice.spans, 1) : count;
  return shown.toLocaleString("en", { maximumFractionDigits: 1 });
}

function nameColumn(title, value, show = row => middle(value(row))) {
  return { title, kind: "name", value, show };
}
