"""Owns the words of the project: few things are frozen records, many are tables of columns.

Names are loaded when they are first used: capture needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profiler_ext.records.analysis import (
        SCHEMA_VERSION,
        Analysis,
        Launches,
        BreakdownRow,
        Shares,
        Step,
    )
    from profiler_ext.records.cells import (
        MAX_CELL_LINE_LENGTH,
        MAX_CELL_LINES,
        Cell,
        cell_named,
        is_cell,
    )
    from profiler_ext.records.communication import (
        NO_COMMUNICATION,
        NO_RANK_DELAY,
        Communication,
        RankDelay,
    )
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
    from profiler_ext.records.consistency import (
        inconsistency_of_provenance,
        inconsistency_of_session,
    )
    from profiler_ext.records.events import (
        Codes,
        Device,
        Events,
        Interned,
        Ints,
        MaskedInts,
        RawEvents,
        Thread,
        Trace,
    )
    from profiler_ext.records.evidence import (
        EagerEvidence,
        ForwardEvidence,
        LineEvidence,
        SiteEvidence,
    )
    from profiler_ext.records.gaps import GapReason
    from profiler_ext.records.generated_code import (
        MAX_CODE_BYTES,
        MAX_MODULE_BYTES,
        MAX_PACKED_BYTES,
        GeneratedModule,
        generated_module,
        inconsistency_of_code,
    )
    from profiler_ext.records.idle import NO_IDLE, IdlePieces
    from profiler_ext.records.idle_causes import IdleCause
    from profiler_ext.records.lineage import (
        OPTIMIZER,
        Frame,
        Lineage,
        ModuleFrame,
        PartModules,
        is_of_optimizer,
    )
    from profiler_ext.records.lines_consistency import inconsistency_of_lines
    from profiler_ext.records.mechanism import Mechanism
    from profiler_ext.records.numbering import first_rows, numbered, ranks, sorted_distinct
    from profiler_ext.records.places import Place
    from profiler_ext.records.provenance import (
        CallSite,
        FxNode,
        Gap,
        GraphInstance,
        LibraryKernels,
        NestedIn,
        Provenance,
        TensorSpec,
    )
    from profiler_ext.records.python_lines import (
        MAX_POSITION_DEPTH,
        ClockMark,
        Function,
        Position,
        PythonLines,
        ThreadPositions,
        thread_positions,
    )
    from profiler_ext.records.rank_collectives import RankCollectives
    from profiler_ext.records.recording import Recording, Settings
    from profiler_ext.records.stored import flat, nested
    from profiler_ext.records.term import NOTHING, Term
    from profiler_ext.records.vocabulary import (
        CacheState,
        LaunchKind,
        BreakdownCategory,
        Level,
        Phase,
        Scope,
        SiteKind,
    )
    from profiler_ext.records.without_source import without_source
    from profiler_ext.records.writers import WRITER_KEY, version_mismatch

__all__ = [
    "MAX_POSITION_DEPTH",
    "MAX_CELL_LINE_LENGTH",
    "MAX_CELL_LINES",
    "MAX_CODE_BYTES",
    "MAX_MODULE_BYTES",
    "MAX_PACKED_BYTES",
    "NOTHING",
    "NO_COMMUNICATION",
    "NO_IDLE",
    "NO_RANK_DELAY",
    "OPTIMIZER",
    "SCHEMA_VERSION",
    "WRITER_KEY",
    "Analysis",
    "CacheAnswer",
    "CacheLookup",
    "CacheState",
    "CallSite",
    "Cell",
    "ClockMark",
    "Codes",
    "Communication",
    "Compilation",
    "CompileCache",
    "CompileFailure",
    "CompileKind",
    "CompilePhase",
    "CompileSpan",
    "CompileTime",
    "Device",
    "EagerEvidence",
    "Events",
    "ForwardEvidence",
    "Frame",
    "Function",
    "FxNode",
    "Gap",
    "GapReason",
    "GeneratedModule",
    "GraphBreak",
    "GraphInstance",
    "IdleCause",
    "IdlePieces",
    "Interned",
    "Ints",
    "Lateness",
    "LaunchKind",
    "Launches",
    "BreakdownCategory",
    "BreakdownRow",
    "Level",
    "LibraryKernels",
    "LineEvidence",
    "Lineage",
    "MaskedInts",
    "Mechanism",
    "ModuleFrame",
    "NestedIn",
    "PartModules",
    "Phase",
    "Place",
    "Position",
    "Provenance",
    "PythonLines",
    "RankCollectives",
    "RawEvents",
    "Recompilation",
    "Recording",
    "Scope",
    "Settings",
    "Shares",
    "SiteEvidence",
    "SiteKind",
    "Step",
    "TensorSpec",
    "Term",
    "Thread",
    "ThreadPositions",
    "Trace",
    "cell_named",
    "first_rows",
    "flat",
    "generated_module",
    "inconsistency_of_code",
    "inconsistency_of_lines",
    "inconsistency_of_provenance",
    "inconsistency_of_session",
    "is_cell",
    "is_of_optimizer",
    "nested",
    "numbered",
    "ranks",
    "sorted_distinct",
    "thread_positions",
    "version_mismatch",
    "without_source",
]

_HOMES = {
    "analysis": "SCHEMA_VERSION Analysis Launches BreakdownRow Shares Step",
    "cells": "MAX_CELL_LINE_LENGTH MAX_CELL_LINES Cell cell_named is_cell",
    "communication": "NO_COMMUNICATION NO_RANK_DELAY Communication Lateness",
    "compiles": "CacheAnswer CacheLookup Compilation CompileCache CompileFailure CompileKind "
    "CompilePhase CompileSpan CompileTime GraphBreak Recompilation",
    "consistency": "inconsistency_of_provenance inconsistency_of_session",
    "events": "Codes Device Events Interned Ints MaskedInts RawEvents Thread Trace",
    "evidence": "EagerEvidence ForwardEvidence LineEvidence SiteEvidence",
    "gaps": "GapReason",
    "generated_code": "MAX_CODE_BYTES MAX_MODULE_BYTES MAX_PACKED_BYTES GeneratedModule "
    "generated_module inconsistency_of_code",
    "idle": "NO_IDLE IdlePieces",
    "idle_causes": "IdleCause",
    "lineage": "OPTIMIZER Frame Lineage ModuleFrame PartModules is_of_optimizer",
    "lines_consistency": "inconsistency_of_lines",
    "mechanism": "Mechanism",
    "numbering": "first_rows numbered ranks sorted_distinct",
    "places": "Place",
    "provenance": "CallSite FxNode Gap GraphInstance LibraryKernels NestedIn Provenance TensorSpec",
    "python_lines": "MAX_POSITION_DEPTH ClockMark Function Position PythonLines ThreadPositions "
    "thread_positions",
    "rank_collectives": "RankCollectives",
    "recording": "Recording Settings",
    "stored": "flat nested",
    "term": "NOTHING Term",
    "vocabulary": "CacheState LaunchKind BreakdownCategory Level Phase Scope SiteKind",
    "without_source": "without_source",
    "writers": "WRITER_KEY version_mismatch",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
