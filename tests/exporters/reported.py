"""What tests of HTML report, names that mean harm among it, and how a page is read."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from profiler_ext.records.analysis import BreakdownRow, Place
from profiler_ext.records.provenance import Autotuned, Choice
from profiler_ext.records.vocabulary import ChoiceKind
from tests.analyses import GPU_IDLE, GPU_MARKS, GPU_PLACES, GPU_ROWS, gpu_step
from tests.handmade import idle, launches

SOURCE = "# model\n" * 10 + (
    "def forward(self, x):\n    h = self.up(x)\n    h = F.gelu(h)\n"
    "    return self.down(h.to(x.dtype))\n"
)
EVIL = "\"'></script><!--<script><img onerror=alert(1) src=x>"


class Page(HTMLParser):
    """The tags of a page, its tables as rows of cells, and its texts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.tables = [], [], [], []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.texts.append(data)
        if self.in_cell:
            self.tables[-1][-1][-1] += data.strip()


def _evil_place(place):
    return replace(
        place,
        module=EVIL,
        module_class=EVIL,
        file=f"/{EVIL}.py",
        line=7,
        code=EVIL,
        aten_op=EVIL,
        node=EVIL,
        gap=EVIL,
        stack=(),
    )


def _evil_recording(recording):
    graphs = tuple(
        replace(graph, key=EVIL, cache_detail=EVIL, output_module=f"/{EVIL}.py")
        for graph in recording.graphs
    )
    settings = replace(recording.settings, command=(EVIL,))
    return replace(recording, settings=settings, graphs=graphs)


def evil():
    step = gpu_step()
    at = Place(file=EVIL, line=1, code=EVIL)
    kernels = launches(GPU_MARKS, tuple(replace(row, kernel=EVIL, kind=EVIL) for row in GPU_ROWS))
    return replace(
        step,
        recording=_evil_recording(step.recording),
        places=tuple(map(_evil_place, GPU_PLACES)),
        launches=kernels,
        idle=idle([replace(p, cpu_activity=EVIL, cause_place=at) for p in GPU_IDLE]),
        breakdown=(
            BreakdownRow(3, 0, "compiled", "none", EVIL, 10),
            BreakdownRow(3, 0, "idle", None, "idle", 5),
        ),
        notes=(EVIL,),
    )


def two_ranks(step):
    settings = replace(step.recording.settings, rank=1, world_size=2)
    return [step, replace(step, recording=replace(step.recording, settings=settings))]


TIMED = (
    Choice("addmm", ChoiceKind.LIBRARY, "", 91_000),
    Choice("triton_mm", ChoiceKind.TEMPLATE, "BLOCK_M=64, num_warps=4", 104_200),
    Choice("triton_mm", ChoiceKind.TEMPLATE, "BLOCK_M=<128>", None),
)


def autotuned(step):
    """A step for whose first product max_autotune timed two templates, and chose the library."""
    first, *others = step.recording.graphs
    tuned = Autotuned((0,), TIMED, chosen=0, others=7)
    first = replace(first, provenance=replace(first.record, autotuned=(tuned,)))
    return replace(step, recording=replace(step.recording, graphs=(first, *others)))
