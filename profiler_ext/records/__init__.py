"""Owns the words of the project: few things are frozen records, many are tables of columns."""

from profiler_ext.records.analysis import (
    SCHEMA_VERSION,
    Analysis,
    IdleSpan,
    Launches,
    LedgerLine,
    Place,
    Recording,
    Settings,
    Shares,
    Step,
)
from profiler_ext.records.consistency import inconsistency_of_provenance, inconsistency_of_session
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
from profiler_ext.records.evidence import ForwardEvidence, LineEvidence, SiteEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame, Lineage, ModuleFrame
from profiler_ext.records.mechanism import Mechanism
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
from profiler_ext.records.stored import flat, nested
from profiler_ext.records.term import NOTHING, Term
from profiler_ext.records.vocabulary import (
    CacheState,
    LaunchKind,
    LedgerCategory,
    Level,
    Phase,
    Scope,
    SiteKind,
)

__all__ = [
    "NOTHING",
    "SCHEMA_VERSION",
    "Analysis",
    "CacheState",
    "CallSite",
    "Codes",
    "Device",
    "Events",
    "ForwardEvidence",
    "Frame",
    "FxNode",
    "Gap",
    "GapReason",
    "GraphInstance",
    "IdleSpan",
    "Interned",
    "Ints",
    "LaunchKind",
    "Launches",
    "LedgerCategory",
    "LedgerLine",
    "Level",
    "LibraryKernels",
    "LineEvidence",
    "Lineage",
    "MaskedInts",
    "Mechanism",
    "ModuleFrame",
    "NestedIn",
    "Phase",
    "Place",
    "Provenance",
    "RawEvents",
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
    "Trace",
    "flat",
    "inconsistency_of_provenance",
    "inconsistency_of_session",
    "nested",
]
