"""What torch did with its caches is told in its own words, and a bypass is said aloud."""

import dataclasses

import pytest

import profiler_ext
from profiler_ext.capture.graphs.compiles import InnerCompile
from profiler_ext.capture.graphs.registry import cache_state, is_compiled_in_child
from profiler_ext.exporters.views.formatting import cache_bypass_text
from profiler_ext.profiling import switch
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.torch_compat import inductor
from tests.analyses import gpu_step, report
from tests.compiling import fresh_torch, torch, train_once

__all__ = ["fresh_torch"]


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x @ x

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient @ gradient


def states() -> list[tuple[CacheState, str | None]]:
    capture = switch.current()
    assert capture is not None
    return [(graph.cache_state, graph.cache_detail) for graph in capture.graphs]


@pytest.mark.usefixtures("fresh_torch")
def test_a_pass_that_torch_cannot_name_bypasses_the_cache_for_torchs_reason() -> None:
    profiler_ext.enable(strict=True)
    with torch._inductor.config.patch(post_grad_custom_post_pass=lambda graph: None):
        train_once()
    detail = (
        "FX graph cache: bypass (Unsupported post grad custom pass); "
        "AOTAutograd's cache: bypass (Unsupported post grad custom pass)"
    )
    assert states() == [(CacheState.BYPASS, detail)] * 2


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_custom_function_bypasses_aotautograds_cache_only() -> None:
    profiler_ext.enable(strict=True)
    x = torch.ones(4, 4, requires_grad=True)
    torch.compile(lambda given: Twice.apply(given))(x).sum().backward()
    assert {state for state, _ in states()} == {CacheState.MISS}
    beginning = "FX graph cache: miss; AOTAutograd's cache: bypass ("
    assert all(str(detail).startswith(beginning) for _, detail in states())
    assert all("autograd_function_apply" in str(detail) for _, detail in states())
    capture = switch.current()
    assert capture is not None
    snapshot = cache_bypass_text(capture.graphs)
    assert snapshot is not None
    assert snapshot.startswith(
        "2 of 2 compiled graphs bypassed AOTAutograd's cache: every process retraces: "
    )
    assert "autograd_function_apply" in snapshot


def graph(state: CacheState, detail: str | None, compile_ns: int) -> GraphInstance:
    known = gpu_step().recording.graphs[0]
    return dataclasses.replace(known, cache_state=state, cache_detail=detail, compile_ns=compile_ns)


def test_a_bypass_is_one_line_with_its_reason_and_its_cost() -> None:
    hit = graph(CacheState.FX_HIT, None, 5)
    cold = graph(CacheState.BYPASS, "no \x1b name", 1_500_000_000)
    assert cache_bypass_text([hit]) is None
    assert cache_bypass_text([hit, cold, cold]) == (
        "2 of 3 compiled graphs bypassed torch's cache: every process recompiles "
        "(3.00 s here): no \N{REPLACEMENT CHARACTER} name"
    )


def test_a_bypass_that_is_of_torchs_own_making_is_reported_to_be() -> None:
    reason = "Won't cache a graph with fakify_first_call enabled"
    bucket = dataclasses.replace(graph(CacheState.MISS, None, 5), autograd_bypass=reason)
    assert cache_bypass_text([bucket, bucket]) == (
        "2 of 2 compiled graphs bypassed AOTAutograd's cache: every process retraces: "
        f"{reason}: torch's way with each bucket that DDPOptimizer cuts"
    )


def test_the_report_says_it() -> None:
    analysis = gpu_step()
    cold = graph(CacheState.BYPASS, "why", 1_000_000)
    recording = dataclasses.replace(
        analysis.recording, graphs=(cold, *analysis.recording.graphs[1:])
    )

    text = report(dataclasses.replace(analysis, recording=recording))
    assert [line for line in text.splitlines() if "bypassed" in line] == [
        cache_bypass_text(recording.graphs)
    ]


@pytest.mark.parametrize(
    ("key", "misses", "is_compiled", "in_child", "expected"),
    [
        ("k", 3, False, False, (CacheState.FX_HIT, "hit")),
        ("k", 3, False, True, (CacheState.FX_HIT, "hit")),
        ("k", 2, False, True, (CacheState.MISS, "miss")),
        (None, 3, False, True, (CacheState.BYPASS, "not asked")),
        ("k", 2, True, True, (CacheState.MISS, "miss")),
    ],
)
def test_what_a_child_process_compiled_is_no_hit(
    key: str | None,
    misses: int,
    is_compiled: bool,
    in_child: bool,
    expected: tuple[CacheState, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inductor, "cache_misses", lambda: 3)
    monkeypatch.setattr(inductor, "compiles_in_child", lambda: in_child)
    inner = InnerCompile(
        torch.fx.GraphModule({}, torch.fx.Graph()),
        frozenset(),
        (),
        0,
        misses=misses,
        is_compiled=is_compiled,
    )
    state, detail = cache_state(inner, key, None)
    assert (state, detail.partition(";")[0]) == (expected[0], f"FX graph cache: {expected[1]}")
    assert is_compiled_in_child(inner, key) == (expected[1] != "hit" and not is_compiled)
