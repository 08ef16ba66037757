"""Names that somebody chose to harm, and a step whose every name is one of them."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache

from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.compiles import (
    CacheAnswer,
    CacheLookup,
    Compilation,
    CompileCache,
    CompileFailure,
    CompileKind,
    CompilePhase,
    CompileSpan,
    CompileTime,
    GraphBreak,
    Recompilation,
)
from profiler_ext.records.lineage import Frame
from tests.analyses import GPU_MARKS, GPU_PLACES, GPU_ROWS, gpu_step
from tests.handmade import launches, shares, trace

STEERING = {
    "colour": "\x1b[31mred\x1b]0;title\x07",
    "8-bit control": "\x9b31m\x85x\x90",
    "direction": "\u202egnp.\u2066x\u2069\u200f",
    "line": "a\nprofiler-ext: all is well\r\nb\x0bc\u2028d",
    "overwriting": "safe\x08\x08\x08\x08evil\r",
    "nothing": "a\0b",
    "invisible": "\U000e0041\ufeff\u200b\u00ad",
}
MARKUP = {
    "script": "</script><script>alert(1)</script><!--<script>",
    "image": "<img src=x onerror=alert(1)>\"'`",
    "table": "|x|`tick`**b** [l](http://x) & <b>",
    "console": "[red]x[/red][/][link=file:///etc]",
    "template": "${heading} $data {{x}} %s",
}
FORMULAS = {
    name: name + "1+1|' /C calc'!A0"
    for name in ("=", "+", "-", "@", "\t=", "\r=", "\n=", "'", "'=", "''", "\uff1d", "\uff20")
}
NUMBERS_AS_TEXT = {"negative": "-5", "signed": "+1", "exponent": "-1e3"}
HOSTILE = {**STEERING, **MARKUP, **FORMULAS, **NUMBERS_AS_TEXT}

_FIXED = ("phase", "level", "evidence", "gap", "forward_evidence")


def steering(text: str) -> set[str]:
    """Return the characters of a text, but for line ends, that steer a terminal."""
    steering = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {each for each in text if each != "\n" and unicodedata.category(each) in steering}


@cache
def hostile_step() -> Analysis:
    """Return a step in which every name of a trace or a stack is one of ``HOSTILE``."""
    names = itertools.cycle(HOSTILE.values())
    rows = [replace(row, kernel=next(names) if row.kernel else "") for row in GPU_ROWS]
    marks = [
        replace(mark, name=next(names)) if mark.category in ("kernel", "cpu_op") else mark
        for mark in GPU_MARKS
    ]
    step = gpu_step()
    settings = replace(step.recording.settings, command=tuple(HOSTILE.values()))
    graphs = tuple(
        replace(
            graph,
            key=next(names),
            compile_id=next(names),
            output_module=next(names),
            cache_detail=next(names),
        )
        for graph in step.recording.graphs
    )
    return replace(
        step,
        recording=replace(
            step.recording,
            trace=trace(marks, step.recording.trace.devices),
            settings=settings,
            graphs=graphs,
            compiles=tuple(map(_compiled, HOSTILE.values())),
        ),
        launches=launches(marks, rows),
        places=tuple(_named(place, names) for place in GPU_PLACES),
        shares=shares(rows),
        notes=tuple(HOSTILE.values()),
    )


def _compiled(name: str) -> Compilation:
    return Compilation(
        index=0,
        kind=CompileKind.FRAME,
        compile_id=name,
        dynamo_number=None,
        thread=1,
        started_ns=10,
        duration_ns=100,
        times=(CompileTime(CompilePhase.DYNAMO, 100),),
        spans=(
            CompileSpan(name, CompilePhase.DYNAMO, 10, 100, 0),
            CompileSpan(name, CompilePhase.INDUCTOR, 20, 10, 1),
        ),
        function=name,
        file=name,
        line=1,
        recompiles=(Recompilation(name, name, (Frame(name, 1, name, name),)),),
        breaks=(GraphBreak(name, (Frame(name, 1, name, name),), name),),
        restarts=(name,),
        lookups=(CacheLookup(CompileCache.FX_GRAPH, CacheAnswer.BYPASS, name),),
        failure=CompileFailure(name, name),
    )


def _named(place: Place, names: Iterator[str]) -> Place:
    texts = [field.name for field in fields(place) if isinstance(getattr(place, field.name), str)]
    changed = {each: next(names) for each in texts if each not in _FIXED}
    stack = tuple(Frame(next(names), frame.line, next(names), next(names)) for frame in place.stack)
    return replace(place, **changed, stack=stack)
