"""Limits on training steps in pytest: ``@pytest.mark.profile_ext(max_ms=12, no_finding=True)``.

The body of a marked test is the step: it runs ``skip`` times to compile and warm up, then ``steps``
times while it is recorded. A test that has something to prepare takes the fixture ``profile_ext``
instead, calls it with the step, and gets the session:

    @pytest.mark.profile_ext(max_ms=12, no_finding=["launch_bound", "graph_break"])
    def test_training_step(profile_ext):
        model, batch = ...
        session = profile_ext(lambda: train_step(model, batch))
        session.assert_coverage(0.99)

pytest loads this in each run, so torch and the rest of the package are imported when a marked test
is set up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from profiler_ext.findings import Finding
    from profiler_ext.sessions.session import Session

_NAME = "profile_ext"
_TOP = 5
_MARKER = (
    f"{_NAME}(max_ms=None, no_finding=False, skip=5, steps=2): profile the test's body as a step; "
    "fail if a step takes more than max_ms, or if there is a recommendation: any "
    "(no_finding=True), or of the named rules"
)


class Limits(NamedTuple):
    """What a marker asks for."""

    max_ms: float | None = None
    no_finding: bool | str | Collection[str] = False
    skip: int = 5  # of which the step time without profiling is known
    steps: int = 2


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check a test's marker, and capture what its fixtures compile."""
    if item.get_closest_marker(_NAME) is None and not _takes_fixture(item):
        return
    _limits(item)
    import profiler_ext

    profiler_ext.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Make the body of a marked test the step, unless the test calls the fixture with one."""
    if pyfuncitem.get_closest_marker(_NAME) is None or _takes_fixture(pyfuncitem):
        return
    limits, body = _limits(pyfuncitem), pyfuncitem.obj

    @wraps(body)
    def profiled(*arguments: Any, **named: Any) -> None:
        _check(_profiled(lambda: body(*arguments, **named), limits), limits)

    pyfuncitem.obj = profiled


@pytest.fixture
def profile_ext(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[], Any]], Session]]:
    """Profile a step, check it by the test's marker, and return the session."""
    limits, sessions = _limits(request.node), []

    def profile_step(step: Callable[[], Any]) -> Session:
        session = _profiled(step, limits)
        sessions.append(session)
        _check(session, limits)
        return session

    yield profile_step
    if not sessions:
        pytest.fail("the test never called its fixture profile_ext with a step", pytrace=False)


def _takes_fixture(item: pytest.Item) -> bool:
    return _NAME in getattr(item, "fixturenames", ())


def _limits(item: pytest.Item) -> Limits:
    """Return what a test's marker asks for; the test fails if that makes no sense."""
    marker = item.get_closest_marker(_NAME)
    if marker is None:
        return Limits()
    from profiler_ext.findings.rules import RULES

    try:
        limits = Limits(*marker.args, **marker.kwargs)
    except TypeError as error:
        problem = str(error).rpartition("() ")[2]
        pytest.fail(f"the marker {problem}; expected {_MARKER}", pytrace=False)
    if limits.skip < 0 or limits.steps < 1:
        pytest.fail("the marker's skip must be 0 or more, its steps 1 or more", pytrace=False)
    known = [rule.name for rule in RULES]
    if unknown := [name for name in _rules(limits) if name not in known]:
        listed = ", ".join(known)
        pytest.fail(f"there is no rule {unknown[0]!r}; the rules are {listed}", pytrace=False)
    return limits


def _rules(limits: Limits) -> tuple[str, ...]:
    """Return the names of rules that a marker gives."""
    named = limits.no_finding
    if isinstance(named, bool):
        return ()
    return (named,) if isinstance(named, str) else tuple(named)


def _profiled(step: Callable[[], Any], limits: Limits) -> Session:
    """Run a step as often as asked, and return the session of the recorded ones."""
    import torch

    from profiler_ext import profile

    warmup = min(limits.skip, 1)
    schedule = torch.profiler.schedule(
        wait=limits.skip - warmup, warmup=warmup, active=limits.steps, repeat=1
    )
    with profile(schedule=schedule) as profiler:
        for _ in range(limits.skip + limits.steps):
            step()
            profiler.step()
    session: Session = profiler.session
    return session


def _check(session: Session, limits: Limits) -> None:
    """Fail the test if the session is above its limits."""
    recommendations = session.recommendations
    problems: list[str] = []
    recorded = f"{recommendations.step_ns / 1e6:.3g} ms while profiling"
    step_ns, words = recommendations.step_ns, recorded
    if recommendations.unprofiled_step_ns is not None:
        step_ns = recommendations.unprofiled_step_ns
        words = f"{step_ns / 1e6:.3g} ms ({recorded})"
    if limits.max_ms is not None and step_ns > limits.max_ms * 1e6:
        problems.append(f"step time {words} is above max_ms={limits.max_ms:g}")
    rules = _rules(limits)
    is_any = limits.no_finding is True
    unwanted = [each for each in recommendations.ranked if is_any or each.rule in rules]
    if unwanted:
        problems.append(f"{len(unwanted)} recommendation{'s' * (len(unwanted) > 1)}:")
        problems += [_finding_text(each, session) for each in unwanted[:_TOP]]
    if problems:
        pytest.fail("\n".join((*problems, *_top_lines(session))), pytrace=False)


def _finding_text(finding: Finding, session: Session) -> str:
    from profiler_ext.exporters.views.findings import saving_texts, where_text

    time, part = saving_texts(finding)
    where = where_text(finding.location, session.recording.settings)
    head = " ".join(filter(None, (time, part, finding.rule)))
    return (
        f"  {head}: {finding.summary}{f' ({where})' if where else ''}\n      try: {finding.remedy}"
    )


def _top_lines(session: Session) -> list[str]:
    """Return what took most device time in a step: lines, or ops where most time has no line."""
    from profiler_ext.exporters.table_kinds import table_by
    from profiler_ext.exporters.views.formatting import labels, percent_text, time_text
    from profiler_ext.exporters.views.summary import records
    from profiler_ext.records.step_kinds import of_usual_kind

    by_line = records(session.columns("by_line"))
    whole_ns = sum(row["duration_ns"] for row in by_line)
    has_lines = sum(row["duration_ns"] for row in by_line if row["file"]) * 2 >= whole_ns
    kind = table_by("line" if has_lines else "op")
    steps = max(len(of_usual_kind(session.analysis).steps), 1)
    settings = session.recording.settings
    return [
        f"top {kind.by}s by device time in a step:",
        *(
            f"  {time_text(row['duration_ns'] / steps):>8} "
            f"{percent_text(row['duration_ns'], whole_ns):>6}  "
            f"{'  '.join(filter(None, labels(kind, row, settings)))}"
            for row in records(session.columns(kind.name))[:_TOP]
        ),
    ]
