"""Owns the command line: ``profiler-ext run``, ``report``, ``annotate``, ``doctor`` and others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.errors import ProfilerExtError

if TYPE_CHECKING:
    from profiler_ext.session import Session

FAILED = 2
_FILE_WIDTH = 240
_FORMATS = ("text", "csv", "json", "md")
_TABLES = ("line", "module", "op", "kernel", "phase")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command line without the program; by default the process's own.

    Returns:
        The exit code: 0, the script's own, 2 for an error, 3 for a script that never stepped.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except ProfilerExtError as error:
        print(f"profiler-ext: {error}", file=sys.stderr)
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profiler-ext",
        description="Lead every GPU microsecond of a compiled training step to the model's lines.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="profile the steps of an untouched script"))
    _add_report(commands.add_parser("report", help="print where the time of a session went"))
    _add_annotate(commands.add_parser("annotate", help="print source with time in the margin"))
    _add_export(commands.add_parser("export", help="write a session in another format"))
    _add_merge(commands.add_parser("merge", help="put the sessions of ranks into one"))
    _add_seq_table(commands.add_parser("seq-table", help="print which forward a backward op has"))
    doctor = commands.add_parser("doctor", help="say what fits here, and what does not")
    doctor.set_defaults(command=_doctor)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--skip", type=int, default=3, help="steps before the first recorded one")
    parser.add_argument("--steps", type=int, default=2, help="steps to record")
    parser.add_argument("--step-on", metavar="NAME", help="class of the optimizer that ends a step")
    parser.add_argument("-o", "--output", type=Path, default=Path("profile_out"), metavar="DIR")
    parser.add_argument("--force", action="store_true", help="replace a session that is in DIR")
    parser.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER)
    parser.add_argument("script", nargs="?", help="the script, with its own arguments after it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(command=_run, parser=parser)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", type=Path, metavar="DIR", help="a session's folder, or a trace")
    parser.add_argument("--by", choices=_TABLES, default="line")
    parser.add_argument("--top", type=int, default=15, help="how many rows")
    parser.add_argument("--format", choices=_FORMATS, default="text")
    parser.set_defaults(command=_report)


def _add_annotate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", type=Path, metavar="DIR", help="a session's folder, or a trace")
    parser.add_argument("files", nargs="*", metavar="FILE", help="default: all that took time")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(command=_annotate)


def _add_export(parser: argparse.ArgumentParser) -> None:
    from profiler_ext.session import FORMATS

    parser.add_argument("session", type=Path, metavar="DIR", help="a session's folder, or a trace")
    parser.add_argument("--to", choices=FORMATS, required=True)
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="default: beside DIR")
    parser.set_defaults(command=_export)


def _add_seq_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "example",
        metavar="FILE.py:FUNCTION",
        help="a function, or MODULE:FUNCTION, that returns a model and its inputs",
    )
    parser.add_argument("--format", choices=_FORMATS, default="text")
    parser.set_defaults(command=_seq_table)


def _add_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", type=Path, metavar="DIR", help="folders of ranks")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.set_defaults(command=_merge)


def _run(options: argparse.Namespace) -> int:
    from profiler_ext.running import Request, output_folder, run

    words = options.module or [options.script, *options.arguments]
    if not words or words[0] is None:
        options.parser.error("name a script, or a module with -m")
    request = Request(
        target=words[0],
        arguments=tuple(words[1:]),
        is_module=options.module is not None,
        folder=options.output,
        skip=options.skip,
        steps=options.steps,
        step_on=options.step_on,
        force=options.force,
    )
    outcome = run(request)
    if outcome.session is not None:
        _print_session(outcome.session, output_folder(request))
    for remark in outcome.remarks:
        print(f"profiler-ext: {remark}", file=sys.stderr)
    return outcome.exit_code


def _print_session(session: Session, folder: Path) -> None:
    from rich.console import Console

    from exporters.terminal import print_report

    if session.recording.settings.rank != 0:
        return
    console = Console(highlight=False, soft_wrap=False)
    print_report(session.analysis, console)
    console.print(f"\nwritten to {folder}:", markup=False)
    for name, use in _FILES.items():
        console.print(f"  {name:24} {use}", markup=False, no_wrap=True, overflow="ellipsis")


def _report(options: argparse.Namespace) -> int:
    from rich.console import Console

    from exporters.terminal import print_report, report
    from exporters.terminal_ranks import print_ranks_report
    from exporters.wording import table_text
    from profiler_ext.merging import MergedSession, load

    session = load(options.session)
    if isinstance(session, MergedSession):
        if options.format == "text":
            console = Console(highlight=False)
            print_ranks_report(session, console, by=options.by, top=options.top)
        else:
            sys.stdout.write(table_text(session.by(options.by), options.top, options.format))
    elif options.format == "text":
        print_report(session.analysis, Console(highlight=False), by=options.by, top=options.top)
    else:
        sys.stdout.write(report(session.analysis, options.by, options.top, options.format))
    return 0


def _annotate(options: argparse.Namespace) -> int:
    from rich.console import Console

    from exporters.annotate import annotate, print_annotated
    from exporters.sources import sources_here
    from profiler_ext.session import load

    analysis = load(options.session).analysis
    texts = sources_here(analysis)
    if options.format == "text":
        console = Console(highlight=False)
        if not console.is_terminal:  # a file or a pipe keeps whole lines
            console.width = _FILE_WIDTH
        print_annotated(analysis, console, texts, options.files)
    else:
        sys.stdout.write(annotate(analysis, texts, options.files, options.format))
    return 0


def _export(options: argparse.Namespace) -> int:
    from profiler_ext.merging import MergedSession, export_ranks_as, load
    from profiler_ext.session import export_as

    session = load(options.session)
    target = options.output or _default_target(options.session, options.to)
    if isinstance(session, MergedSession):
        print(export_ranks_as(session, options.to, target))
    else:
        print(export_as(session, options.to, target))
    if options.to == "tensorboard":
        _print_how_to_view(target)
    return 0


def _merge(options: argparse.Namespace) -> int:
    from profiler_ext.merging import export_ranks_as, merge, rank_folders
    from profiler_ext.session import load as load_one

    folders = [rank for each in options.sessions for rank in rank_folders(each) or [each]]
    merged = merge([load_one(folder) for folder in folders])
    merged.save(options.output)
    export_ranks_as(merged, "perfetto", options.output / "trace.pftrace")
    export_ranks_as(merged, "csv", options.output)
    for note in merged.notes:
        print(f"profiler-ext: {note}", file=sys.stderr)
    print(options.output)
    return 0


def _print_how_to_view(log_dir: Path) -> None:
    from exporters.tensorboard_plugin.viewing import how_to_view

    for sentence in how_to_view(log_dir):
        print(f"profiler-ext: {sentence}", file=sys.stderr)


def _default_target(session: Path, format: str) -> Path:
    folder = session if session.is_dir() else session.parent
    return folder / _DEFAULTS[format]


def _seq_table(options: argparse.Namespace) -> int:
    from exporters.tables import csv_text, json_text, markdown_text, seq_text
    from profiler_ext.joint_table import load_example, seq_table

    writers = {"text": seq_text, "csv": csv_text, "json": json_text, "md": markdown_text}
    model, inputs = load_example(options.example)
    sys.stdout.write(writers[options.format](seq_table(model, inputs)))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from profiler_ext.doctor import examine

    findings = examine()
    for finding in findings:
        print(finding.line())
    return FAILED if any(finding.is_fatal for finding in findings) else 0


_FILES = {
    "trace.pftrace": "open it in the Perfetto UI",
    "session.pt.trace.json.gz": "loads back: profiler-ext report DIR; opens in Perfetto too",
    "report.html": "open it in a browser",
    "launches.csv": "one row for each launch",
    "attribution.csv": "one row for each launch and FX node",
    "coverage.csv": "the ledger",
    "graphs.csv": "the compiled graphs",
}
_DEFAULTS = {
    "perfetto": "trace.pftrace",
    "chrome": "trace.json.gz",
    "tensorboard": "tensorboard",
    "csv": "csv",
    "parquet": "parquet",
    "html": "report.html",
}
