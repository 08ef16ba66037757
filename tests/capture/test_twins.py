"""Functions that share cache entries: each has its own lines, of the source that ran."""

import pytest

from profiler_ext.records.vocabulary import CacheState
from tests.capture.twins import first, graphs, lines, no_kernels, second, train
from tests.compiling import fresh_torch, torch

__all__ = ["fresh_torch", "no_kernels"]

pytestmark = [
    pytest.mark.usefixtures("no_kernels"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def functions_are_cached() -> object:
    """AOTAutograd's cache refuses an ``autograd.Function`` unless it is told not to."""
    from torch._functorch import config

    with config.patch(autograd_cache_allow_custom_autograd_functions=True):
        yield


def renamed(found: list[list[tuple[str, str]]]) -> list[list[tuple[str, str]]]:
    return [[(name, line.replace("first", "second")) for name, line in graph] for graph in found]


def test_the_second_of_two_functions_with_equal_graphs_has_its_own_lines() -> None:
    cold = train(first)
    own = lines(cold)
    assert {line for graph in own for _, line in graph} == {
        "first: call",
        "first: forward",
        "first: backward",
        "first: z",
        "first: sum",
    }
    hit = train(second)
    assert [graph.key for graph in hit] == [graph.key for graph in cold]
    assert [graph.cache_state for graph in hit] == [CacheState.AOT_HIT] * 2
    assert lines(hit) == renamed(own)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        fresh = train(second)
    assert [graph.cache_state for graph in fresh] == [CacheState.FX_HIT] * 2
    assert lines(fresh) == renamed(own)


def test_both_in_one_process_keep_their_own_lines() -> None:
    own = lines(train(first))
    torch.compile(second)(torch.ones(8, 8, requires_grad=True)).backward()
    assert lines(graphs()) == own + renamed(own)
