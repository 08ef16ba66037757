"""The command line: ``python -m verification.truth cells Mixtral``; without names all models."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import torch

from verification.truth.judging import Score, judge
from verification.truth.models import BY_HAND, PUBLISHED
from verification.truth.models.making import Make
from verification.truth.random_programs import running
from verification.truth.settings import SETTINGS


def main(arguments: list[str] | None = None) -> int:
    """Judge models, and print the figures and what is wrong.

    Returns:
        0 when no node is wrong and every model ran, else 1.
    """
    options = _options(arguments)
    score, started = Score(), time.monotonic()
    if options.device != "cpu":
        torch.set_default_device(options.device)
    with tempfile.TemporaryDirectory(prefix="truth-") as folder:
        for name, make in _models(options, Path(folder)).items():
            before = len(score.wrong), len(score.failed)
            with SETTINGS[options.settings]() if options.settings else nullcontext():
                _judge(score, name, make, options)
            print(f"{name}: {score.summary()}", file=sys.stderr, flush=True)
            for exception in (*score.wrong[before[0] :], *score.failed[before[1] :]):
                print(exception, flush=True)
    taken = f"torch {torch.__version__}, {time.monotonic() - started:.0f} s"
    print(f"truth: {score.summary()}; {taken}")
    return int(bool(score.wrong or score.failed))


def _models(options: argparse.Namespace, folder: Path) -> dict[str, Make]:
    if options.random:
        return running(range(options.seed, options.seed + options.random), folder)
    models = {**BY_HAND, **({} if options.by_hand else PUBLISHED)}
    return {name: models[name] for name in options.models or models}


def _options(arguments: list[str] | None) -> argparse.Namespace:
    names = [*BY_HAND, *PUBLISHED]
    parser = argparse.ArgumentParser(prog="python -m verification.truth", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(names))
    parser.add_argument("--by-hand", action="store_true", help="none of transformers")
    parser.add_argument("--random", type=int, metavar="N", help="so many random programs instead")
    parser.add_argument("--settings", choices=SETTINGS, help="torch's, other than its defaults")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, default=0, help="of weights, inputs and programs")
    options = parser.parse_args(arguments)
    if unknown := set(options.models) - set(names):
        parser.error(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def _judge(score: Score, name: str, make: Make, options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what models that are published warn of
            judge(score, name, *make(), options.device)
    except Exception as error:  # one bad model must not cost the others' figures
        score.failed.append(f"{name}: {error!r}"[:500])


if __name__ == "__main__":
    sys.exit(main())
