"use strict";
// Owns how times, parts and names read. A sum is shown as the mean of a step, or as it is.

let isMean = true;

function opName(place) {
  return place.op || place.node || (place.gap ? `(${place.gap})` : "(unknown)");
}

function phaseName(phase) {
  return PHASES[phase].replaceAll("_", " ");
}

// Heads a column where there is little room.
function shortPhase(phase) {
  return phaseName(phase).replace("gradient accumulation", "grad. acc.");
}

function timeText(time) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    const value = time / size;
    if (value >= 0.9995) return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
  }
  return `${time.toFixed(0)} ns`;
}

// The text of a sum over the chosen steps.
function sumText(time) {
  return timeText(isMean ? time / Math.max(slice.spans, 1) : time);
}

// What such times are, for the heads of columns.
function sumWords() {
  if (slice.step !== null) return `step ${slice.step}`;
  if (slice.spans < 2) return "time";
  return isMean ? "a step" : `${slice.spans} steps`;
}

function percentText(time, total) {
  return total ? `${((100 * time) / total).toFixed(1)}%` : "";
}

function countText(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}
