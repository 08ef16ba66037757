// The words of this view: heads, and numbers of which nothing is said where they are zero.

import { timeText } from "./shared/format.js";

export const HEADINGS = {
  line: ["line", "code"],
  module: ["module", "class"],
  kernel: ["kernel", "the device's name", "kind"],
  phase: ["phase"],
};
export const TITLES = {
  line: "Lines", module: "Modules", kernel: "Kernels", phase: "Phases", source: "Source",
};

// Of no time nothing is said.
export function spentText(ns) {
  return ns ? timeText(ns) : "";
}

export function changeText(ns) {
  return ns > 0 ? `+${timeText(ns)}` : ns < 0 ? timeText(ns).replace("-", "\u2212") : "";
}

export function countText(count) {
  return Number.isInteger(count) ? count.toLocaleString("en") : count.toFixed(1);
}
