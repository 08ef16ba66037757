"""Where and when a profiler starts and ends changes nothing of what a launch belongs to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.exc import Unsupported

import profiler_ext
from profiler_ext.sessions.session import Session


class Layer(torch.nn.Module):
    """Matrix products are library calls, which need no C++ compiler."""

    def __init__(this) -> None:
        super().__init__()
        this.first = torch.nn.Parameter(torch.randn(8, 8))
        this.second = torch.nn.Parameter(torch.randn(8, 8))

    def forward(this, x: torch.Tensor) -> torch.Tensor:
        hidden = x @ this.first
        return hidden @ this.second


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.sum()


FIRST = Layer.forward.__code__.co_firstlineno + 1
LAYERS = ["layers.0", "layers.1", "layers.2"]
FORWARD = [("forward", FIRST, 1), ("forward", FIRST + 1, 1)]
BACKWARD = [("backward", FIRST, 2), ("backward", FIRST + 1, 2)]


@pytest.fixture
def forward(fresh_torch: object) -> Iterator[Callable[[], torch.Tensor]]:
    """The forward pass of layers compiled one by one, which share one graph and one region."""
    profiler_ext.enable(strict=True)
    model, x = Model(), torch.randn(8, 8, requires_grad=True)
    for layer in model.layers:
        layer.compile()
    model(x).backward()
    yield lambda: model(x)


def products(session: Session) -> list[tuple[str, int, int]]:
    """Return phase and line of the matrix products, with how many each of the layers has."""
    session.assert_coverage(1.0)
    rows = session.attribution()
    rows = rows[rows.aten_op == "aten.mm.default"]
    counts = rows.groupby(["phase", "line"]).size()
    return sorted((str(phase), int(line), int(n) // 3) for (phase, line), n in counts.items())


def modules(session: Session) -> dict[str, int]:
    rows = session.attribution()
    counts = rows[rows.aten_op == "aten.mm.default"].module.value_counts()
    return {str(path): int(count) for path, count in counts.items()}


def test_two_profilers_one_after_the_other_see_the_same(forward):
    sessions = []
    for _ in range(2):
        with profiler_ext.profile(strict=True) as prof:
            forward().backward()
            prof.step()
        sessions.append(prof.session)
    for session in sessions:
        assert products(session) == [*BACKWARD, *FORWARD]
        assert modules(session) == dict.fromkeys(LAYERS, 6)


def test_a_profiler_that_starts_after_the_forward_leads_the_backward_to_its_lines(forward):
    loss = forward()
    with profiler_ext.profile(strict=True) as prof:
        loss.backward()
        prof.step()
        forward().backward()
        prof.step()
    begun, whole = (products_of_step(prof.session, number) for number in (0, 1))
    assert begun == BACKWARD
    assert whole == [*BACKWARD, *FORWARD]
    # Nothing tells on which of the layers a forward ran that was not recorded.
    rows = prof.session.attribution().query("aten_op == 'aten.mm.default'")
    known = rows.module.notna().groupby(rows.launch.map(prof.session.launches().step)).sum()
    assert known.tolist() == [0, 18]


def products_of_step(session: Session, number: int) -> list[tuple[str, int, int]]:
    rows = session.attribution(step=number)
    counts = rows[rows.aten_op == "aten.mm.default"].groupby(["phase", "line"]).size()
    return sorted((str(phase), int(line), int(n) // 3) for (phase, line), n in counts.items())


def test_a_profiler_that_ends_after_the_forward_has_the_forward(forward):
    with profiler_ext.profile(strict=True) as prof:
        loss = forward()
        prof.step()
    loss.backward()
    assert products(prof.session) == FORWARD
    assert modules(prof.session) == dict.fromkeys(LAYERS, 2)


def test_what_a_thread_trains_is_attributed_as_what_the_main_thread_trains(forward):
    with profiler_ext.profile(strict=True) as prof:
        worker = threading.Thread(target=lambda: forward().backward())
        worker.start()
        worker.join()
        prof.step()
    assert products(prof.session) == [*BACKWARD, *FORWARD]
    assert modules(prof.session) == dict.fromkeys(LAYERS, 6)


def test_each_cycle_of_a_schedule_has_the_modules_of_its_own_calls(forward):
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    with profiler_ext.profile(schedule=schedule, acc_events=True, strict=True) as prof:
        for _ in range(6):
            forward().backward()
            prof.step()
    assert [modules(session) for session in prof.sessions] == [dict.fromkeys(LAYERS, 6)] * 2
    assert [products(session) for session in prof.sessions] == [[*BACKWARD, *FORWARD]] * 2


def test_a_compiled_function_may_begin_the_first_profile(fresh_torch):
    profiles = []

    def profiled(x):
        with profiler_ext.profile(strict=True) as prof:
            y = x @ x
        profiles.append(prof)
        return y + 1

    assert torch.equal(torch.compile(profiled, backend="eager")(torch.eye(2)), torch.eye(2) + 1)
    assert list(profiles[0].session.launches()["name"]) == ["aten::matmul"]


def test_a_whole_graph_that_begins_a_profile_is_reported_to_begin_it_around_the_call(fresh_torch):
    @torch.compile(backend="eager", fullgraph=True)
    def profiled(x):
        with profiler_ext.profile():
            return x @ x

    with pytest.raises(Unsupported, match="begin it around the call of the compiled function"):
        profiled(torch.eye(2))
