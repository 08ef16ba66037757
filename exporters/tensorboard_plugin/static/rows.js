// The rows of several runs side by side: merged, searched and measured.

// A line is the same line in two runs when its text and its place among equal texts of the file
// are: the line numbers of an edited file move.
export function mergedRows(runs, by) {
  const merged = new Map();
  runs.forEach((run, column) => {
    const keys = by === "line" ? lineKeys(run.data) : null;
    run.data.tables[by].forEach((row, index) => {
      const key = keys ? keys[index] : JSON.stringify(row.names);
      if (!merged.has(key)) merged.set(key, { key, names: row.names, cells: runs.map(() => null) });
      merged.get(key).cells[column] = { ...row, index };
    });
  });
  return [...merged.values()];
}

function lineKeys(data) {
  const rows = data.tables.line;
  const order = rows.map((_, index) => index).sort((a, b) => rows[a].line - rows[b].line);
  const seen = new Map();
  const keys = [];
  for (const index of order) {
    const row = rows[index];
    if (row.file === undefined) {
      keys[index] = JSON.stringify(row.names);
      continue;
    }
    const text = JSON.stringify([data.files[row.file].name, row.names[1] || row.line]);
    const nth = seen.get(text) ?? 0;
    seen.set(text, nth + 1);
    keys[index] = `${text} ${nth}`;
  }
  return keys;
}

// Time of a cell in one phase, or in all, for one step.
export function perStep(run, cell, phase) {
  if (!cell) return 0;
  const { phases, steps } = run.data;
  const wanted = (_, index) => phase === "" || phases[index] === phase;
  return sum(cell.phase_ns.filter(wanted)) / Math.max(steps, 1);
}

export function matching(rows, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (row) => {
    const text = row.names.join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  return words.length ? rows.filter(holds) : rows;
}

export function sum(numbers) {
  return numbers.reduce((total, each) => total + each, 0);
}
