"""One step's values are compared, in eager and in compiled programs, which run as without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import profiler_ext
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.values import (
    GradientValues,
    OpValues,
    StepValues,
    inconsistency_of_values,
)
from profiler_ext.values import comparing, gradients
from profiler_ext.values.comparing import Comparison

STEPS = 7
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method:DeprecationWarning"  # Inductor's
)


def compared(run: Callable[[], object]) -> StepValues:
    """Return the values of one call."""
    comparison = Comparison(0, Guard(strict=True))
    comparison.begin()
    try:
        run()
        return comparison.end()
    finally:
        comparison.leave()


def lines_of(run: Callable[..., object]) -> Callable[[int], int]:
    """Return what gives the number of a function's line, counted from its ``def``."""
    first = run.__code__.co_firstlineno  # type: ignore[attr-defined]
    return lambda at: first + at


def ops_at(values: StepValues, line: int, *, backward: bool = False) -> dict[str, OpValues]:
    """Return the ops of a line by name."""
    own = (each for each in values.ops if each.at.line == line)
    return {each.op: each for each in own if each.is_backward is backward}


def gradients_at(values: StepValues, line: int) -> list[GradientValues]:
    """Return the gradients of a line."""
    return [each for each in values.gradients if each.at.line == line]


def test_a_result_that_was_there_before_is_repeated() -> None:
    weight, text = torch.randn(32, 32), torch.randn(8, 32)

    def run() -> None:
        for scale in (1.0, 2.0, 3.0):
            text @ weight
            (text * scale).sin()

    values, line = compared(run), lines_of(run)
    (product,) = ops_at(values, line(2)).values()
    assert (product.op, product.calls, product.elements) == ("aten::mm", 3, 3 * 256)
    assert product.repeated_elements == 2 * 256
    assert all(not each.repeated_elements for each in ops_at(values, line(3)).values())


def test_constants_views_and_what_changes_a_tensor_are_not_compared() -> None:
    kept = torch.randn(8, 32)

    def run() -> None:
        for _ in range(2):
            torch.ones(8, 32)
            kept.zeros_like = torch.zeros_like(kept)  # type: ignore[attr-defined]
            kept.t().reshape(16, 16)
            kept.add_(0.0)

    values = compared(run)
    assert {each.op for each in values.ops if each.repeated_elements} == {"aten::clone"}
    assert {each.op for each in values.ops} == {"aten::zeros_like", "aten::clone"}


def test_equal_rows_are_counted_where_they_are_computed() -> None:
    table, layer = torch.randn(4, 32), torch.nn.Linear(32, 64)
    kinds = torch.arange(256) % 4

    def run() -> None:
        layer(table[kinds])

    values, line = compared(run), lines_of(run)
    computed = ops_at(values, line(1))["aten::addmm"]
    assert computed.equal_row_elements == 252 * 64
    assert computed.elements == 256 * 64


def test_rows_that_an_earlier_call_computed_are_counted_where_lengths_grow() -> None:
    weight, tokens = torch.randn(32, 32), torch.randn(16, 32)

    def run() -> None:
        for length in (4, 8, 16):
            tokens[:length] @ weight

    values, line = compared(run), lines_of(run)
    product = ops_at(values, line(2))["aten::mm"]
    assert product.rows_computed_before_elements == (4 + 8) * 32
    assert product.repeated_elements == 0


def test_a_crop_reads_a_part_of_what_a_convolution_computes() -> None:
    layer, images = torch.nn.Conv2d(3, 8, 3, padding=1), torch.randn(2, 3, 16, 16)

    def run() -> None:
        wide = layer(images)
        wide[:, :, 4:8, 4:8].square().sum().backward()

    values, line = compared(run), lines_of(run)
    (gradient,) = gradients_at(values, line(1))
    assert gradient.node == "ConvolutionBackward0"
    assert gradient.zero_elements == pytest.approx(gradient.elements * 15 / 16, abs=1)
    assert gradient.reader.startswith("SliceBackward")
    assert gradient.reader_at is not None
    assert gradient.reader_at.line == line(2)


def test_ignored_labels_are_rows_that_the_loss_does_not_read() -> None:
    head, hidden = torch.nn.Linear(32, 100), torch.randn(8, 64, 32)
    labels = torch.randint(0, 100, (8, 64))
    labels[:, :48] = -100

    def run() -> None:
        logits = head(hidden)
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()

    values, line = compared(run), lines_of(run)
    product = next(g for g in gradients_at(values, line(1)) if g.node == "AddmmBackward0")
    assert product.zero_elements == product.elements * 3 // 4
    assert product.reader.startswith("NllLossBackward")


def test_a_weight_of_zero_reads_nothing_of_a_loss() -> None:
    logits = torch.randn(8, 50, requires_grad=True)

    def run() -> None:
        entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
        (logits.logsumexp(-1).mean() + 0.0 * entropy).backward()

    values, line = compared(run), lines_of(run)
    zero = gradients_at(values, line(1))
    assert {"SoftmaxBackward0", "LogSoftmaxBackward0"} <= {each.node for each in zero}
    assert all(each.zero_elements == each.elements for each in zero)
    assert {each.reader_at.line for each in zero if each.reader_at} == {line(2)}
    assert all(not g.zero_elements for g in gradients_at(values, line(2)) if "Log" in g.node)


def test_the_gradient_of_a_weight_is_no_gradient_of_a_result() -> None:
    layer = torch.nn.Linear(32, 64)

    def run() -> None:
        layer(torch.randn(4, 32)).sum().backward()

    values, line = compared(run), lines_of(run)
    assert {each.node for each in gradients_at(values, line(1))} == {"AddmmBackward0"}


def test_what_a_matcher_reads_without_gradients_is_known() -> None:
    boxes, queries = torch.nn.Linear(32, 8), torch.randn(64, 32)

    def run() -> None:
        found = boxes(queries)
        with torch.no_grad():
            best = found.sum(-1).topk(4).indices
        found[best].sum().backward()

    values, line = compared(run), lines_of(run)
    assert ops_at(values, line(1))["aten::addmm"].is_read_without_gradient
    assert not any(each.is_read_without_gradient for each in ops_at(values, line(4)).values())


def test_an_optimizer_that_reads_gradients_where_results_were_reads_no_results() -> None:
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
    optimizer = torch.optim.Adam(layers.parameters(), foreach=False)

    def run() -> None:
        layers(torch.randn(64, 64)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    run()
    assert not [each for each in compared(run).ops if each.is_read_without_gradient]


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_a_recomputation_repeats_by_design_and_keeps_its_lines(is_reentrant: bool) -> None:
    layer, head = torch.nn.Linear(32, 32), torch.nn.Linear(32, 8)

    def block(x: torch.Tensor) -> torch.Tensor:
        hidden = layer(x)
        return hidden.sin()

    def run() -> None:
        x = torch.randn(16, 32, requires_grad=True)
        out = head(checkpoint(block, x, use_reentrant=is_reentrant))
        out[:4].sum().backward()

    values, line = compared(run), lines_of(block)
    assert not any(each.repeated_elements for each in values.ops)
    (product,) = (g for g in gradients_at(values, line(1)) if g.node == "AddmmBackward0")
    assert product.zero_elements == product.elements * 3 // 4


class Net(torch.nn.Module):
    """Computes the same thrice, of which one result is read in part."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.head = torch.nn.Linear(32, 32), torch.nn.Linear(32, 8)
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return what is read of it."""
        for _ in range(3):
            keys = self.keys(text)
            x = x + self.drop(keys)
        return self.head(x)[:4]


def trained(compiles: bool, **options: bool) -> tuple[list[float], profiler_ext.profile]:
    """Return the losses of some steps, and what recorded two of them."""
    torch.manual_seed(0)
    net = Net()
    model = torch.compile(net, backend="eager") if compiles else net
    optimizer = torch.optim.Adam(net.parameters())
    x, text = torch.randn(16, 32), torch.randn(16, 32)
    losses = []
    schedule = torch.profiler.schedule(wait=4, warmup=1, active=2)
    with profiler_ext.profile(strict=True, schedule=schedule, **options) as prof:  # type: ignore[arg-type]
        for _ in range(STEPS):
            loss = model(x, text).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            prof.step()
    return losses, prof


@pytest.mark.parametrize("compiles", [False, True])
def test_a_program_computes_bit_for_bit_what_it_computes_without(compiles: bool) -> None:
    plain, _ = trained(compiles)
    losses, prof = trained(compiles, values=True)
    assert losses == plain
    values = prof.session.recording.values
    assert values is not None
    line = lines_of(Net.forward)
    assert values.step == 2
    assert ops_at(values, line(3))["aten::addmm"].repeated_elements == 2 * 512
    head = next(g for g in gradients_at(values, line(5)) if g.node == "AddmmBackward0")
    assert head.zero_elements == head.elements * 3 // 4


def test_values_are_kept_with_the_session(tmp_path) -> None:  # type: ignore[no-untyped-def]
    _, prof = trained(False, values=True)
    prof.session.save(tmp_path / "kept")
    assert profiler_ext.load(tmp_path / "kept").recording.values == prof.session.recording.values
    assert "values" in prof.session.recording.settings.options


def test_without_being_asked_no_values_are_compared() -> None:
    _, prof = trained(False)
    assert prof.session.recording.values is None


def test_the_step_that_is_compared_is_no_step_time() -> None:
    _, prof = trained(False, values=True)
    _, plain = trained(False)
    times = [len(p.session.recording.settings.unprofiled_steps_ns) for p in (prof, plain)]
    assert times[0] < times[1] or times == [3, 3]


def test_where_every_step_is_recorded_none_is_compared() -> None:
    layer = torch.nn.Linear(8, 8)
    with profiler_ext.profile(strict=True, values=True) as prof:
        for _ in range(4):
            layer(torch.randn(4, 8))
            prof.step()
    assert prof.session.recording.values is None


def test_a_failure_to_compare_stays_with_the_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> object:
        raise RuntimeError("planted")

    monkeypatch.setattr(comparing, "fingerprint", failing)
    guard = Guard()
    comparison = Comparison(0, guard)
    comparison.begin()
    result = torch.randn(9, 9) @ torch.ones(9, 9)
    values = comparison.end()
    assert result.shape == (9, 9)
    assert not values.ops
    assert {each.hook for each in guard.failures} == {comparing.VALUES}


def test_nothing_is_left_behind_where_the_program_fails() -> None:
    def program() -> None:
        schedule = torch.profiler.schedule(wait=4, warmup=1, active=1)
        with profiler_ext.profile(values=True, schedule=schedule) as prof:
            for step in range(6):
                torch.randn(9, 9) @ torch.ones(9, 9)
                if step == 2:
                    raise ValueError("the program's own")
                prof.step()

    with pytest.raises(ValueError, match="own"):
        program()
    calls: list[object] = []
    compiled = torch.compile(lambda x: x + 1, backend=lambda gm, _: calls.append(gm) or gm)
    compiled(torch.ones(3))
    assert calls  # it compiles again
    assert not torch._C._len_torch_dispatch_stack()


def test_a_mode_of_the_program_stays_on() -> None:
    seen: list[str] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def run() -> None:
        with Mode():
            torch.randn(9, 9).sin()

    values = compared(run)
    assert "sin" in seen
    assert any(each.op == "aten::sin" for each in values.ops)


def test_transforms_of_functions_run_as_without() -> None:
    x = torch.randn(16, 32)

    def squares(row: torch.Tensor) -> torch.Tensor:
        return (row**2).sum()

    found: list[torch.Tensor] = []
    compared(lambda: found.append(torch.func.vmap(torch.func.grad(squares))(x)))
    assert torch.equal(found[0], 2 * x)


def test_what_is_over_the_limit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MAX_TENSORS", 2)
    x = torch.randn(9, 9)

    def run() -> None:
        for _ in range(5):
            x.sin()

    values = compared(run)
    assert values.not_compared == 3
    assert sum(each.calls for each in values.ops) == 2


def test_a_backward_is_followed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "MAX_NODES", 3)
    layer = torch.nn.Linear(8, 8)

    def run() -> None:
        x = layer(torch.randn(8, 8))
        for _ in range(5):
            x = x.sin()
        x.sum().backward()

    values = compared(run)
    assert values.not_compared > 0
    assert sum(each.calls for each in values.gradients) == 2


def test_out_of_memory_is_tried_again_without_what_comparing_took() -> None:
    comparison = Comparison(0, Guard(strict=True))
    failures = iter([True, False])
    comparison._fingerprints.append(torch.zeros(3))

    def op() -> str:
        if next(failures):
            raise torch.OutOfMemoryError
        return "done"

    assert comparison._dispatched(op, (), {}) == "done"


def test_a_file_that_counts_more_than_there_is_names_it() -> None:
    x = torch.randn(9, 9)
    good = compared(lambda: x.sin())
    assert inconsistency_of_values(good) is None
    (op,) = good.ops
    bad = replace(good, ops=(replace(op, repeated_elements=op.elements + 1),))
    assert "fewer elements" in str(inconsistency_of_values(bad))
    assert "without calls" in str(inconsistency_of_values(replace(good, not_compared=-1)))
