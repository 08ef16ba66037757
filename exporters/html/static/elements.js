// The elements that several parts of the page have: names, links, bars, what opens a row.

const TAIL = 12; // letters at the end of a name that stay where it is cut

// A bar of a sum's phases, as long as its time; `most` fills it.
function timeBar(each, most) {
  return phaseBar(each.phases.map((time, phase) => [PHASES[phase], time]), most, sumText);
}

function phaseTag(phase) {
  return element("span", { class: "phase" }, element("span", { class: `key ${PHASES[phase]}` }), phaseName(phase));
}

// A name that gives way in its middle where there is no room: triton_poi_..._view_5.
function middle(name, title = name) {
  if (name.length <= TAIL + 4) return element("span", { class: "whole", title }, name);
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

// What opens a row, for the keyboard too. `key` finds it again where the row is drawn again.
function twist(isOpen, what, act, key = null) {
  const made = element("button", { type: "button", class: "twist", "data-key": key,
    click: event => { event.stopPropagation(); act(); } });
  turnTwist(made, isOpen, what);
  return made;
}

function turnTwist(button, isOpen, what) {
  button.setAttribute("aria-expanded", String(isOpen));
  button.setAttribute("aria-label", `${isOpen ? "close" : "open"} ${what}`);
  button.textContent = isOpen ? "▾" : "▸";
}

// Draw elements again; what of them had the focus has it again, found by its key.
function keepingFocus(root, draw) {
  const focused = document.activeElement;
  const key = root.contains(focused) ? focused.dataset.key : undefined;
  draw();
  if (key === undefined || root.contains(document.activeElement)) return;
  const same = root.querySelector(`[data-key="${CSS.escape(key)}"]`);
  (same?.disabled ? same.parentElement.querySelector("[data-key]:not(:disabled)") : same)?.focus({ preventScroll: true });
}
