"""What max_autotune timed and chose is kept for each call site, as torch had it."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import pytest
import torch
import torch._inductor.config
from torch._inductor import ir, select_algorithm
from torch._inductor.codegen.subgraph import SubgraphChoiceCaller
from torch._inductor.select_algorithm import AlgorithmSelectorCache, ExternKernelCaller

import profiler_ext
from profiler_ext.capture.graphs.autotuned import autotuned_sites
from profiler_ext.capture.graphs.call_sites import PendingSite
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.hooks.artifacts import SiteHooks
from profiler_ext.errors import CaptureWarning, StoreError
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.provenance import Autotuned, Choice, Provenance
from profiler_ext.records.vocabulary import ChoiceKind, SiteKind
from profiler_ext.store import from_bytes, to_bytes
from profiler_ext.torch_compat.autotuning import Selection, Selections
from profiler_ext.torch_compat.patches import installed
from tests.compiling import capture, fresh_torch

__all__ = ["fresh_torch"]
LIBRARY = Choice("bmm", ChoiceKind.LIBRARY, "", 91_000)
TEMPLATE = Choice("cpp_gemm", ChoiceKind.TEMPLATE, "BLOCK_M=32", 104_200)
FAILED = Choice("cpp_gemm", ChoiceKind.TEMPLATE, "BLOCK_M=64", None)
MS = {"bmm": 0.091, "cpp_gemm_0": 0.1042, "cpp_gemm_1": math.inf}


class Template(ir.ChoiceCaller):
    """A choice that loses, so nothing of it is generated."""

    def hash_key(self):
        return self.description


def _templates(choices):
    of = choices[0]
    configs = enumerate(("BLOCK_M=32", "BLOCK_M=64"))
    made = (Template(f"cpp_gemm_{at}", of.input_nodes, of.layout, name) for at, name in configs)
    return [*choices, *made]


@pytest.fixture
def times(monkeypatch):
    """The times in milliseconds that torch measures for a product, and two templates for it."""
    cache, known = select_algorithm.get_algorithm_selector_cache(), dict(MS)
    monkeypatch.setattr(cache, "preprocessing_fns", [_templates])
    monkeypatch.setattr(
        AlgorithmSelectorCache,
        "benchmark",
        lambda self, choices, *args, **kwargs: {each: known[each.name] for each in choices},
    )
    return known


OPTIONS = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}


def _twice(a, b):
    return (a @ b) @ b


def _once(a, b):
    return a @ b


def _compiled(function=_twice):
    torch._dynamo.reset()
    a = torch.ones(2, 8, 8)
    assert torch.equal(torch.compile(function, options=OPTIONS)(a, a), function(a, a))
    return capture().graphs[-1]


def test_alike_products_of_a_graph_have_one_entry_with_all_choices(fresh_torch, times):
    profiler_ext.enable(strict=True)
    graph = _compiled()
    assert [site.kernel for site in graph.call_sites] == ["extern_kernels.bmm"] * 2
    expected = (Autotuned((0, 1), (LIBRARY, TEMPLATE, FAILED), chosen=0),)
    assert graph.record.autotuned == expected
    assert graph.record.autotuned_at(graph.call_sites[1]) == expected[0]
    assert from_bytes(to_bytes(graph.record)).autotuned == expected


def test_a_cached_graph_has_them_and_a_new_one_says_that_torch_had_the_times(fresh_torch, times):
    profiler_ext.enable(strict=True)
    first, again = _compiled(), _compiled()
    assert (str(first.cache_state), str(again.cache_state)) == ("miss", "aot_hit")
    assert again.record.autotuned == first.record.autotuned
    (other,) = _compiled(_once).record.autotuned
    assert (other.sites, other.is_cached) == ((0,), True)
    assert other.choices == (LIBRARY, TEMPLATE, FAILED)


def test_without_max_autotune_there_is_nothing(fresh_torch):
    profiler_ext.enable(strict=True)
    torch.compile(_twice)(torch.ones(2, 8, 8), torch.ones(2, 8, 8))
    assert capture().graphs[-1].record.autotuned == ()


@pytest.mark.parametrize("method", ["keep_made", "add_times"])
def test_a_failure_loses_the_choices_alone(fresh_torch, times, monkeypatch, method):
    def fails(*args):
        raise ValueError("of a later torch")

    monkeypatch.setattr(Selections, method, fails)
    profiler_ext.enable()
    with pytest.warns(CaptureWarning, match="of a later torch"):
        graph = _compiled()
    assert graph.record.autotuned == () and len(graph.call_sites) == 2
    assert graph.record.intermediates


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # of torch's C++ template
def test_inductors_own_template_and_library_call_are_timed(fresh_torch):
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler is installed")
    profiler_ext.enable(strict=True)
    a = torch.randn(4, 64, 64)
    options = {"max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}
    torch.compile(_once, options=options)(a, a)
    graph = capture().graphs[-1]
    (tuned,), (site,) = graph.record.autotuned, graph.call_sites
    assert {each.kind for each in tuned.choices} == {ChoiceKind.LIBRARY, ChoiceKind.TEMPLATE}
    assert all(each.duration_ns for each in tuned.choices)
    is_library = tuned.choices[tuned.chosen].kind is ChoiceKind.LIBRARY
    assert is_library == (site.kind is SiteKind.EXTERN)


def _caller(name, kind=Template, config=""):
    made = kind.__new__(kind)
    made.name, made.description = name, config
    return made


MM, ADDMM = _caller("mm", ExternKernelCaller), _caller("addmm", ExternKernelCaller)
TRITON = [_caller(f"triton_mm_{at}", config=f"BLOCK_M={16 << at}") for at in range(3)]
SPLIT = _caller("decompose_k_mm_4", SubgraphChoiceCaller)


def _site(kind, kernel="triton_tem_fused_mm_0", *operations):
    return PendingSite(kind, kernel, None, (), operations=frozenset(operations or ("op0",)))


def _of(site, timings, chosen=None):
    selections, selection = Selections(), Selection()
    selection.add(timings)
    selections.keep_made(selection, (_Made(), chosen) if chosen else _Made())
    (found,) = autotuned_sites([site], [selections])
    return found


class _Made:
    def get_operation_name(self):
        return "op0"


def test_the_chosen_one_is_the_one_that_the_call_site_runs():
    timings = {MM: 0.2, TRITON[0]: 0.1, TRITON[1]: 0.3, SPLIT: 0.4}
    template = _of(_site(SiteKind.TRITON_TEMPLATE), timings, TRITON[1])
    assert template.choices[template.chosen].config == "BLOCK_M=32"
    assert [each.kind for each in template.choices][-1] is ChoiceKind.GRAPH
    # torch 2.11 returns no choice: it takes the fastest
    fastest = _of(_site(SiteKind.TRITON_TEMPLATE), timings)
    assert fastest.choices[fastest.chosen].config == "BLOCK_M=16"
    # A layout that only the library takes: the fastest, a template, is not what runs
    library = _of(_site(SiteKind.EXTERN, "extern_kernels.mm"), timings)
    assert library.choices[library.chosen].name == "mm"
    two = {MM: 0.2, ADDMM: 0.1, TRITON[0]: 0.05}
    named = _of(_site(SiteKind.EXTERN, "extern_kernels.addmm"), two)
    assert named.choices[named.chosen].name == "addmm"
    assert _of(_site(SiteKind.EXTERN, "mkl._mkl_linear"), two).chosen is None


@pytest.mark.parametrize(
    ("tuned", "problem"),
    [
        (Autotuned((0,), (LIBRARY, TEMPLATE), chosen=2), "a choice that is none of the 2"),
        (Autotuned((0,), (replace(LIBRARY, duration_ns=-1),)), "less than no time"),
    ],
)
def test_a_damaged_record_of_choices_is_refused(tuned, problem):
    record = Provenance("", "2.13.0", False, True, None, None, (), (), autotuned=(tuned,))
    with pytest.raises(StoreError, match=problem):
        from_bytes(to_bytes(record))


def test_of_thousands_the_library_the_fastest_and_the_chosen_are_kept():
    many = [_caller(f"triton_mm_{at}", config=str(at)) for at in range(1000)]
    timings = {caller: 1.0 + at for at, caller in enumerate(many)} | {MM: 5000.0}
    found = _of(_site(SiteKind.TRITON_TEMPLATE), timings, many[-1])
    assert [each.config for each in found.choices] == [*map(str, range(24)), "999", ""]
    assert (found.chosen, found.others) == (24, 975)


class _Scheduler:
    """A deferred choice as the scheduler has it, timed by a function and then chosen."""

    def __init__(self, timings):
        self.buffer = ir.MultiTemplateBuffer.__new__(ir.MultiTemplateBuffer)
        self.buffer.operation_name = "op0"
        self.buffer._choice_timings = {}
        self.buffer._choice_timings_fn = lambda hint: timings
        self.buffer.get_size = self.buffer.get_stride = lambda: None

    def choose(self, caller):
        caller.layout = type("Layout", (), {"size": None, "stride": None})
        self.buffer.finalize_as_triton_caller(caller)


@pytest.fixture
def compiles(monkeypatch):
    compiles, graph = Compiles(), _Made()
    monkeypatch.setattr("profiler_ext.torch_compat.inductor.current_graph", lambda: graph)
    hooks = SiteHooks(compiles).observations()
    with installed([hook for hook in hooks if "MultiTemplate" in hook[0].path], Guard(True)):
        yield compiles


def test_a_deferred_choice_has_its_first_times_and_the_template_that_was_chosen(compiles):
    deferred = _Scheduler({MM: 0.2, TRITON[0]: 0.1, TRITON[1]: 0.15})
    deferred.buffer.choice_timings()
    deferred.buffer._choice_timings[None] = {TRITON[1]: 0.3}  # fused with its epilogue
    deferred.buffer.choice_timings()
    chosen = select_algorithm.TritonTemplateCaller.__new__(select_algorithm.TritonTemplateCaller)
    chosen.name, chosen.make_kernel_render = TRITON[1].name, None
    deferred.choose(chosen)
    site = _site(SiteKind.TRITON_TEMPLATE, "triton_tem_fused_mm_relu_0", "op0", "op1")
    (found,) = autotuned_sites([site], [compiles.selections()])
    assert [each.duration_ns for each in found.choices] == [100_000, 150_000, 200_000]
    assert found.choices[found.chosen].config == "BLOCK_M=32"


def test_a_deferred_choice_that_is_a_library_call_is_known_by_its_call(compiles):
    deferred = _Scheduler({ADDMM: 0.1, MM: 0.12, TRITON[0]: 0.2})
    deferred.buffer.choice_timings()
    site = _site(SiteKind.EXTERN, "extern_kernels.addmm")
    (found,) = autotuned_sites([site], [compiles.selections()])
    assert (found.choices[found.chosen].name, found.is_cached) == ("addmm", False)
