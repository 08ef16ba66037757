"""``python -m verification.inside``: is what is said of the inside of kernels so?

    python -m verification.inside lines [--kernels 5000] [--assemble 300]     needs no GPU
    python -m verification.inside planted|ncu|model|profile
        [--only NAME ...] [--minutes M] [--gpus N] [--again] [--tiny] [--out DIR]

`planted` compares knock-out with a second program that lacks the line; `ncu` samples with those of
Nsight Compute, line by line; `model` the cost model with samples and knock-out, in the kernels of
training steps; `profile` looks whether `profile(inside=...)` has its shares in its tables. Each
program runs in processes of its own. DIR has a file of rows in JSON and a table of each question.
None begins after the minutes; the same command goes on where it stopped. ``--again`` makes the
table of the rows in DIR.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from verification.inside import judging
from verification.inside.lines import count_lines
from verification.inside.looking import by_model, by_ncu
from verification.inside.measuring import by_planted
from verification.inside.models import MODELS
from verification.inside.planted import CASES
from verification.inside.profiled import WAYS, by_profile
from verification.inside.running import Question, answer, measured_here

QUESTIONS = (
    Question("planted", tuple(CASES), by_planted, judging.planted_table, 240, 45),
    Question("ncu", tuple(MODELS), by_ncu, judging.ncu_table, 700, 240),
    Question("model", tuple(MODELS), by_model, judging.model_table, 480, 150),
    # Its programs compile several times in a process
    Question(
        "profile", tuple(WAYS), by_profile, judging.profile_table, 150, 45,
        {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
    ),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one question; 1 where anything failed or is left."""
    options = _parser().parse_args(arguments)
    if options.question == "lines":
        return count_lines(options)
    question = next(each for each in QUESTIONS if each.name == options.question)
    unknown = [name for name in options.only if name not in question.names]
    if unknown:
        print(f"there is no {', '.join(unknown)}; there are {', '.join(question.names)}")
        return 2
    if options.one:
        return measured_here(question, options.one, options)
    return answer(question, options)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m verification.inside", description=__doc__, formatter_class=form
    )
    asked = parser.add_subparsers(dest="question", required=True)
    lines = asked.add_parser("lines", help="lines of random models' kernels")
    lines.add_argument("--kernels", type=int, default=500, help="stop after so many")
    lines.add_argument("--assemble", type=int, default=0, help="compile every n-th kernel")
    lines.add_argument("--seed", type=int, default=0, help="the first model's")
    lines.add_argument("--seconds", type=int, default=480, help="stop after so long")
    lines.add_argument("--json", default="inside.json", help="where the details go")
    for question in QUESTIONS:
        of_gpu = asked.add_parser(question.name)
        of_gpu.add_argument("--only", nargs="+", metavar="NAME", default=[], help="run these again")
        of_gpu.add_argument("--minutes", type=float, default=9.0, help="for this command")
        of_gpu.add_argument("--gpus", type=int, default=1, help="one program at a time on each")
        of_gpu.add_argument("--again", action="store_true", help="run nothing")
        of_gpu.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
        of_gpu.add_argument("--out", type=Path, default=Path("out/inside"))
        of_gpu.add_argument("--one", help=argparse.SUPPRESS)
        of_gpu.add_argument("--row", type=Path, help=argparse.SUPPRESS)
        of_gpu.add_argument("--seconds", type=float, default=600.0, help=argparse.SUPPRESS)
        if question.name == "model":
            of_gpu.add_argument("--knock-out", action="store_true", help="and not samples alone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
