"""``profiler-ext try``: measures remedies on an unmodified script, and writes the edit to make."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import (
    DEFAULT,
    Parser,
    add_folder,
    add_format,
    checked_program,
    positive_int,
    print_answer,
    print_line,
    print_message,
    script_words,
    write,
)
from profiler_ext.errors import UsageError
from profiler_ext.signals import SignalReceivedError

if TYPE_CHECKING:
    from profiler_ext.exporters.json_output.documents import TrialRow, TryAnswer
    from profiler_ext.trials.measuring import Script
    from profiler_ext.trials.remedy import Remedy
    from profiler_ext.trials.trying import Trials

HELP = "measure what a change would win, with and without it"

_STEPS, _PAIRS, _TIMEOUT_S = 10, 6, 600.0


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.usage = "profiler-ext try [OPTION ...] [REMEDY ...] -- SCRIPT [ARGUMENT ...]"
    parser.description = (
        "Run an unmodified script in child processes, as it is and with a remedy patched in, in "
        "turn, and compare the step times, until it is decided whether they differ. Without names: "
        "record it, and try what its recommendations propose."
    )
    parser.takes_program = True
    parser.add_argument("remedies", nargs="*", metavar="REMEDY", help="what to try (see --list)")
    parser.add_argument("--list", action="store_true", help="list the remedies")
    _add_runs(parser)
    add_folder(parser)
    add_format(parser, ("text", "json"))
    parser.show_examples(
        ("what the recommendations are worth", "profiler-ext try -- train.py --lr 3e-4"),
        ("two remedies", "profiler-ext try tf32 fused_optimizer -- train.py"),
        ("two ranks", "profiler-ext try -- torchrun --nproc-per-node 2 ddp.py"),
    )
    parser.set_defaults(command=_try, program=[])


def _add_runs(parser: Parser) -> None:
    """Add how long and how often the script runs."""
    parser.add_argument(
        "--steps", type=positive_int, default=_STEPS, metavar="N",
        help="steps to time in each run, once they are steady; more if they take less than 2 s "
        f"{DEFAULT}",
    )  # fmt: skip
    parser.add_argument(
        "--pairs", type=int, default=_PAIRS, metavar="N",
        help="runs with and without each remedy at most, 2 or more; fewer if they decide "
        f"{DEFAULT}",
    )  # fmt: skip
    parser.add_argument(
        "--step-on",
        default="",
        metavar="WHAT",
        help="what ends a step, as of `profiler-ext run` (default: as there)",
    )
    parser.add_argument(
        "--copy", action="store_true",
        help="run each child in a working copy of the script's folder",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=_TIMEOUT_S, metavar="S",
        help=f"seconds after which a run is ended {DEFAULT}",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=float, default=None, metavar="S",
        help="seconds for all runs; what has no verdict by then is undecided (default: no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--memory",
        action="store_true",
        help="also try what lowers the peak of device memory, and compare it with what is claimed",
    )
    parser.add_argument(
        "--no-diff", dest="diff", action="store_false",
        help="do not record what wins to say what changed in the step time breakdown",
    )  # fmt: skip


def _try(options: argparse.Namespace) -> int:
    if options.list:
        _print_list()
        return 0
    script = _script(options)
    from profiler_ext.trials.measuring import Children, StoppedError
    from profiler_ext.trials.trying import Trials, named

    remedies = named(options.remedies)
    logs = options.output / "try_logs"
    _make_folder(options, logs)
    until_s = math.inf if options.limit is None else time.monotonic() + options.limit
    children = Children(script, logs, print_message, until_s=until_s)
    trials = Trials(children, options.pairs)
    by_hand: list[Remedy] = []
    interruption: BaseException | None = None
    try:
        _measure(trials, remedies, by_hand, options)
    except StoppedError as stop:
        trials.stop(str(stop))
    except (SignalReceivedError, KeyboardInterrupt) as error:
        trials.stop(str(error) or "Ctrl-C")
        interruption = error
    _report(trials.answer(by_hand), options)
    if interruption is not None:
        raise interruption
    return 0


def _measure(
    trials: Trials,
    remedies: Sequence[Remedy],
    by_hand: list[Remedy],
    options: argparse.Namespace,
) -> None:
    """Try remedies, or what the findings propose; ``by_hand`` gets what cannot be patched in."""
    session = None
    if not remedies:
        proposals = _propose(trials, options)
        session = options.output
        by_hand += [each for each in proposals if each.apply is None]
        remedies = [each for each in proposals if each.apply is not None]
    if not remedies:
        trials.notes.append("no recommendation of the session has a remedy that can be patched in")
        return
    _announce(trials, [each.name for each in remedies])
    trials.run(remedies)
    if options.diff:
        trials.record_changes(options.output / "try_sessions", session)


def _report(answer: TryAnswer, options: argparse.Namespace) -> None:
    """Keep an answer, and print it."""
    from profiler_ext.trials.trying import keep

    written = keep(answer, options.output)
    if options.format == "json":
        print_answer(answer, options)
        return
    _print(answer)
    print_line("")
    print_line(f"written to {options.output}: {written.name}, try_logs (what the script printed)")


def _propose(trials: Trials, options: argparse.Namespace) -> Sequence[Remedy]:
    """Record the script; returns what its findings propose."""
    from profiler_ext.trials.trying import claims, proposed

    words = " ".join(trials.children.script.words)
    print_message(f"records {words} once, to see what to try; each run has {_variable()}")
    error = trials.children.record(options.output, memory=options.memory)
    if error is not None:
        raise UsageError(f"{words} could not be recorded: {error}; see {trials.children.logs}")
    trials.claims = claims(options.output)
    return proposed(options.output)


def _announce(trials: Trials, names: Sequence[str]) -> None:
    """Say what will be run, and how often."""
    script, most = trials.children.script, trials.most_children(len(names))
    trials.children.expected = trials.children.count + most
    place = "in copies of its folder" if script.copies else (
        "in its own folder: what it writes is written each time (--copy)"
    )  # fmt: skip
    print_message(
        f"runs {' '.join(script.words)} at most {most} times, fewer once it is decided, "
        f"{place}, each until its steps are steady and for {script.steps} more or 2 s, with and "
        f"without: {', '.join(names)}"
    )


def _variable() -> str:
    from profiler_ext.trials.measuring import VARIABLE

    return f"{VARIABLE}=1 in its environment"


def _script(options: argparse.Namespace) -> Script:
    """Read the words after ``--``, and check the options."""
    from profiler_ext.trials.measuring import Script, parsed_launcher

    if options.pairs < 2:
        raise UsageError("--pairs takes 2 or more: one run of each says nothing of their spread")
    names = "".join(f" {each}" for each in options.remedies if not each.endswith(".py"))
    words = script_words(options.program, f"profiler-ext try{names}")
    is_launched = Path(words[0]).name == "torchrun"
    launcher: tuple[str, ...] = ()
    if is_launched:
        launcher, words = parsed_launcher(words[1:])
    return Script(
        checked_program(words, options),
        launcher,
        is_launched,
        options.step_on,
        options.steps,
        options.timeout,
        options.copy,
    )


def _make_folder(options: argparse.Namespace, logs: Path) -> None:
    from profiler_ext.sessions.folder import check_folder

    check_folder(options.output, force=options.force or bool(options.remedies))
    check_folder(logs, force=True)
    for old in logs.glob("*.log"):
        old.unlink()


def _print_list() -> None:
    from profiler_ext.trials import REMEDIES

    for title, is_tried in (("remedies", True), ("only by hand", False)):
        lines = (
            f"  {each.name:27} {each.title}\n{'':30}{each.edit}\n"
            for each in REMEDIES
            if (each.apply is not None) is is_tried
        )
        write(f"{title}:\n{''.join(lines)}")


def _print(answer: TryAnswer) -> None:
    """Print what was measured, and the edit to make."""
    from profiler_ext.exporters.views.trials import trial_text

    measured = [row for row in answer.rows if row.step_ns is not None]
    if measured:
        _print_table(measured)
    for row in answer.rows:
        if row.step_ns is None:
            name = "+ " * bool(row.on_top_of) + row.remedies[0]
            print_line(f"{name}: {row.verdict}: {row.reason}")
    print_line("")
    if any(row.gain_low is not None for row in measured):
        looks = answer.pairs - 1
        each_look = f"; {100 - 5 / looks:g}% at each of up to {looks} looks" if looks > 1 else ""
        print_line(f"95% interval: Welch's, of the runs' median steps{each_look}")
    print_line(trial_text(answer))
    for note in answer.notes:
        print_line(note)
    if answer.diff:
        write(f"\n{answer.diff}")
    for edit in answer.edits:
        places = f" ({', '.join(edit.places)})" if edit.places else ""
        tried = "" if edit.is_tried else ", which cannot be tried from outside"
        print_line(f"edit by hand: {edit.edit}{places}: {edit.remedy}{tried}")


_COLUMNS = "{:27} {:>10} {:>10} {:>7}  {:17} {}"


def _print_table(rows: Sequence[TrialRow]) -> None:
    from profiler_ext.exporters.views.trials import (
        change_text,
        interval_text,
        losses_text,
        ms_text,
        part_text,
    )

    header = ("remedy", "without", "with", "gain", "95% interval", "verdict")
    print_line(_COLUMNS.format(*header))
    for row in rows:
        name = "+".join(row.remedies)
        shown = f"+ {name}" if row.on_top_of else name
        times = (ms_text(row.base_step_ns), ms_text(row.step_ns), part_text(row.gain))
        print_line(_COLUMNS.format(shown, *times, interval_text(row), row.verdict))
        runs = f"{row.base_children} and {row.children} runs"
        print_line(f"    {runs}, losses {losses_text(row)}{_memory(row)}{_seconds(row)}")
        if row.changes:
            print_line(f"    recorded step: {', '.join(map(change_text, row.changes))}")


def _memory(row: TrialRow) -> str:
    """Return the peak memory, and how much more that is."""
    if row.peak_bytes is None or row.base_peak_bytes is None:
        return ""
    change = (row.peak_bytes - row.base_peak_bytes) / 1e6
    text = f", peak memory {row.peak_bytes / 1e6:,.0f} MB ({change:+,.0f})"
    if row.reserved_bytes is not None and row.base_reserved_bytes is not None:
        change = (row.reserved_bytes - row.base_reserved_bytes) / 1e6
        text += f", reserved {row.reserved_bytes / 1e6:,.0f} MB ({change:+,.0f})"
    claimed = row.claimed_bytes
    return text if claimed is None else f"{text}, claimed {-claimed / 1e6:+,.0f} MB"


def _seconds(row: TrialRow) -> str:
    """Return how long it takes until steps are steady, and how much longer that is."""
    if row.startup_ns is None or row.base_startup_ns is None:
        return ""
    change = (row.startup_ns - row.base_startup_ns) / 1e9
    return f", start-up {row.startup_ns / 1e9:.1f} s ({change:+.1f})"
