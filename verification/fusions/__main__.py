"""``python -m verification.fusions``: are fusions that are said to be missed worth what is said?

    python -m verification.fusions [--only NAME ...] [--again] [--tiny] [--out DIR]

Each kind runs in a process of its own: its flawed and its remedied step are timed in turn without
a profiler, then both are recorded. DIR has a row in JSON and the sessions of each, and the table.
``--again`` judges the sessions in DIR by the rules of today.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verification.flaws.measuring import compare, findings_of, found_again, recorded, sizes_of
from verification.flaws.programs.program import Sizes, Step
from verification.rows import row_of_process

from . import programs, unfitted, unseen
from .judging import marked_lines, table

TIMEOUT_S = 170
_ROOMS = (programs, unfitted, unseen)
NAMES = tuple(name for room in _ROOMS for name in room.__all__)


def main() -> int:
    """Run or read what is asked for; 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="verification.fusions", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=NAMES)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--out", type=Path, default=Path("out/fusions"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        return _measure(options.one, options.tiny, options.out)
    run = _read_again if options.again else _run
    rows = [run(name, options) for name in options.only]
    text = table(rows)
    (options.out / "fusions.md").write_text(text)
    print(text)
    return 1 if any("failure" in row for row in rows) else 0


def builder(name: str) -> Callable[[bool, Sizes], Step]:
    """What makes the flawed or the remedied step of a kind."""
    room = next(each for each in _ROOMS if name in each.__all__)
    made: Callable[[bool, Sizes], Step] = getattr(room, name)
    return made


def _measure(name: str, is_tiny: bool, out: Path) -> int:
    import profiler_ext

    profiler_ext.enable()
    try:
        make, sizes = builder(name), sizes_of(is_tiny)
        lines = [list(each) for each in sorted(marked_lines(name))]
        row = {"name": name, "lines": lines, **compare(name, make, sizes, out)}
        remedied = out / f"{name}_remedied"
        session = recorded(make(False, sizes))
        session.save(remedied)
        row["of_remedied"] = findings_of(session, remedied)["findings"]
    except Exception as error:
        traceback.print_exc()
        row = {"name": name, "failure": f"{type(error).__name__}: {error}"[:300]}
    (out / f"{name}.json").write_text(json.dumps(row, indent=1))
    return 0


def _run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    words = ["verification.fusions", "--one", name, *["--tiny"] * options.tiny]
    environment = {"TEARDOWN_CUPTI": "1", "PROFILER_EXT_LEARN": "0"}
    return row_of_process(name, words, options.out, environment, TIMEOUT_S)


def _read_again(name: str, options: argparse.Namespace) -> dict[str, Any]:
    path = options.out / f"{name}.json"
    if not path.exists():
        return {"name": name, "failure": "it was not run"}
    return found_again(json.loads(path.read_text()), options.out)


if __name__ == "__main__":
    sys.exit(main())
