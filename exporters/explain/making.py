"""Makes the answer about a line, module or kernel of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiler_ext.errors import UnclearNameError, UsageError
from profiler_ext.exporters.explain import details, subjects, sums
from profiler_ext.exporters.explain.against import Earlier, against
from profiler_ext.exporters.explain.details import ExplainContext, no_time_reason
from profiler_ext.exporters.json_output import answers, documents, explained
from profiler_ext.exporters.views.modules import depth_of, folded_modules
from profiler_ext.exporters.views.steps import OfKind
from profiler_ext.exporters.views.summary import SessionLike
from profiler_ext.records.analysis import Place
from profiler_ext.records.lineage import Frame

_LINE = ("file", "line", "code", "gap")
_CALLER = ("file", "line", "code")
_Name = tuple[str | int | None, ...]


def explain(
    session: SessionLike, name: str, top: int | None = 10, earlier: Earlier | None = None
) -> explained.Explanation:
    """Return the explanation of a line, module or kernel.

    Raises:
        UnclearNameError: The name means several things, or none.
        UsageError: ``top`` is less than 1, or a session has no profiled step.
    """
    whole, session = session, OfKind(session)
    if not any(each.steps for each in session.analyses):
        raise UsageError("no step was profiled, so there is nothing to explain; record one step")
    subject = subjects.resolve_subject(name, session.analyses)
    about = ExplainContext(
        session, subject, [subjects.select_shares(each, subject) for each in session.analyses]
    )
    time, idle = _time(about), details.idle(about)
    has_time = bool(time.launches)
    idle_ns = sum(row.duration_ns for row in idle)
    steps = max(time.rank_steps, 1)
    why = (
        None
        if has_time
        else no_time_reason(
            subject, session.analyses, (time.callees_ns or 0) / steps, idle_ns / steps
        )
    )
    lists, cuts = _lists(about, idle, top)
    return explained.Explanation(
        cuts=[*cuts, *answers.steps_truncation(session)],
        session=answers.session_facts(whole),
        coverage=answers.coverage(session),
        subject=_facts(about),
        time=time,
        no_time_reason=why,
        roofline=details.roofline(about.ranks),
        site_evidence_ns=sums.times_by_site_evidence(about.ranks),
        line_evidence_ns=sums.times_by_place(about.ranks, lambda place: place.evidence),
        share_evidence_ns=sums.times_by_share_evidence(about.ranks),
        forward_evidence_ns=sums.times_by_place(about.ranks, lambda p: p.forward_evidence),
        own_gaps=details.gaps(about, time.duration_ns),
        findings=details.findings(about),
        memory=details.memory(about),
        against=None if earlier is None else against(session.analyses, earlier, subject),
        **lists,
    )


def candidates(session: SessionLike, name: str, error: UnclearNameError) -> explained.Candidates:
    """Return what an unclear name could mean, as an answer."""
    return explained.Candidates(
        cuts=answers.steps_truncation(session),
        session=answers.session_facts(session),
        coverage=answers.coverage(session),
        query=name,
        is_ambiguous=error.is_ambiguous,
        candidates=list(error.candidates),
    )


def _lists(
    about: ExplainContext, idle: list[explained.IdleRow], top: int | None
) -> tuple[dict[str, Any], list[documents.Cut]]:
    ranks, kind = about.ranks, about.subject.kind
    kernels = sums.kernel_rows(ranks)
    every: dict[str, Sequence[Any]] = {
        "steps": sums.step_times(ranks),
        "kernels": kernels,
        "fused_with": _fused(about),
        "not_fused": details.not_fused(about),
        "lines": []
        if kind is subjects.Kind.LINE
        else sums.part_rows(sums.by_place(ranks, _line), _LINE),
        "modules": _modules(about),
        "ops": sums.part_rows(
            sums.by_place(ranks, lambda p: None if p.aten_op is None else (p.aten_op,)),
            ("aten_op",),
        ),
        "callers": sums.part_rows(sums.by_place(ranks, _caller), _CALLER)
        if kind is subjects.Kind.LINE
        else [],
        "idle": idle,
    }
    shown = {name: answers.top_of(name, rows, top) for name, rows in every.items()}
    lists: dict[str, Any] = {name: rows for name, (rows, _) in shown.items()}
    lists["generated"] = details.generated(about, [row.kernel for row in kernels])
    return lists, [cut for _, cuts in shown.values() for cut in cuts]


def _fused(about: ExplainContext) -> list[explained.PartRow]:
    """Return what else the launches compute; of a module, by module too."""
    if about.subject.kind is subjects.Kind.LINE:
        return sums.part_rows(sums.by_place(about.ranks, _line, others=True), _LINE)
    folds = folded_modules(about.session.analyses)
    others = sums.by_place(about.ranks, lambda p: (*_line(p), *folds.of(p.module)), others=True)
    return sums.part_rows(others, (*_LINE, "module", "modules"))


def _modules(about: ExplainContext) -> list[explained.PartRow]:
    """Return the modules of a subject: below a module each one, else like layers as one."""
    if about.subject.kind is subjects.Kind.MODULE:
        own = sums.by_place(about.ranks, lambda p: None if p.module is None else (p.module,))
        return sums.part_rows(own, ("module",))
    folds = folded_modules(about.session.analyses)
    known = sums.by_place(about.ranks, lambda p: None if p.module is None else folds.of(p.module))
    return sums.part_rows(known, ("module", "modules"))


def _line(place: Place) -> _Name:
    return place.file, place.line, place.code, place.gap if place.file is None else None


def _facts(about: ExplainContext) -> explained.SubjectFacts:
    subject, analyses = about.subject, about.session.analyses
    name = subjects.subject_label(subject, analyses[0])
    if subject.kind is subjects.Kind.KERNEL:
        return explained.SubjectFacts(kind=subject.kind, name=name, kernel=subject.name)
    places = [p for analysis in analyses for p in analysis.places if subjects.is_of(p, subject)]
    if subject.kind is subjects.Kind.MODULE:
        own = (p.module_class for p in places if p.module == subject.name)
        known = next(filter(None, own), None) or _class_of(about)
        return explained.SubjectFacts(
            kind=subject.kind, name=name, module=subject.name, module_class=known
        )
    frame = _frame(about)
    return explained.SubjectFacts(
        kind=subject.kind,
        name=name,
        file=subject.name,
        line=subject.line,
        code=frame.code,
        function=frame.function or None,
    )


def _frame(about: ExplainContext) -> Frame:
    """Return what is known of a line: as one with launches or waits, or in a stack."""
    subject, nothing = about.subject, Frame(about.subject.name, about.subject.line, "")
    places = [p for a in about.session.analyses for p in (*a.places, *a.idle.places)]
    own = next((p for p in places if subjects.is_of(p, subject)), None)
    if own is not None:
        return Frame(subject.name, subject.line, own.function or "", own.code)
    frames = (frame for place in places for frame in place.stack)
    return next((f for f in frames if (f.file, f.line) == (subject.name, subject.line)), nothing)


def _class_of(about: ExplainContext) -> str | None:
    """Return the class of a module without own work, from the compiled graphs."""
    graphs = (graph for each in about.session.analyses for graph in each.recording.graphs)
    frames = (f for graph in graphs for node in graph.nodes for f in node.lineage.modules)
    return next((f.class_name for f in frames if f.path == about.subject.name), None)


def _time(about: ExplainContext) -> explained.TimeFacts:
    own = sums.total(about.ranks)
    steps = sum(len(each.analysis.steps) for each in about.ranks)
    analyses = about.session.analyses
    every = sums.total([subjects.select_shares(each, None) for each in analyses]).duration_ns
    inclusive = (int(r.analysis.launches.duration_ns[r.launches].sum()) for r in about.ranks)
    return explained.TimeFacts(
        duration_ns=own.duration_ns,
        fraction=own.duration_ns / every if every else None,
        rank_steps=steps,
        per_step_ns=own.duration_ns / steps if steps else None,
        inclusive_ns=sum(inclusive),
        launches=own.launches,
        phases_ns=own.phases_ns,
        submodules_ns=_below(about) if about.subject.kind is subjects.Kind.MODULE else None,
        callees_ns=_called(about) if about.subject.kind is subjects.Kind.LINE else None,
    )


def _below(about: ExplainContext) -> int:
    by_module = sums.by_place(about.ranks, lambda place: place.module)
    own = depth_of(about.subject.name)
    return sum(each.duration_ns for path, each in by_module.items() if depth_of(path) > own)


def _called(about: ExplainContext) -> int:
    every = [subjects.select_shares(each, None) for each in about.session.analyses]
    called = sums.by_place(every, lambda place: subjects.calls(place, about.subject) or None)
    return sum(each.duration_ns for each in called.values())


def _caller(place: Place) -> _Name | None:
    """Return the line from which a place's line was called, by the place's stack."""
    own = (place.file, place.line)
    at = [n for n, frame in enumerate(place.stack) if (frame.file, frame.line) == own]
    if not at or not at[-1]:
        return None
    frame = place.stack[at[-1] - 1]
    return frame.file, frame.line, frame.code
