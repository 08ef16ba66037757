"""Tries the rules of findings: what each predicts, beside what its remedy wins.

Each case has a step with a flaw and the same step without it. Both are timed in turn, round by
round, in one process. Then the flawed one is recorded, and its rule tells how much is at stake; the
other one is recorded too, and the rule must be silent there. A recording leaves a program slower
where it waits for its CPU (``benchmarks/afterwards.py``), so one case a process tells most: with
``--apart`` each has its own.

    python benchmarks/findings.py [--tiny] [--rounds 7] [--only RULE ...] [--nth N] [--apart]
        [--cases {rules,launches,unseen}] [--out DIR]

Prints a table in Markdown, and writes the sessions and what it measured into DIR. It ends with 1
where a prediction is wrong by more than a factor of two, or a rule speaks of the remedied step.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import profiler_ext
from benchmarks.cases import LARGE, TINY, Case, Pair, Sizes
from benchmarks.findings_outcomes import Outcome, outcome_of, table
from benchmarks.flaws import CASES
from benchmarks.flaws_eager import EAGER
from benchmarks.flaws_library import HELD_OUT, LIBRARY
from benchmarks.flaws_of_launches import LAUNCHES, LAUNCHES_UNSEEN
from benchmarks.flaws_once import ONCE, OnceCase
from benchmarks.flaws_tuned import TUNED
from benchmarks.steps import Step, recorded, synchronize
from profiler_ext.exporters.json_output.answers import findings_answer
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.findings import Findings

WARM_UP = 4
RECORDED = 5
BLOCK_S = 0.15
MOST_STEPS = 40
# Beside those of each rule, launches and waits in loops; and such that no rule was fitted to
CASES_BY_NAME: dict[str, tuple[Case | OnceCase, ...]] = {
    "rules": (*CASES, *EAGER, *TUNED, *LIBRARY, *ONCE),
    "launches": LAUNCHES,
    "unseen": (*LAUNCHES_UNSEEN, *HELD_OUT),
}


def tried(case: Case | OnceCase, sizes: Sizes, rounds: int, out: Path | None) -> Outcome:
    """Return what a case came to; a failure of it is part of that."""
    started = time.perf_counter()
    try:
        if isinstance(case, OnceCase):
            outcome = _tried_once(case, sizes)
        else:
            outcome = _tried(case, sizes, rounds, out)
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(case.rule, case.words, failure=f"{type(error).__name__}: {error}"[:200])
    print(f"{case.rule}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    torch._dynamo.reset()
    gc.collect()
    if sizes.device == "cuda":
        torch.cuda.empty_cache()
    return outcome


def _tried(case: Case, sizes: Sizes, rounds: int, out: Path | None) -> Outcome:
    pair = case.make(sizes)
    steps = {"flawed": pair.flawed, "remedied": pair.remedied}
    kept = {name: None if out is None else _folder(out, case) / name for name in steps}
    for step in steps.values():
        _warm_up(step)
    times = [_timed(pair, at) for at in range(rounds)]
    flawed, remedied = (_found(steps[name], kept[name]) for name in steps)
    return outcome_of(case.rule, case.words, (flawed, remedied), times)


def _tried_apart(case: Case | OnceCase, sizes: Sizes, rounds: int, out: Path | None) -> Outcome:
    """Try a case in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=enable) as pool:
        return pool.submit(tried, case, sizes, rounds, out).result()


def _folder(out: Path, case: Case) -> Path:
    """Return where the sessions of a case go; of several cases of a rule each has its own."""
    folder, count = out / case.rule, 1
    while folder.exists():
        count += 1
        folder = out / f"{case.rule}_{count}"
    return folder


def _tried_once(case: OnceCase, sizes: Sizes) -> Outcome:
    """Run both in processes of their own, as what is compiled in one is known to the other."""
    flawed, remedied = (_in_processes(case, name, sizes) for name in ("flawed", "remedied"))
    own = [each for each in flawed["found"] if each["rule"] == case.rule]
    others = [each for each in flawed["found"] if each["rule"] != case.rule]
    left = [each for each in remedied["found"] if each["rule"] == case.rule]
    return Outcome(
        case.rule,
        case.words,
        predicted_ms=sum(each["ms"] for each in own) if own else None,
        flawed_ms=flawed["took_ms"],
        remedied_ms=remedied["took_ms"],
        gain_ms=flawed["took_ms"] - remedied["took_ms"],
        others=", ".join(f"{each['rule']} {each['ms']:.2f}" for each in others),
        on_remedied=", ".join(f"{each['rule']} {each['ms']:.2f}" for each in left),
    )


def _in_processes(case: OnceCase, name: str, sizes: Sizes) -> dict[str, Any]:
    """Return what the last one tells; they share caches that nobody else has."""
    with tempfile.TemporaryDirectory() as caches:
        outcomes_json = [_in_process(case, name, sizes, caches) for _ in range(1 + case.is_second)]
    return outcomes_json[-1]


def _in_process(case: OnceCase, name: str, sizes: Sizes, caches: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.findings", "--once", f"{case.rule}:{name}"]
    done = subprocess.run(
        words + ["--tiny"] * sizes.is_tiny,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": caches},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    outcomes_json: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return outcomes_json


def _tell_once(asked: str, sizes: Sizes) -> None:
    """Run one side of a case whose flaw costs time once, and print what came of it."""
    rule, _, name = asked.partition(":")
    case = next(each for each in ONCE if each.rule == rule)
    found, took_ms = (case.flawed if name == "flawed" else case.remedied)(sizes)
    outcomes_json = [{"rule": each.rule, "ms": each.est_saving_ns / 1e6} for each in found.ranked]
    synchronize()  # else, with CUPTI to be detached, the process does not end: docs/trust/limits.md
    print(json.dumps({"found": outcomes_json, "took_ms": took_ms}))


def _warm_up(step: Step) -> None:
    for _ in range(WARM_UP):
        step()


def _found(step: Step, folder: Path | None) -> Findings:
    """Return what the rules say of a step; the session is kept in a folder."""
    session = recorded(step, RECORDED)
    if folder is not None:
        session.save(folder)
        (folder / "findings.json").write_text(answer_text(findings_answer(session)))
    return session.recommendations


def _timed(pair: Pair, turn: int) -> tuple[float, float]:
    """Return milliseconds a step of both, the one first that was last before."""
    order = (pair.flawed, pair.remedied) if turn % 2 else (pair.remedied, pair.flawed)
    took = {step: _block(step) for step in order}
    return took[pair.flawed], took[pair.remedied]


def _block(step: Step) -> float:
    step()
    synchronize()
    started, count = time.perf_counter(), 0
    while count < MOST_STEPS and (count < 3 or time.perf_counter() - started < BLOCK_S):
        step()
        count += 1
    synchronize()
    return 1e3 * (time.perf_counter() - started) / count


def main() -> int:
    """Try the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, rounds=7)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--cases", choices=CASES_BY_NAME, default="rules")
    options = parser.parse_args()
    enable()
    if options.once is not None:
        _tell_once(options.once, sizes_of(options))
        return 0
    return tell(CASES_BY_NAME[options.cases], options)


def enable() -> None:
    """Switch capture on, let nothing be profiled until a step is recorded, and leave nothing."""
    os.environ.setdefault("TEARDOWN_CUPTI", "1")
    os.environ.setdefault("PROFILER_EXT_LEARN", "0")
    profiler_ext.enable()


def add_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add what trials are asked for."""
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--only", nargs="*", metavar="RULE")
    parser.add_argument("--nth", type=int, metavar="N", help="of those the one of this number")
    parser.add_argument("--apart", action="store_true", help="each case in its own process")
    parser.add_argument("--out", type=Path)


def sizes_of(options: argparse.Namespace) -> Sizes:
    """Return the sizes that are asked for."""
    return TINY if options.tiny else LARGE


def tell(cases: Sequence[Case | OnceCase], options: argparse.Namespace) -> int:
    """Try the cases that are asked for, and print each row as it comes; 1 where one fails."""
    sizes, rounds, out = sizes_of(options), options.rounds, options.out
    cases = [case for case in cases if not options.only or case.rule in options.only]
    cases = cases if options.nth is None else cases[options.nth : options.nth + 1]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    print(table(()), end="", flush=True)
    outcomes = []
    for case in cases:
        try_one = _tried_apart if options.apart else tried
        outcomes.append(try_one(case, sizes, rounds, out))
        print(table(outcomes[-1:]).splitlines()[-1], flush=True)
        if out is not None:
            outcomes_json = [asdict(outcome) for outcome in outcomes]
            (out / "outcomes.json").write_text(json.dumps(outcomes_json, indent=1))
    print("")
    for outcome in outcomes:
        print(f"{outcome.rule}: also said: {outcome.others or 'nothing'}")
    return 0 if all(outcome.holds for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
