"""One measurement: how large report.html is, and how soon it opens in Chromium.

The recording is repeated until it has enough events, so that the page is seen to follow the model
and not the steps. Run: ``python -m benchmarks.report_opening [--session FILE] [--events N ...]``.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import BrowserType, sync_playwright

from benchmarks.recordings import GPT, folder
from benchmarks.tiling import tile
from profiler_ext import load
from profiler_ext.exporters.html import export_html

_OPENINGS = 3
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
# When something was painted, and when the page answered: after load a task of its own has run.
_TIMES = """() => new Promise(done => {
  const ask = () => {
    const [painted] = performance.getEntriesByName("first-contentful-paint");
    if (!painted) return setTimeout(ask, 5);
    const [opened] = performance.getEntriesByType("navigation");
    done([painted.startTime, opened.loadEventEnd]);
  };
  ask();
})"""


def main() -> None:
    """Print one line for each number of events."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", type=Path, default=GPT)
    parser.add_argument("--events", type=int, nargs="+", default=[1, 100_000, 1_000_000])
    chosen = parser.parse_args()
    for events in chosen.events:
        with folder() as made:
            _measure(chosen.session, events, made)


def _measure(session: Path, events: int, made: Path) -> None:
    tile(session, made / "tiled.pt.trace.json", events)
    (analysis,) = load(made / "tiled.pt.trace.json").analyses
    started = time.process_time()
    page = export_html(analysis, made / "report.html")
    seconds = time.process_time() - started
    painted, answered = _opening(page)
    print(
        f"{len(analysis.recording.trace.raw):,} events, {len(analysis.launches):,} launches, "
        f"{len(analysis.steps):,} steps: written in {seconds:.1f} s, "
        f"{page.stat().st_size / 1e3:,.0f} kB, painted after {painted:.0f} ms, "
        f"answers after {answered:.0f} ms"
    )


def _opening(page: Path) -> tuple[float, float]:
    """Return the medians of some openings, each of a fresh browser."""
    with sync_playwright() as driver:
        times = [_opened(driver.chromium, page) for _ in range(_OPENINGS)]
    painted, answered = zip(*times, strict=True)
    return median(painted), median(answered)


def _opened(chromium: BrowserType, page: Path) -> tuple[float, float]:
    browser = chromium.launch(executable_path=shutil.which("chromium"), args=list(_FLAGS))
    try:
        shown = browser.new_page(viewport={"width": 1280, "height": 900})
        shown.goto(page.as_uri(), wait_until="load", timeout=120_000)
        painted, answered = shown.evaluate(_TIMES)
        return painted, answered
    finally:
        browser.close()


if __name__ == "__main__":
    main()
