"""What is said over each picture of the book, and where it stands."""

from __future__ import annotations

from tests.book.annotating import Mark

LANES = [
    Mark((440, 241), "every launch, once, with its own times"),
    Mark((440, 266), "forward, backward, optimizer, ..."),
    Mark((440, 335), "the modules, nested"),
    Mark((440, 386), "the line of the model; in backward that of its forward"),
    Mark((440, 410), "why the device waited"),
    Mark((464, 432), "estimated rates against the device's peak"),
    Mark((348, 960), "of the launch that is selected: its lines, modules, ops and FX nodes"),
]
"""Of a step in the Perfetto UI, whose canvas tells no positions."""
_LINE = ".source .row[data-number='36']"
SOURCE = [
    (f"{_LINE} .heat >> nth=1", "left", "a line's time in a step, by phase"),
    (f"{_LINE} .bars", "right", "the same as a bar"),
    (f"{_LINE} code", "right", "a click on the line opens its kernels"),
    (".source .detail td.name a >> nth=4", "right", "a kernel leads to its generated code"),
    (".source .detail td.fused >> nth=4 >> div >> nth=0", "left", "the ops that it fuses"),
]
TOP = [
    ("h2:has-text('Top recommendations')", "right", "the largest saving stands first"),
    ("text=launch_bound", "left", "the rule's name, and what it rests on"),
    ("#findings p:has-text('Try:')", "left", "what to change"),
    (
        "#breakdown td:text-is('compiled: attributed to source')",
        "right",
        "all of a step's wall time",
    ),
    ("#breakdown a:text-is('CPU launch overhead')", "left", "why the device waited"),
]
BOARD = [
    ("label:has-text('eager/rank0')", "right", "runs side by side"),
    (".heading .quiet >> nth=0", "right", "what to change first; all of it is below the table"),
    ("text='Lines'", "left", "time by line, module, kernel or phase"),
    ("th:has-text('change in')", "left", "what changed between the runs"),
    ("tr:has-text('gpt.py:25') td >> nth=3", "right", "a click shows launches and source"),
]
REPORT = {
    " 2.43 ms": "the largest saving stands first",
    "compiled": "the step time breakdown",
    "next:": "what goes on from here",
}
INFERENCE = {
    " 3.49 ms": "most of a call",
    "compiled": "the device works 1.3 of 6.9 ms",
}
CELL = [
    ("th:text-is('max saving')", "right", "the lines that took most, by phase"),
    ("p:has-text('Top recommendation:')", "right", "what to change first"),
    ("summary:has-text('Step time breakdown')", "right", "the rest unfolds"),
]
"""Of a notebook's cell."""
