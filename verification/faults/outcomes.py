"""What a file says of each planted failure: a line of JSON, for whoever counts them later."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from verification.faults.runs import Fault, Result
from verification.faults.verdicts import FORBIDDEN, Verdict

_MESSAGE_CHARACTERS = 300
_FORBIDDEN_CHARACTERS = 6000


def record(path: Path | None, script: str, fault: Fault, result: Result, found: Verdict) -> None:
    """Add one failure to a file; of a forbidden one, how its run went.

    Args:
        path: the file; ``None`` where nothing is to be written.
        script: the name of the script.
        fault: what was planted.
        result: the run.
        found: what it cost.
    """
    if path is None:
        return
    row = {
        "script": script,
        "function": fault.function,
        "error": fault.error.__name__,
        "call": fault.call,
        "verdict": found,
        "is_of_another": result.is_of_another,
    }
    with path.open("a") as lines:
        lines.write(json.dumps(row | _more(result, found)) + "\n")


def _more(result: Result, found: Verdict) -> dict[str, object]:
    if found in FORBIDDEN:
        end = result.stderr[-_FORBIDDEN_CHARACTERS:]
        return {"code": result.code, "notes": result.notes, "files": result.files, "stderr": end}
    if found in (Verdict.NO_SESSION, Verdict.LESS):
        at = result.stderr.rfind("profiler-ext: ")
        return {"message": result.stderr[at:][:_MESSAGE_CHARACTERS]}
    return {}


def rows(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield what files say, a failure each."""
    for path in paths:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            yield from map(json.loads, lines)


def main() -> None:
    """Print what the files that are named say: by script and outcome, then by error."""
    reported = list(rows([Path(each) for each in sys.argv[1:]]))
    for key in ("script", "error"):
        for (each, found), count in sorted(
            Counter((r[key], r["verdict"]) for r in reported).items()
        ):
            print(f"{count:6} {each:18} {found}")
    for found, count in Counter(row["verdict"] for row in reported).most_common():
        print(f"{count:6} {count / len(reported):6.1%} {found}")
    for row in (row for row in reported if row["verdict"] in FORBIDDEN):
        print(*(row[key] for key in ("verdict", "script", "function", "error", "call")))


if __name__ == "__main__":
    main()
