"use strict";
// Owns how elements are made. Names become text nodes and attribute values, never markup.

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter(child => child !== null));
  return made;
}

// A bar of a sum's phases; `most` fills it.
function phaseBar(each, most) {
  const pieces = each.phases.map((time, phase) => time === 0 ? null : element("span", {
    class: PHASES[phase],
    style: `width:${(100 * time) / most}%`,
    title: `${phaseName(phase)} ${timeText(time)}`,
  }));
  return element("div", { class: "bar" }, pieces);
}

function phaseTag(phase) {
  return element("span", { class: "phase" }, element("span", { class: `key ${PHASES[phase]}` }), phaseName(phase));
}

function link(kind, name, text = name) {
  return element("a", { href: hashOf(kind, name), title: name }, text);
}

function hashOf(kind, name) {
  return `#${new URLSearchParams({ [kind]: name })}`;
}

function lineLink(line) {
  return line ? link("line", line.path, line.name) : element("span", { class: "quiet" }, "no line");
}

function timeCell(time) {
  return element("td", { class: "number" }, time ? timeText(time) : "");
}

function simpleTable(heads, rows, kind = "") {
  const head = heads.map(([title, type]) => element("th", { class: type }, title));
  return element("table", { class: kind },
    element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
}
