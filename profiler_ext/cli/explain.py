"""``profiler-ext explain``: prints all about one line, module or kernel."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import (
    DEFAULT,
    FAILED,
    Parser,
    add_format,
    add_session,
    console,
    print_answer,
    print_message,
    write,
)
from profiler_ext.errors import UnclearNameError, UsageError

if TYPE_CHECKING:
    from profiler_ext.sessions.merging import MergedSession
    from profiler_ext.sessions.session import Session

HELP = "show everything about one line, module or kernel"

_TOP = 8


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    add_session(parser)
    parser.add_argument(
        "name",
        metavar="NAME",
        help="FILE:LINE, a module (layers.0.mlp, 'layers.*.mlp') or a kernel; prefix line:, "
        "module: or kernel: if it is ambiguous",
    )
    parser.add_argument(
        "--top", type=int, default=_TOP, metavar="N", help=f"rows per table {DEFAULT}"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="an earlier session: also show what changed since",
    )
    add_format(parser, ["text", "json", "md"])
    parser.show_examples(
        ("a line", "profiler-ext explain profile_out model.py:36"),
        ("a module of every layer", "profiler-ext explain profile_out 'layers.*.mlp'"),
    )
    parser.set_defaults(command=_explain)


def _explain(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.explain.making import candidates
    from profiler_ext.sessions.merging import load

    if not options.session.exists() and Path(options.name).exists():
        raise UsageError(
            f"there is no session {options.session}, and {options.name} is no name: give DIR and "
            f"then NAME, as in profiler-ext explain {options.name} {options.session}"
        )
    session = load(options.session, jobs=options.jobs)
    try:
        _print(session, options)
    except UnclearNameError as error:
        if options.format != "json":
            raise
        print_answer(candidates(session, options.name, error), options)
        print_message(f"[{error.slug}] {error}")
        return FAILED
    return 0


def _print(session: Session | MergedSession, options: argparse.Namespace) -> None:
    from profiler_ext.exporters.explain.against import Earlier
    from profiler_ext.exporters.explain.making import explain
    from profiler_ext.exporters.explain.printing import explained, print_page
    from profiler_ext.exporters.explain.sections import page
    from profiler_ext.sessions.merging import load

    earlier = (
        None
        if options.against is None
        else Earlier(str(options.against), load(options.against).analyses)
    )
    if options.format == "text":
        explanation = explain(session, options.name, options.top, earlier)
        print_page(page(explanation, session.analyses[0].recording.settings), console())
    else:
        given = {"top": options.top, "budget": options.budget, "earlier": earlier}
        write(explained(session, options.name, options.format, **given))
