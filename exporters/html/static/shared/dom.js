// How elements are made. Names become text nodes and attribute values, never markup.

import { phaseText, timeText } from "./format.js";

// A property that is a function listens to the event of its name; others are attributes.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter(child => child !== null));
  return made;
}

// A bar of [phase, time], each in the colour of its phase; `most` fills it.
export function phaseBar(parts, most, textOf = timeText) {
  return element("div", { class: "bar" }, phasePieces(parts, most, textOf));
}

export function phasePieces(parts, most, textOf = timeText) {
  return parts.filter(([, time]) => time).map(([phase, time]) => {
    const piece = element("span", { class: phase, title: `${phaseText(phase)} ${textOf(time)}` });
    piece.style.width = `${(100 * time) / Math.max(most, 1)}%`;
    return piece;
  });
}
