"""Runs written by hand for the gate: two lines of layers, with noise that is stated."""

from __future__ import annotations

from profiler_ext.comparison.comparison import Comparison, compare
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.records.vocabulary import Phase
from tests.comparison.by_hand import Launch, Part, run

UP, DOWN, NORM = "h = self.up(x)", "return self.down(h)", "x = self.norm_of_the_block(x)"
QUIET = (0, 3, -3, 2, -2, 1)
"""What steps differ by, in thousandths."""


def program(up: int = 1_000_000, down: int = 2_000_000, *, noise=QUIET, layers: int = 2, shift=0):
    """Return the steps of a program: in each layer a product, its backward, and a norm."""
    return [
        [
            each
            for layer in range(layers)
            for each in (
                _launch(10 + shift, _noisy(up, part), UP, f"layers.{layer}.mlp.up", "aten::mm"),
                _launch(
                    10 + shift,
                    _noisy(2 * up, part),
                    UP,
                    f"layers.{layer}.mlp.up",
                    "aten::mm",
                    Phase.BACKWARD,
                ),
                _launch(11 + shift, _noisy(down, part), DOWN, f"layers.{layer}.mlp", "aten::mm"),
                _launch(
                    20 + shift, _noisy(50_000, part), NORM, f"layers.{layer}.norm", "aten::add"
                ),
            )
        ]
        for part in noise
    ]


def compared(base, head) -> Comparison:
    """Return a comparison of runs; one run a side where steps are given."""
    return compare(_runs(base), _runs(head))


def _runs(given) -> list[RunOfRanks]:
    is_one = isinstance(given[0][0], Launch) if given and given[0] else True
    return [run(given)] if is_one else [run(each, f"run {n}") for n, each in enumerate(given)]


def _noisy(duration_ns: int, part: int) -> int:
    return duration_ns + duration_ns * part // 1000


def _launch(line, duration_ns, code, module, op, phase=Phase.FORWARD) -> Launch:
    part = Part(line, duration_ns, code, module, op, phase)
    return Launch(f"{op}_{line}_{phase}", (part,))
