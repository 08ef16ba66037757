"""That a program is run without us and with us, and what differs between the two."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.exporters.table_kinds import TABLES
from profiler_ext.sessions.session import FILE_NAME, load
from tests.patience import patience_s
from verification.programs.program import ANY, IN_ITS_PLACE, NONE, PART, SERIES, WHOLE, Program

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
OPTIONS = ("--skip", "1", "--steps", "2")
FILES = {
    "report.html",
    "session.pt.trace.json.gz",
    "trace.pftrace",
    *(f"{table.name}.csv" for table in TABLES if table.is_written and not table.is_optional),
}
_NOT_COMPARED = (
    "ignore:This process:DeprecationWarning",  # Kineto has threads
    "ignore:a model was compiled before",  # it was, where our profile stands in torch's place
)
_ENTRY = "import sys\nfrom profiler_ext.cli import main\nsys.exit(main())\n"
_STARTED = (ROOT / "profiler_ext_autostart.pth").read_text()


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code (a signal's is negative), and what it wrote."""

    code: int | None
    stdout: str
    stderr: str
    out: Path


class Zygote:
    """A process that has imported torch, and forks for each program."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, request: dict, seconds: float) -> int | None:
        """Return the exit code, ``None`` where it did not end in time."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        pid = self._number()
        ended = bool(select.select([self._process.stdout], [], [], seconds)[0])
        with contextlib.suppress(ProcessLookupError):  # what it left behind too
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(self._number())
        return code if ended else None

    def _number(self) -> int:
        """Read a number of ten digits, past no buffer, so that one can wait for the next."""
        assert self._process.stdout is not None
        return int(os.read(self._process.stdout.fileno(), 11))

    def close(self) -> None:
        self._process.communicate()


class Runner:
    """Runs programs in ``folder``; what they compile is kept in one cache."""

    def __init__(self, folder: Path, seconds: float = patience_s(90)) -> None:
        self._folder = folder
        self._seconds = seconds
        self._zygote: Zygote | None = None
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "profiler-ext").write_text(_ENTRY)
        (folder / "started").mkdir()
        (folder / "started" / "sitecustomize.py").write_text(_STARTED)

    def close(self) -> None:
        if self._zygote is not None:
            self._zygote.close()

    def differences(self, program: Program, modes: tuple[str, ...] = ()) -> dict[str, list[str]]:
        """Return what differs from the run without us, for each way to run with us."""
        plain = self.ended(program, "plain")
        if plain.code is None:
            return {mode: ["hangs without us"] for mode in modes or program.modes}
        return {
            mode: compared(program, mode, plain, self.ended(program, mode))
            for mode in modes or program.modes
        }

    def ended(self, program: Program, mode: str) -> Ended:
        """Run a program in a fresh copy of the scripts."""
        work = self._folder / "scripts"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(SCRIPTS, work)
        for name, text in program.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        out = self._folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        streams = [self._folder / name for name in ("stdout", "stderr")]
        for stream in streams:
            stream.unlink(missing_ok=True)
        start = self._start_real if program.real else self._start_forked
        code = start(program, mode, work, out, streams)
        texts = [s.read_text(errors="backslashreplace") if s.exists() else "" for s in streams]
        return Ended(code, *texts, out)

    def _environment(self, program: Program, mode: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "PROFILER_EXT"))}
        found = kept | {
            "PYTHONPATH": os.pathsep.join([str(self._folder / "started"), str(ROOT)]),
            "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "cache"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "COLUMNS": "120",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": ",".join(_NOT_COMPARED),
        }
        if mode == "variable":
            found["PROFILER_EXT"] = "1"
        found["PROGRAMS_PROFILER"] = "profiler_ext" if mode == IN_ITS_PLACE else "torch.profiler"
        for name, value in program.environment.items():
            more = value.startswith("+")
            found[name] = found[name] + os.pathsep + value[1:] if more else value
        return {name: value for name, value in found.items() if value}

    def _start_forked(
        self, program: Program, mode: str, work: Path, out: Path, streams: list[Path]
    ) -> int | None:
        if self._zygote is None:
            self._zygote = Zygote(self._environment(program, "plain"))
        request = {
            "mode": mode,
            "words": list(program.words),
            "options": [*OPTIONS, *program.options, "-o", str(out)],
            "folder": str(work),
            "environment": self._environment(program, mode),
            "stdout": str(streams[0]),
            "stderr": str(streams[1]),
        }
        return self._zygote.run(request, self._seconds)

    def _start_real(
        self, program: Program, mode: str, work: Path, out: Path, streams: list[Path]
    ) -> int | None:
        entry = [str(self._folder / "bin" / "profiler-ext"), "run", *OPTIONS]
        entry += [*program.options, "-o", str(out)]
        words = [sys.executable, *program.flags, *(entry if mode == "run" else []), *program.words]
        places = [self._place(kind, path) for kind, path in
                  zip((program.stdout, program.stderr), streams, strict=True)]  # fmt: skip
        command = ["sh", "-c", f'exec "$@" >{places[0]} 2>{places[1]}', "sh", *words]
        process = subprocess.Popen(
            command,
            cwd=work,
            env=self._environment(program, mode),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @staticmethod
    def _place(kind: str, path: Path) -> str:
        return {"closed": "&-", "full": "/dev/full"}.get(kind, str(path))


def compared(program: Program, mode: str, plain: Ended, ours: Ended) -> list[str]:
    """Say in which ways a run with us differs from the one without."""
    wanted_code = plain.code if program.code is None else program.code
    if ours.code != wanted_code:
        tail = "".join(ours.stderr.splitlines(keepends=True)[-6:])
        return [f"ended with {ours.code}, not {wanted_code}: {tail}"]
    found = []
    if (shown := without_report(ours.stdout)) != plain.stdout:
        found.append(f"stdout: {first_difference(plain.stdout, shown)}")
    shown, wanted = errors(ours.stderr), errors(plain.stderr)
    if program.words[0] == "signals.py":  # where a signal comes in is never the same
        shown, wanted = (text.rpartition("\n")[2].rstrip(": ") for text in (shown, wanted))
    if shown != wanted:
        found.append(f"stderr: {first_difference(wanted, shown)}")
    if mode == "run":
        found += missing(program, ours)
    return found


def without_report(stdout: str) -> str:
    """Leave out what ``run`` prints when the script is over."""
    header = re.search(r"^(?:Step \d|No step was recorded)", stdout, re.M)
    of_one, of_several = r"written to .*\nnext: .*\n", r"wrote \d+ sessions .*\n(?:  \S+ .*\n)+"
    last = re.search(rf"^(?:{of_one}|{of_several})", stdout, re.M)
    if header is None or last is None:
        return stdout
    return stdout[: header.start()] + stdout[last.end() :]


def errors(stderr: str) -> str:
    """Leave out what ``run`` says, and what differs by how the program was started."""
    noise = (
        "profiler-ext: ",
        "USDT:",
        "ERROR: External init callback",
        "ERROR:20",
        "[W",
        "INFO:",
        "WARNING:",
        "  warnings.warn",
        "  self = ",
        "  check(",
    )
    once = (  # torch says it once, or not; some of it only where no cache answers
        "TensorFloat32 tensor cores",
        "Profiler clears events",
        "`torch._prims_common.check` is deprecated",
    )
    printed = (line for line in stderr.splitlines() if not line.startswith(noise))
    lines = [line for line in printed if not any(text in line for text in once)]
    text = "\n".join(lines)
    files = r"(?:zygote\.py|<frozen runpy>|runpy\.py|/profiler_ext/[^\"]*)"
    own = rf'  File "[^"]*{files}".*\n(?:    .*\n)*'
    return re.sub(
        r"0x[0-9a-f]+|\d+ frames|pid=\d+|tmp\w+|E\d{4} [\d:.]+ \d+", "N", re.sub(own, "", text)
    )


def first_difference(wanted: str, shown: str) -> str:
    lines = ([*text.splitlines(), "(end)"] for text in (wanted, shown))
    pairs = zip(*lines, strict=False)
    return next((f"{a!r} became {b!r}" for a, b in pairs if a != b), "at its end")


def missing_of_series(program: Program, ours: Ended, there: set[str]) -> list[str]:
    """Say what a run that records again and again left out, or left behind."""
    if not there and "--slow" in program.options:
        return []  # no step was slow
    if extra := sorted(name for name in there if not re.fullmatch(r"step_\d{6}", name)):
        return [f"left behind {extra}"]
    files = {path.name for name in there for path in (ours.out / name).iterdir()}
    return [] if files == {FILE_NAME} else [f"sessions expected, found {sorted(files)}"]


def missing(program: Program, ours: Ended) -> list[str]:
    """Say what the run left out, or left behind."""
    there = {path.name for path in ours.out.iterdir()} if ours.out.is_dir() else set()
    if program.session == SERIES:
        return missing_of_series(program, ours, there)
    if extra := sorted(there - FILES):
        return [f"left behind {extra}"]
    if program.session == ANY:
        return []
    if (program.session == NONE) == (FILE_NAME in there):
        printed = [line for line in ours.stderr.splitlines() if line.startswith("profiler-ext: ")]
        return [f"session: {program.session} expected, found {sorted(there)}; {printed}"]
    if program.session == NONE:
        return []
    if lost := sorted(FILES - there):
        return [f"files not written: {lost}"]
    steps = [step.number for step in load(ours.out).analysis.steps if step.wall_ns > 0]
    wanted = len(steps) == 2 if program.session == WHOLE else len(steps) >= 1
    assert program.session in (WHOLE, PART)
    return [] if wanted else [f"{program.session} session expected, found steps {steps}"]
