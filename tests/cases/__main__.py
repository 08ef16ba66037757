"""The check of the cases on a machine: each in a process of its own, resumable.

python -m tests.cases --device cuda --out DIR [CASE ...]

With INDUCTOR_PROVENANCE=2 in the environment and an empty cache, a run of its own tells beside it
what torch's own provenance places by the names of a trace, and how much of that has our lines.

What DIR holds already is not run again, unless it is named. The table is printed at the end,
and is in DIR/table.txt.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from pathlib import Path

from tests.cases.catalogue import CASES
from tests.cases.facts.claims import broken
from tests.cases.facts.table import facts_of
from tests.cases.provenance import TorchProvenance, lines_of_launches, placed_by_torch
from tests.cases.ranks import RANKED, RANKS
from tests.cases.table import placed_by_name, table_text


def check(name: str, device: str, out: Path) -> dict[str, object] | None:
    """Profile two steps of a case, save the session, and return what was found.

    Of a case with ranks each rank saves its own, and the first tells of all.
    """
    import torch

    import profiler_ext

    profiler_ext.enable(cpu_events=device == "cpu")
    torchs = TorchProvenance()
    if torchs.is_on():
        torchs.watch()
    case = {**CASES, **RANKED}[name](device)
    for _ in range(case.warmup):
        case.step()
    with profiler_ext.profile() as prof:
        for _ in range(2):
            case.step()
            prof.step()
        if device == "cuda":
            torch.cuda.synchronize()
    if name not in RANKED:
        prof.session.save(out / name)
        by_torch = compared(prof.session, torchs) if torchs.is_on() else {}
        return row(name, case, prof.session) | by_torch
    rank = torch.distributed.get_rank()
    prof.session.save(out / name / f"rank_{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return row_of_ranks(name, case, out / name) if rank == 0 else None


def row_of_ranks(name, case, folder) -> dict[str, object]:
    """Return the row of the rank that did worst, with what is missing on any, or of all."""
    import profiler_ext

    sessions = [profiler_ext.load(folder / f"rank_{rank}") for rank in range(RANKS)]
    rows = [row(name, case, session) for session in sessions]
    worst = min(rows, key=lambda row: row["lines"])
    missing = [text for row in rows for text in row["missing"]]
    calls = profiler_ext.load(folder).launches().query("kind == 'communication'")
    if calls.groupby("rank").process_group.count().min() != len(calls) / RANKS:
        missing.append("the process group of a collective")
    return {**worst, "missing": missing, "ok": worst["ok"] and not missing}


def row(name, case, session) -> dict[str, object]:
    """Return one row of the table: what was attributed, and what is missing."""
    from profiler_ext.attribution.launches.eager_lines import NO_LINES_REASONS
    from profiler_ext.records.gaps import GapReason
    from tests import frames as tables

    launches, parts = session.launches(), session.attribution()
    attributed = tables.fraction_at(session.analysis, "line", case.scope)
    phases = parts.groupby("phase").duration_ns.sum()
    codes = set(parts.code.dropna())
    missing = [text for text in case.lines if not any(text in code for code in codes)]
    missing += [phase for phase in case.phases if not phases.get(phase, 0)]
    # A thread that pins memory launches nothing; what another one launches is not led to a line.
    unasked = (*NO_LINES_REASONS, GapReason.COMPILES_INCOMPLETE, GapReason.THREAD_NOT_RECORDED)
    missing += [g.detail for g in session.recording.gaps if g.reason not in unasked]
    missing += broken(facts_of(name), session)
    gaps = parts[parts.gap.notna()].groupby("gap").duration_ns.agg(["count", "sum"])
    return {
        "case": name,
        "launches": len(launches),
        "device_us": round(int(launches.duration_ns.sum()) / 1000, 1),
        "lines": attributed,
        "by_name": placed_by_name(session.analysis),
        "ok": attributed >= case.coverage and not missing,
        "missing": missing,
        "gaps": {k: (int(v["count"]), int(v["sum"])) for k, v in gaps.iterrows()},
    }


def compared(session, torchs: TorchProvenance) -> dict[str, object]:
    """Return what torch's own provenance places, and what of that has our lines."""
    ours = lines_of_launches(session.attribution())
    found = placed_by_torch(session.analysis, torchs, ours)
    return {
        "by_torch": found.placed,
        "by_torch_agreeing": found.agreeing,
        "by_torch_differing": found.differing,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0, help="start no case after these")
    parser.add_argument("--one", action="store_true", help="run in this process")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    if options.one:
        try:
            found = check(options.cases[0], options.device, options.out)
        except Exception as error:
            traceback.print_exc()
            found = {
                "case": options.cases[0],
                "ok": False,
                "error": f"{type(error).__name__}: {error}"[:300],
            }
        options.out.mkdir(parents=True, exist_ok=True)
        if found is not None:
            (options.out / f"{options.cases[0]}.json").write_text(json.dumps(found))
        return
    names = options.cases or default_cases(options.device)
    for name in options.cases:
        (options.out / f"{name}.json").unlink(missing_ok=True)
    run_all([n for n in names if not (options.out / f"{n}.json").exists()], options)
    found = [_result(options.out, name) for name in names]
    text = table_text(found)
    (options.out / "table.txt").write_text(text)
    sys.stdout.write(text)
    sys.exit(0 if all(each["ok"] for each in found) else 1)


def default_cases(device: str) -> list[str]:
    """Return the cases that this machine can run."""
    import torch

    enough = device == "cpu" or torch.cuda.device_count() >= RANKS
    return [*CASES, *(RANKED if enough else ())]


def _command(name: str) -> list[str]:
    """Return what runs a case in a process of its own, or in one for each rank."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "-m"]
    return [sys.executable, "-m", *(launcher if name in RANKED else ()), "tests.cases"]


def _result(out: Path, name: str) -> dict[str, object]:
    path = out / f"{name}.json"
    if not path.exists():
        return {"case": name, "ok": False, "error": f"not run yet; see {name}.log if it is there"}
    return json.loads(path.read_text())


def run_all(names, options) -> None:
    """Run the cases, a few at a time, each in its own process with its own log."""
    options.out.mkdir(parents=True, exist_ok=True)
    running: dict[str, tuple[subprocess.Popen, float]] = {}
    last_start = time.monotonic() + options.minutes * 60
    while names or running:
        if time.monotonic() > last_start:
            names = []
        while names and len(running) < options.jobs:
            name = names.pop(0)
            log = (options.out / f"{name}.log").open("w")
            words = ["--one", "--device", options.device, "--out", str(options.out), name]
            process = subprocess.Popen([*_command(name), *words], stdout=log, stderr=log)
            running[name] = (process, time.monotonic())
        for name, (process, started) in list(running.items()):
            if process.poll() is not None or time.monotonic() - started > 240:
                process.terminate()  # a launcher ends its ranks, too
                del running[name]
        time.sleep(0.2)


if __name__ == "__main__":
    main()
