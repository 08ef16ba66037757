"""``profiler-ext report``: prints tables of a session."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import (
    ABOVE_LIMIT,
    Parser,
    add_format,
    add_rank,
    add_session,
    add_step,
    add_step_kind,
    console,
    print_answer,
    print_line,
    write,
)

if TYPE_CHECKING:
    from profiler_ext.exporters.json_output.documents import Answer
    from profiler_ext.exporters.tables.selection import Filters
    from profiler_ext.sessions.merging import MergedSession
    from profiler_ext.sessions.session import Session

HELP = "show where the time went, and what to change"

_BY, _TOP = "line", 15


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    from profiler_ext.exporters.table_kinds import BY, PRINT_FORMATS

    add_session(parser)
    parser.add_argument(
        "--by",
        choices=list(BY),
        metavar="WHAT",
        help="sum time by %(choices)s (default: line; with --format json an overview)",
    )
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help=f"number of rows (default: {_TOP}; of recommendations 100, in JSON all)",
    )
    parser.add_argument(
        "--depth",
        type=int,
        metavar="N",
        help="with --by module: depth of the tree (default: what fits the rows)",
    )
    _add_memory(parser)
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="all recommendations' figures, each step, idle lines, compile times and notes",
    )
    _add_filters(parser.add_argument_group("filters"))
    _add_findings(parser.add_argument_group("recommendations"))
    add_format(parser, [each.name for each in PRINT_FORMATS])
    parser.show_examples(
        (
            "modules in the backward",
            "profiler-ext report profile_out --by module --phase backward",
        ),
        ("for a program", "profiler-ext report profile_out --by kernel --format json"),
        ("in CI", "profiler-ext report profile_out --findings --fail-above 5%"),
    )
    parser.set_defaults(command=_report)


def _add_filters(group: argparse._ArgumentGroup) -> None:
    from profiler_ext.records.vocabulary import Phase, Scope

    add_step(group)
    add_step_kind(group)
    add_rank(group)
    scopes = [Scope.COMPILED.value, Scope.EAGER.value]
    group.add_argument("--scope", choices=scopes, help="only compiled, or only eager work")
    phases = [each.value for each in Phase]
    group.add_argument(
        "--phase", choices=phases, metavar="PHASE", help="only this phase: %(choices)s"
    )
    group.add_argument(
        "--kernel", metavar="NAME", help="only kernels whose name contains NAME; * matches any text"
    )


def _add_memory(parser: Parser) -> None:
    parser.add_argument(
        "--memory",
        action="store_const",
        const="memory",
        dest="by",
        help="what is alive at the peak of device memory: the same as --by memory",
    )


def _add_findings(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--findings", action="store_true", help="print all recommendations, nothing else"
    )
    group.add_argument(
        "--fail-above",
        type=_percent,
        metavar="PERCENT",
        help=f"exit with {ABOVE_LIMIT} if a recommendation is worth more than this share of the "
        "step time: 5%%",
    )


def _report(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.table_kinds import table_by
    from profiler_ext.sessions.merging import load

    if options.by == "memory" and _print_out_of_memory(options):
        return 0
    session = load(options.session, jobs=options.jobs)
    if options.by == "memory":
        table_by(options.by).require_rows(session.columns("by_memory"))
    if options.format == "json":
        print_answer(_answer(session, options), options)
    else:
        if options.by is None and options.format == "text":
            _print_trial(options)
        (_print_findings if options.findings else _print_table)(session, options)
    return ABOVE_LIMIT if _is_above(session, options.fail_above) else 0


def _print_out_of_memory(options: argparse.Namespace) -> bool:
    """Print the reports that are named, or in a folder without a session; tell whether any is."""
    from profiler_ext.exporters.formats import FILE_NAME
    from profiler_ext.exporters.terminal.out_of_memory import out_of_memory_screen
    from profiler_ext.memory import out_of_memory

    place = Path(options.session)
    has_session = (place / FILE_NAME).is_file() or any(place.glob(f"rank_*/{FILE_NAME}"))
    reports = [out_of_memory.read(path) for path in out_of_memory.reports_in(place)]
    if has_session or not reports:
        return False
    if options.format == "json":
        write(out_of_memory.json_text(reports))
        return True
    for report in reports:
        screen = console()
        screen.print(out_of_memory_screen(report, options.top or _TOP, screen.width))
    return True


def _print_trial(options: argparse.Namespace) -> None:
    """Print what was measured of the recommendations, before what is estimated."""
    from profiler_ext.exporters.views.trials import row_text, trial_of, trial_text

    if (answer := trial_of(options.session)) is not None and answer.rows:
        print_line(f"Measured by profiler-ext try: {trial_text(answer)}")
        for row in answer.rows:
            print_line(f"  {row_text(row)}")


def _answer(session: Session | MergedSession, options: argparse.Namespace) -> Answer:
    from profiler_ext.exporters.json_output import answers
    from profiler_ext.exporters.table_kinds import table_by
    from profiler_ext.exporters.views.trials import measurements, trial_of

    filters = _filters(options)
    if options.findings:
        measured = measurements(trial_of(options.session))
        return answers.findings_answer(session, options.top, measured)
    top = _TOP if options.top is None else options.top
    if options.by is None and {options.depth, *filters.values()} == {None}:
        return answers.report_answer(session, top, measurements(trial_of(options.session)))
    kind = table_by(options.by or _BY)
    return answers.table_answer(session, kind, top, options.depth, **filters)


def _filters(options: argparse.Namespace) -> Filters:
    return {
        "scope": options.scope,
        "phase": options.phase,
        "step": options.step,
        "step_kind": options.step_kind,
        "rank": options.rank,
        "kernel": options.kernel,
    }


def _print_table(session: Session | MergedSession, options: argparse.Namespace) -> None:
    from profiler_ext.exporters.terminal.first_screen import next_steps
    from profiler_ext.exporters.terminal.report import print_session, report

    filters = _filters(options)
    top = _TOP if options.top is None else options.top
    if options.format != "text":
        write(report(session, options.by, top, options.format, depth=options.depth, **filters))
        return
    print_session(
        session,
        console(),
        by=options.by or (None if options.top is None else _BY),
        top=top,
        depth=options.depth,
        verbose=options.verbose,
        commands=next_steps(session, options.session),
        **filters,
    )


def _print_findings(session: Session | MergedSession, options: argparse.Namespace) -> None:
    from profiler_ext.exporters.terminal.report import print_all
    from profiler_ext.exporters.views.summary import table_text
    from profiler_ext.sessions.session import Session

    if options.format == "text":
        first = session if isinstance(session, Session) else session.sessions[0]
        print_all(session.recommendations, first.recording.settings, console(), options.top)
    else:
        write(table_text(session.columns("findings"), options.top, options.format))


def _is_above(session: Session | MergedSession, limit: float | None) -> bool:
    """Tell whether a finding's cost is above a fraction of the step time."""
    if limit is None:
        return False
    from profiler_ext.findings import SavingPer

    of_steps = (
        each for each in session.recommendations.ranked if each.saving_per is SavingPer.STEP
    )
    return any(each.fraction > limit for each in of_steps)


def _percent(text: str) -> float:
    number = text.removesuffix("%")
    try:
        part = float(number) / 100
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a percentage from 0% to 100%: 5%")
    return part
