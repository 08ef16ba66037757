"""The oracle's command line: ``python -m verification.oracle --device cpu --kernels 500``."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from verification.oracle.ablation import Ablation, ablate
from verification.oracle.compiling import compile_model
from verification.oracle.jobs import run_jobs
from verification.oracle.models import draw
from verification.oracle.scoring import Score, add


def main(arguments: list[str] | None = None) -> int:
    """Score models until enough kernels were seen, and print the figures.

    Returns:
        0 when every line is right and every model ran, else 1.
    """
    options = _options(arguments)
    score, ablations = Score(), list[Ablation]()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    try:
        if options.jobs > 1:
            score, ablations = run_jobs(options)
        else:
            _score_models(score, options, started)
            _add_ablations(ablations, options, started)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        _write(options.json, score, ablations)
        taken = f"torch {torch.__version__}, {time.monotonic() - started:.0f} s"
        print(f"oracle on {options.device}: {score.summary()}; {taken}", flush=True)
        print(_agreement(ablations), flush=True)
    unmoved = [one for one in ablations if one.unmoved]
    for exception in (*score.wrong, *score.failed, *score.refused, *unmoved):
        print(exception)
    return int(bool(score.wrong or score.failed or unmoved))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification.oracle", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu (compiles no C++), triton or cuda")
    parser.add_argument("--kernels", type=int, default=500, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="the first model's")
    parser.add_argument("--step", type=int, default=1, help="from one model's seed to the next")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with its own cache")
    parser.add_argument("--models", type=int, help="stop after so many models")
    parser.add_argument("--seconds", type=int, default=480, help="stop after so long")
    parser.add_argument("--model-seconds", type=int, default=90, help="time for one model")
    parser.add_argument("--ablate", type=int, default=0, help="remove a line of so many models")
    parser.add_argument("--json", default="oracle.json", help="where the details go")
    return parser.parse_args(arguments)


def _score_models(score: Score, options: argparse.Namespace, started: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in itertools.count(options.seed, options.step):
            _score_model(score, seed, Path(folder), options)
            enough = score.kernels >= options.kernels or score.models == options.models
            if enough or time.monotonic() - started > options.seconds:
                break
            if score.models % 5 == 0:  # what was seen outlives a process that is killed
                _write(options.json, score, [])
                print(f"... {score.summary()}", file=sys.stderr, flush=True)


def _add_ablations(found: list[Ablation], options: argparse.Namespace, started: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in itertools.islice(itertools.count(options.seed, options.step), options.ablate):
            if time.monotonic() - started > options.seconds:
                break
            try:
                found.append(ablate(seed, Path(folder), options.device, options.model_seconds))
            except Exception as error:
                print(f"ablation {seed}: {error!r}", file=sys.stderr)


def _write(file: str, score: Score, ablations: list[Ablation]) -> None:
    removed = [dataclasses.asdict(one) for one in ablations]
    Path(file).write_text(json.dumps(score.as_json() | {"ablations": removed}, indent=1))


def _agreement(ablations: list[Ablation]) -> str:
    given, equal = sum(one.given for one in ablations), sum(one.equal for one in ablations)
    unmoved = sum(len(one.unmoved) for one in ablations)
    changed, elsewhere = sum(a.changed for a in ablations), sum(a.elsewhere for a in ablations)
    return (
        f"lines removed {len(ablations)}: {given - unmoved - equal} of the {given} call sites "
        f"given to them changed, {equal} cannot be told from equal ones; "
        f"{changed} changed in all, {elsewhere} of them by fusion or layout alone"
    )


def _score_model(score: Score, seed: int, folder: Path, options: argparse.Namespace) -> None:
    model = draw(seed, options.device)
    try:
        add(score, model, compile_model(model, folder, options.device, options.model_seconds))
    except Exception as error:  # one bad model must not cost the others' figures
        score.failed.append({"seed": seed, "blocks": model.blocks, "why": repr(error)})


if __name__ == "__main__":
    sys.exit(main())
