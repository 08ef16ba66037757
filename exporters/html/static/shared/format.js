// How times, parts and phases read, as in every other output.

const UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];

export function timeText(ns) {
  for (const [unit, size] of UNITS) {
    const value = ns / size;
    const magnitude = Math.abs(value);
    if (magnitude >= 0.9995) return `${value.toFixed(magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0)} ${unit}`;
  }
  return `${ns.toFixed(0)} ns`;
}

const SIZES = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

// 1.25 GiB, 404 MiB, 12 B: three digits, as in every other output.
export function sizeText(bytes) {
  for (const [unit, size] of SIZES) {
    const value = bytes / size;
    if (Math.abs(value) >= 1) return `${value >= 1000 ? value.toFixed(0) : Number(value.toPrecision(3))} ${unit}`;
  }
  return `${bytes} B`;
}

export function percentText(part, total, zero = "0.0%") {
  if (!total) return "";
  return part ? `${((100 * part) / total).toFixed(1)}%` : zero;
}

export function phaseText(phase) {
  return phase.replaceAll("_", " ");
}
