"""The forms of lines that Inductor writes around the values of nodes: indices, masks, loops.

Source: ``torch/_inductor/codegen/triton.py``: ``iteration_ranges_codegen_header``,
``codegen_body``, ``codegen_static_numels``; ``triton_combo_kernel.py``, ``codegen_pid_range``.
"""

from __future__ import annotations

import re

from profiler_ext.records.kernel_lines import LinePart

_RANGE = r"(?:[xyz]|r\d*_?|r)"
_FORMS = tuple(
    (part, re.compile(form))
    for part, form in (
        (LinePart.FRAME, r"^(?:#.*)?$|^(?:pass|else:)$|^tl\.debug_barrier\(\)$"),
        (
            LinePart.FRAME,
            rf"^{_RANGE}numel(?:_\d+)? = |^[XYZR]\w*BLOCK(?:_\d+)?\s*: tl\.constexpr =",
        ),
        (LinePart.FRAME, r"^(?:if|elif) (?:local_)?pid\b|^(?:\w+_)?pid(?:_offset)? = "),
        (LinePart.FRAME, r"^(?:num_)?(?:x_|y_|x)?blocks(?:_\d+)? = |^tl\.extra\.cuda\.gdc_\w+\("),
        (LinePart.FRAME, r"^(?:in|out|in_out|ws)_ptr\d* = |^sem_ptr = "),
        (LinePart.MASK, rf"^{_RANGE}mask\b.* = "),
        (LinePart.INDEX, rf"^{_RANGE}(?:index|offset|base) \+?= |^(?:[xyz]|r\d_|r)\d+ = "),
        (LinePart.INDEX, r"^(?:block_ptr|tma_descriptor|ps)\d+ = |^roffset = |^rbase = "),
        (LinePart.REDUCTION, r"^for (?:r\d*_?offset|roffset|_) in tl\.range\("),
        (LinePart.REDUCTION, r"^(?:rsplit_\w+|split_size|HAS_RSPLIT|RSPLIT_\w+)\b.* = "),
        (LinePart.REDUCTION, r"^if HAS_RSPLIT:|^triton_helpers\.x_grid_barrier\("),
        (LinePart.REDUCTION, r"^num_rblocks = |^\w+_ws = \(ws_ptr"),
        (LinePart.REDUCTION, r"^if rsplit_id == \(|^accum\d+ = "),
        (LinePart.REDUCTION, r"^tl\.store\(ws_ptr\d* \+ \(tl\.program_id\(0\) \+ "),
    )
)
# Sums over rows that a mix-order reduction adds up while it goes through them.
_ACCUMULATING = re.compile(r"\baccum\d+\b|^tmp\d+ = [\w.]+\(tmp\d+, 0\)$")
_NUMBERED = re.compile(r"\b([XYZ]BLOCK|R\d_BLOCK|[xyz]numel|r\d_numel)_\d+\b")
_BRANCH = re.compile(r"^ {4}(?:if|elif) pid\b")


def part_of_form(line: str) -> LinePart | None:
    """Return what a line does that no node asked for, by its form alone."""
    text = line.strip()
    return next((part for part, form in _FORMS if form.search(text)), None)


def is_accumulating(line: str) -> bool:
    """Tell whether a line that no node asked for adds up partial values of a reduction."""
    return bool(_ACCUMULATING.search(line.strip()))


def without_numbers(line: str) -> str:
    """Return a line of a combo as it was written for its part: sizes have the part's number."""
    return _NUMBERED.sub(r"\1", line.strip())


def begins_branch(line: str) -> bool:
    """Tell whether a line begins the branch of one part of a combo."""
    return bool(_BRANCH.search(line))


def body_begin(lines: list[str], kernel: str) -> int:
    """Return the index of the line after the head of the kernel's function.

    Only decorators, imports and functions that the kernel calls stand before it.
    """
    heads = [at for at, line in enumerate(lines) if line.startswith("def ")]
    named = [at for at in heads if lines[at].startswith(f"def {kernel}(")]
    first = (named or heads[-1:] or [len(lines) - 1])[0]
    while first < len(lines) - 1 and not lines[first].rstrip().endswith(":"):
        first += 1
    return first + 1
