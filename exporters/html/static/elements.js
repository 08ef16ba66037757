// The elements that several parts of the page have: names, links, bars, what opens a row.

const TAIL = 12; // letters at the end of a name that stay where it is cut

// A bar of a sum's phases, filled by the wall time of the chosen steps; under it how they share it.
function wallBar(each) {
  const title = `${percentText(each.total, slice.wall)} of wall time`;
  const parts = each.phases.map((time, phase) => [PHASES[phase], time]);
  return element("div", { class: "bars", title }, phaseBar(parts, slice.wall, sumText),
    element("div", { class: "mix" }, phasePieces(parts, each.total, sumText)));
}

function phaseTag(phase) {
  return element("span", { class: "phase" }, element("span", { class: `key ${PHASES[phase]}` }), phaseName(phase));
}

// A name that gives way in its middle where there is no room: triton_poi_..._view_5.
function middle(name, title = name) {
  if (name.length <= 2 * TAIL) return element("span", { class: "whole", title }, name);
  return element("span", { class: "middle", title },
    element("span", { class: "start" }, name.slice(0, -TAIL)), element("span", {}, name.slice(-TAIL)));
}

function link(kind, name, shown = middle(name)) {
  return element("a", { href: hashOf(kind, name), title: name }, shown);
}

function kernelLink(kernel, shown = middle(kernel.short, kernel.name)) {
  return element("a", { href: hashOf("kernel", kernelId(kernel)), title: kernel.own }, shown);
}

// What leads to a kernel: its name, with the device's own where that is another.
function kernelId(kernel) {
  return kernel.own === kernel.name ? kernel.name : `${kernel.name} ${kernel.own}`;
}

function hashOf(kind, name) {
  return `#${new URLSearchParams({ [kind]: name })}`;
}

function lineLink(line) {
  return line ? link("line", line.path, middle(line.name)) : element("span", { class: "quiet" }, "no line");
}

function timeCell(time) {
  return element("td", { class: "number" }, time ? sumText(time) : "");
}

// What opens a row, for the keyboard too.
function twist(isOpen, what, act) {
  const label = `${isOpen ? "close" : "open"} ${what}`;
  return element("button", { type: "button", class: "twist", "aria-expanded": String(isOpen), "aria-label": label,
    click: event => { event.stopPropagation(); act(); } }, isOpen ? "▾" : "▸");
}
