"""The running of one question's programs: each in a process, side by side on several GPUs.

DIR has one file of rows for each question. What it has is not run again, so that a run of minutes
goes on where the last one stopped; what failed, and what is named, is.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from verification.rows import gpus_of

__all__ = ["TINY", "Question", "Row", "answer", "measured_here", "run_within"]

Row = dict[str, Any]
TINY: Row = {"tiny": "it ran on the CPU, where nothing is measured"}
LATE = "not done within"
_LOG_BYTES = 3000  # of what a process that failed printed last
_GRACE_S = 20.0  # for a process to end its own


@dataclass(frozen=True)
class Question:
    """What is asked of programs, each of which answers with a row."""

    name: str
    names: Sequence[str]  # of the programs
    row: Callable[[str, Namespace], Row]  # measures one, in a process of its own
    table: Callable[[Sequence[Row]], str]
    timeout_s: float  # of one
    least_s: float  # none begins with less time left
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class _Run:
    question: Question
    options: Namespace
    rows: dict[str, Row]
    todo: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    lock: threading.Lock = field(default_factory=threading.Lock)
    until_s: float = 0.0

    @property
    def path(self) -> Path:
        path: Path = self.options.out / f"{self.question.name}.json"
        return path

    def keep(self, row: Row) -> None:
        """Write a row, with all that are known."""
        with self.lock:
            self.rows[row["name"]] = row
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(list(self.rows.values()), indent=1))
            part.replace(self.path)


def answer(question: Question, options: Namespace) -> int:
    """Run what is left, and print the table; 1 where anything failed or is left."""
    options.out.mkdir(parents=True, exist_ok=True)
    run = _Run(question, options, kept_rows(options.out / f"{question.name}.json"))
    if not options.again:
        for name in to_run(question.names, options.only, run.rows):
            run.todo.put(name)
        run.until_s = time.monotonic() + 60 * options.minutes
        workers = [threading.Thread(target=_work, args=(run, gpu)) for gpu in gpus_of(options.gpus)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    rows = [run.rows[name] for name in question.names if name in run.rows]
    text = question.table(rows)
    (options.out / f"{question.name}.md").write_text(text)
    print(text)
    left = [name for name in options.only or question.names if name not in run.rows]
    if left:
        print(f"Not run yet: {', '.join(left)}.")
    return int(bool(left) or any("failure" in row for row in rows))


def kept_rows(path: Path) -> dict[str, Row]:
    """The rows of a file, by name."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return {row["name"]: row for row in rows}


def to_run(names: Sequence[str], only: Sequence[str], rows: Mapping[str, Row]) -> list[str]:
    """What is named; else what has no row yet, and then what failed."""
    if only:
        return list(only)
    failed = [name for name in names if "failure" in rows.get(name, {})]
    return [*(name for name in names if name not in rows), *failed]


def _work(run: _Run, gpu: str) -> None:
    while run.until_s - time.monotonic() > run.question.least_s:
        try:
            name = run.todo.get_nowait()
        except queue.Empty:
            return
        left_s = run.until_s - time.monotonic()
        row = _measured(run, name, gpu, min(left_s, run.question.timeout_s))
        if LATE in row.get("failure", "") and left_s < run.question.timeout_s:
            print(f"{name}: its time was over; it is run again", flush=True)
            continue
        run.keep(row)
        print(f"{name}: {row.get('failure', 'done')}, {row['took_s']:.0f} s", flush=True)


def _measured(run: _Run, name: str, gpu: str, seconds: float) -> Row:
    """Run one program in a process, and return its row."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inside_", ignore_cleanup_errors=True) as folder:
        path, log = Path(folder) / "row.json", Path(folder) / "log"
        words = [sys.executable, "-W", "ignore", "-m", "verification.inside", run.question.name]
        words += ["--one", name, "--row", str(path), "--seconds", f"{seconds:.0f}"]
        words += ["--tiny"] * run.options.tiny
        words += ["--knock-out"] * getattr(run.options, "knock_out", False)
        with log.open("w") as printed:
            environment = environment_of(gpu, Path(folder)) | run.question.environment
            error = run_within(words, environment, printed, seconds)
        took = {"name": name, "took_s": time.monotonic() - began}
        if path.exists():
            row: Row = took | json.loads(path.read_text())
        else:
            row = took | {"failure": error or "the process ended without a row"}
        if "failure" in row:
            row["log"] = log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
        return row


def environment_of(gpu: str, folder: Path) -> dict[str, str]:
    """One GPU, and compile caches that nothing has filled."""
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": gpu,
        "PROFILER_EXT_LEARN": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def run_within(
    words: Sequence[str], environment: Mapping[str, str], printed: IO[str], seconds: float
) -> str:
    """Run a command; return why it did not come to its end, if so.

    It is asked to end, as it may have processes of its own, and then killed.
    """
    process = subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
    )
    try:
        code = process.wait(seconds)
        return f"{_named(words)} exited with {code}" if code else ""
    except subprocess.TimeoutExpired:
        return f"{LATE} {seconds:.0f} s: {_named(words)}"
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
            process.kill()
            process.wait()


def _named(words: Sequence[str]) -> str:
    """The last words of a command, which say what it was."""
    return " ".join(words[-6:])


def measured_here(question: Question, name: str, options: Namespace) -> int:
    """Write the row of one program, or of its failure."""
    import traceback

    with _ended_by_signal():
        try:
            row = question.row(name, options)
        except Exception as error:
            traceback.print_exc()
            row = {"failure": f"{type(error).__name__}: {error}"[:300]}
    options.row.write_text(json.dumps(row))
    return 0


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Let a signal to end pass through ``finally``, where children are ended."""
    import signal

    def end(*_: object) -> None:
        sys.exit("ended by a signal")

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
