"""What to try where a guard failed goes by the guard, as torch 2.13 writes it."""

from __future__ import annotations

import pytest

from profiler_ext.findings.rules.recompilation import (
    BACKEND,
    GRADIENTS,
    LAYOUT,
    SIZES,
    STATE,
    TENSOR,
    TRAINING,
    VALUES,
    guard_remedy,
)

KEYS = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView"


@pytest.mark.parametrize(
    ("guard", "remedy"),
    [
        ("tensor 'x' size mismatch at index 0. expected 3, actual 5", SIZES),
        ("x.size()[0] == 3", SIZES),
        ("tensor 'x' stride mismatch at index 0. expected 4, actual 1", LAYOUT),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", TENSOR),
        ("tensor 'x' rank mismatch. expected 2, actual 1", TENSOR),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=0", GRADIENTS),
        (
            f"tensor 'x' dispatch key set mismatch. expected {KEYS}, AutogradCPU), actual {KEYS})",
            GRADIENTS,
        ),
        ("GLOBAL_STATE changed: grad_mode ", GRADIENTS),
        ("GLOBAL_STATE changed: autocast(cpu)_enabled ", STATE),
        ("GLOBAL_STATE changed: num_threads ", STATE),
        ("BACKEND_MATCH failure: torch.compile detected different backend callables.", BACKEND),
        ("fn._modules['1'].training == True", TRAINING),
        ("n == 1", VALUES),
        ("G['k'] == 3", VALUES),
        ("n is None", VALUES),
    ],
)
def test_a_guard_has_its_remedy(guard: str, remedy: str) -> None:
    assert guard_remedy(guard) == remedy
