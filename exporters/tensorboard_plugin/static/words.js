// How times and parts read, and how elements are made. Names become text, never markup.

const UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];

export const HEADINGS = {
  line: ["line", "code"],
  module: ["module", "class"],
  kernel: ["kernel", "the device's name", "kind"],
  phase: ["phase"],
};
export const TITLES = {
  line: "Lines", module: "Modules", kernel: "Kernels", phase: "Phases", source: "Source",
};

export function timeText(ns) {
  for (const [unit, size] of UNITS) {
    if (Math.abs(ns) >= 0.9995 * size) {
      const value = ns / size;
      const magnitude = Math.abs(value);
      return `${value.toFixed(magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0)} ${unit}`;
    }
  }
  return ns ? `${ns.toFixed(0)} ns` : "";
}

export function changeText(ns) {
  return ns > 0 ? `+${timeText(ns)}` : ns < 0 ? timeText(ns).replace("-", "\u2212") : "";
}

export function percentText(part, total) {
  return total && part ? `${((100 * part) / total).toFixed(1)}%` : "";
}

export function countText(count) {
  return Number.isInteger(count) ? count.toLocaleString("en") : count.toFixed(1);
}

export function phaseText(phase) {
  return phase.replaceAll("_", " ");
}

export function sum(numbers) {
  return numbers.reduce((total, each) => total + each, 0);
}

// Makes an element; children are elements or text.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// A bar of parts, each with the colour of its phase; `most` fills the track.
export function bar(parts, most) {
  const pieces = parts.filter(([, ns]) => ns > 0).map(([phase, ns]) => {
    const piece = element("span", { className: phase, title: `${phaseText(phase)} ${timeText(ns)}` });
    piece.style.width = `${(100 * ns) / most}%`;
    return piece;
  });
  return element("div", { className: "bar" }, ...pieces);
}
