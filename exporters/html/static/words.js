// How sums, names and counts read. A sum is shown as the mean of a step, or as it is.

let isMean = true;

function opName(place) {
  return place.op || place.node || (place.gap ? `(${place.gap})` : "(unknown)");
}

function phaseName(phase) {
  return phaseText(PHASES[phase]);
}

// Heads a column where there is little room.
function shortPhase(phase) {
  return phaseName(phase).replace("gradient accumulation", "grad. acc.");
}

// The text of a sum over the chosen steps.
function sumText(time) {
  return timeText(isMean ? time / Math.max(slice.spans, 1) : time);
}

// What such times are, for the heads of columns.
function sumWords() {
  if (slice.step !== null) return `step ${slice.step}`;
  if (slice.spans < 2) return "time";
  return isMean ? "mean of a step" : `${slice.spans} steps`;
}

// The head of a column of such times.
function timeTitle() {
  return slice.step === null && slice.spans > 1 && isMean ? "time/step" : "time";
}

function countText(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}
