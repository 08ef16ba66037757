// What is said of a kernel's single launches: how they spread, by call site, the slowest.

// Spread and slowest launches are those of all steps, whatever the page is narrowed to.
function launchesOf(kernel, chosen) {
  if (!kernel.stats) return [];
  const slowest = report.launch_stats.slowest.filter(([number]) => number === kernel.at);
  const shapes = new Set([...chosen.map(site => site.stats.shape), ...slowest.map(row => report.launch_stats.shapes[row.at(-1)])]);
  const alike = shapes.size === 1 ? [...shapes][0] : null;
  return [element("h3", {}, "launches of all steps"),
    element("p", {}, [spreadText(kernel.stats), alike].filter(Boolean).join(" · ")), histogram(kernel.stats),
    callSites(chosen, alike === null), slowestOf(kernel, slowest, alike === null)];
}

// How many launches took how long; each bar's times are in one ratio to the next one's.
function histogram({ least, most, counts }) {
  if (counts.length < 2) return null;
  const highest = Math.max(...counts);
  const edge = at => timeText(least * (most / Math.max(least, 1)) ** (at / counts.length));
  const bars = counts.map((count, at) => element("span", { style: `height:${(100 * count) / highest}%`,
    title: `${edge(at)} to ${edge(at + 1)}: ${count.toLocaleString("en")}` }));
  return element("div", { class: "histogram", role: "img", "aria-label": `launches by time, from ${edge(0)} to ${edge(counts.length)}` },
    element("div", { class: "columns" }, bars),
    element("p", { class: "ends quiet" }, element("span", {}, timeText(least)), element("span", {}, timeText(most))));
}

function callSites(chosen, withShape) {
  const rows = [...chosen].sort((a, b) => b.total - a.total);
  const heads = [["call site", "name"], [timeTitle(), "number"], [launchesWords(), "number"], ["least", "number"],
    ["median", "number"], ["largest", "number"], ...(withShape ? [["the largest launched as", "shape"]] : [])];
  const table = some => simpleTable(heads, some.map(site => callSiteRow(site, withShape)));
  const more = rows.slice(SHOWN_PARTS, SHOWN_PARTS + SHOWN_FUSED);
  return element("div", {}, element("h3", {}, "by call site"), table(rows.slice(0, SHOWN_PARTS)),
    more.length ? element("details", {}, element("summary", {}, `${rows.length - SHOWN_PARTS} more`), table(more)) : null);
}

function callSiteRow(site, withShape) {
  const { least, median, most, shape } = site.stats;
  return element("tr", {}, element("td", { class: "name" }, ...siteName(site)), timeCell(site.total),
    element("td", { class: "number" }, launchesText(site.launches)),
    ...[least, median, most].map(time => element("td", { class: "number" }, timeText(time))),
    withShape ? element("td", { class: "shape quiet" }, shape) : null);
}

// Where it was launched, and for which line and module most of its time is.
function siteName(site) {
  const { place } = site.parts.reduce((largest, part) => (part.time > largest.time ? part : largest));
  const module = place.module ? ` · ${place.module.name}` : "";
  return [lineLink(place.line), element("div", { class: "quiet cut", title: place.module?.name }, `${sitesText([site])}${module}`)];
}

function slowestOf(kernel, rows, withShape) {
  if (rows.length < 2) return null;
  const heads = [["launch", "name"], ["time", "number"], ["of the median", "number"], ["GB/s", "number"],
    ...(withShape ? [["launched as", "shape"]] : [])];
  return element("div", {}, element("h3", {}, "the slowest"),
    simpleTable(heads, rows.map(row => slowRow(kernel, row, withShape))));
}

function slowRow(kernel, [, rank, step, into, time, site, rate, shape], withShape) {
  const where = `${report.roofline_rank === null ? "" : `rank ${rank}, `}step ${step}, ${timeText(into)} into it`;
  return element("tr", {}, element("td", { class: "name" }, where, element("div", { class: "quiet" }, sitesText([everySite[site]]))),
    element("td", { class: "number" }, timeText(time)),
    element("td", { class: "number" }, `${(time / Math.max(kernel.stats.median, 1)).toFixed(2)}×`),
    element("td", { class: "number" }, rate?.toLocaleString("en") ?? ""),
    withShape ? element("td", { class: "shape quiet" }, report.launch_stats.shapes[shape]) : null);
}
