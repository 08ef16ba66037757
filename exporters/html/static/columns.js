// The columns that tables of sums share: the name first, then time, parts, phases, launches.

const SPENT = PHASES.map((name, phase) => phase).filter(phase => kernels.some(each => each.phases[phase]));
const ROOFLINE_WHERE = report.roofline_rank === null ? "" : ` on rank ${report.roofline_rank}`;

const COULD_SAVE = {
  title: "max saving",
  kind: "number",
  about: `over all steps${ROOFLINE_WHERE}, by the roofline model`,
  value: row => row.roofline?.saves ?? 0,
  show: row => (row.roofline ? [row.roofline.saves ? savedText(row.roofline.saves) : "",
    element("div", { class: "quiet", title: row.roofline.work }, row.roofline.text)] : ""),
};

function savedText(time) {
  return timeText(isMean ? time / Math.max(report.roofline_steps, 1) : time);
}

const RATE = {
  title: "GB/s",
  kind: "number wide-only",
  about: `what it moves over its time${ROOFLINE_WHERE}, where that is known`,
  value: row => row.roofline?.rate ?? 0,
  show: row => row.roofline?.rate?.toLocaleString("en") ?? "",
};

const MEDIAN = {
  title: "median launch",
  kind: "number",
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

function sumColumns(rows) {
  return [
    timeColumn(sumWords, row => row.total),
    { title: "of device", kind: "number", about: "part of all device time", value: row => row.total,
      show: row => percentText(row.total, wholeTime) },
    { title: "of wall time", kind: "track", about: "the bar is as long as the wall time of the steps",
      value: row => row.total, show: row => wallBar(row) },
    ...SPENT.map(phase => timeColumn(shortPhase(phase),
      row => row.phases[phase], "number phase-time")),
    ...(hasBothScopes ? [timeColumn("of it eager", row => row.eager, "number wide-only")] : []),
    ...(rows.some(row => row.roofline?.text) ? [COULD_SAVE] : []),
    { title: launchesWords, kind: "number", value: row => row.launches, show: row => launchesText(row.launches) },
  ];
}

function launchesWords() {
  return isMean && slice.spans > 1 ? "launches a step" : "launches";
}

function launchesText(count) {
  const shown = isMean ? count / Math.max(slice.spans, 1) : count;
  return shown.toLocaleString("en", { maximumFractionDigits: 1 });
}

function nameColumn(title, value, show = row => middle(value(row))) {
  return { title, kind: "name", value, show };
}
