"""The catalogue of cases: those of every theme, by name."""

from __future__ import annotations

from tests.cases import (
    architectures,
    autograd,
    cycles,
    eager,
    kernels,
    layers,
    optimizers,
    ranks,
    recomputing,
    regions,
    replays,
)

THEMES = (
    architectures,
    replays,
    kernels,
    layers,
    optimizers,
    recomputing,
    regions,
    cycles,
    autograd,
    eager,
    ranks,
)
CASES = {case.__name__: case for theme in THEMES for case in theme.CASES}
