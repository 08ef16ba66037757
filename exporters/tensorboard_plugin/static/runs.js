// The runs in the log folder, and what was read of each.

const url = (route) => new URL(route, import.meta.url);

export async function listRuns() {
  return (await fetch(url("./runs"))).json();
}

// Returns the run's data, or why there is none.
export async function loadRun(name) {
  try {
    const answer = await fetch(url(`./data?run=${encodeURIComponent(name)}`));
    const content = await answer.json();
    return answer.ok ? { name, data: content } : { name, error: content.error };
  } catch (error) {
    return { name, error: `cannot load ${name}: ${error.message}` };
  }
}
