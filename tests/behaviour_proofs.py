"""What shows, by what this torch does, each thing that versions of it do otherwise."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import profiler_ext
from profiler_ext.torch_compat import compiled_autograd, inductor, profilers
from tests.compiling import torch, train_once

with warnings.catch_warnings():  # torch's own modules warn of what they use of each other
    warnings.simplefilter("ignore")
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd


def stacks_and_tags() -> tuple[list[str], list[bool]]:
    """The stacks of a forward graph's nodes; of a backward graph's, whether torch tags them."""
    halves: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        halves.append(gm)
        return make_boxed_func(gm.forward)

    def scaled(a: torch.Tensor) -> torch.Tensor:
        return (a.sin() * a.cos()).sum()

    torch.compile(scaled, backend=aot_autograd(fw_compiler=keep))(
        torch.ones(3, requires_grad=True)
    ).backward()
    forward, backward = ([n for n in gm.graph.nodes if n.op == "call_function"] for gm in halves)
    stacks = [node.meta["stack_trace"] for node in forward]
    return stacks, ["autograd_backward" in node.meta for node in backward]


def tags_backward_nodes(_: pytest.MonkeyPatch) -> bool:
    _, tags = stacks_and_tags()
    assert len(set(tags)) == 1
    return tags[0]


def hands_backward_as_spec(monkeypatch: pytest.MonkeyPatch) -> bool:
    found: list[bool] = []
    read = compiled_autograd.backward_of

    def spied(given: dict[str, object]) -> compiled_autograd.Backward:
        found.append(not {"aot_config", "lazy_backward_info"} <= given.keys())
        backward = read(given)
        assert isinstance(compiled_autograd.traced_graph(backward.info), torch.fx.GraphModule)
        return backward

    monkeypatch.setattr(compiled_autograd, "backward_of", spied)
    profiler_ext.enable(strict=True)
    train_once()
    (is_spec,) = found
    return is_spec


def restores_scheduled_action(_: pytest.MonkeyPatch) -> bool:
    action = torch.profiler.ProfilerAction
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    profiler.current_action = action.NONE
    profiler.stop()
    is_restored = profiler.current_action is action.RECORD
    profilers.reset_action(profiler)
    profiler.stop()
    assert profiler.current_action is action.NONE
    return is_restored


def points_at_operators(_: pytest.MonkeyPatch) -> bool:
    stacks, _ = stacks_and_tags()
    return any("^" in stack for stack in stacks)


def switches_between_branches(monkeypatch: pytest.MonkeyPatch) -> bool:
    kinds: list[str] = []
    read = inductor.nested_graphs

    def spied(kernel: object) -> tuple[inductor.NestedGraph, ...]:
        graphs = read(kernel)
        kinds.extend(type(kernel).__name__ for _ in graphs)
        return graphs

    def chosen(which: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(which, lambda x: x @ x, lambda x: x @ x @ x, (x,))

    monkeypatch.setattr(inductor, "nested_graphs", spied)
    profiler_ext.enable(strict=True)
    with torch.no_grad():
        torch.compile(chosen)(torch.tensor(True), torch.eye(4))
    assert kinds in (["Switch"] * 2, ["Conditional"] * 2)
    return kinds == ["Switch"] * 2


PROOFS: dict[str, Callable[[pytest.MonkeyPatch], bool]] = {
    proof.__name__: proof
    for proof in (
        tags_backward_nodes,
        hands_backward_as_spec,
        restores_scheduled_action,
        points_at_operators,
        switches_between_branches,
    )
}
NEEDS_GPU = {"numbers_collectives"}  # only NCCL's events have a number; recorded cases show them
