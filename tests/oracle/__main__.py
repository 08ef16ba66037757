"""Owns the oracle's command line: ``python -m tests.oracle --device cpu --kernels 500``."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.oracle.compiling import compile_model
from tests.oracle.models import draw
from tests.oracle.scoring import Score, add


def main(arguments: list[str] | None = None) -> int:
    """Score models until enough kernels were seen, and print the figures.

    Returns:
        0 when every line is right and every model ran, else 1.
    """
    options = _options(arguments)
    score = Score()
    started = time.monotonic()
    try:
        _score_models(score, options, started)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        Path(options.json).write_text(json.dumps(score.as_json(), indent=1))
        print(f"oracle on {options.device}: {score.summary()}; {time.monotonic() - started:.0f} s")
    for wrong in score.wrong:
        print(wrong)
    for failed in score.failed:
        print(failed)
    return int(bool(score.wrong or score.failed))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu (compiles no C++) or cuda")
    parser.add_argument("--kernels", type=int, default=500, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="the first model's")
    parser.add_argument("--models", type=int, help="stop after so many models")
    parser.add_argument("--seconds", type=int, default=540, help="stop after so long")
    parser.add_argument("--model-seconds", type=int, default=120, help="time for one model")
    parser.add_argument("--json", default="oracle.json", help="where the details go")
    return parser.parse_args(arguments)


def _score_models(score: Score, options: argparse.Namespace, started: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in itertools.count(options.seed):
            model = draw(seed)
            add(
                score,
                model,
                compile_model(model, Path(folder), options.device, options.model_seconds),
            )
            if score.kernels >= options.kernels or score.models == options.models:
                break
            if time.monotonic() - started > options.seconds:
                break


if __name__ == "__main__":
    sys.exit(main())
