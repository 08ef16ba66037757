from __future__ import annotations

from profiler_ext.attribution.alignment.library_kernels import KernelFamilies, kernel_families
from tests.attribution.graphs import extern, graph, triton

SITES = (extern("mm"), extern("mm"), extern("convolution"), triton("triton_a"))
MM, CONVOLUTION = "aten::mm", "aten::convolution"


def _families(*kernels: tuple[str, ...]) -> KernelFamilies:
    return kernel_families([graph((), SITES, library_kernels=tuple(enumerate(kernels)))])


def test_a_kernel_that_was_seen_in_a_call_and_never_first_goes_on_from_another():
    found = _families(("gemm", "add_up"), ("gemm",), ("Memset", "dgrad", "wgrad"))
    followers = frozenset({"add_up", "dgrad", "wgrad"})
    assert found == KernelFamilies(followers, frozenset({MM, CONVOLUTION}))


def test_an_operator_whose_calls_begin_twice_is_not_plain():
    found = _families(("gemm", "add_up"), ("gemm",), ("dgrad", "gemm"))
    assert found == KernelFamilies(frozenset({"add_up"}), frozenset({MM}))


def test_a_memset_within_a_call_may_begin_another():
    found = _families(("gemm", "Memset", "add_up"), ("gemm",), ("dgrad",))
    assert found == KernelFamilies(frozenset({"add_up"}), frozenset({CONVOLUTION}))


def test_parts_are_numbered_and_a_run_that_begins_amid_a_call_has_none():
    families = KernelFamilies(frozenset({"add_up"}))
    assert families.parts(["gemm", "add_up", "add_up", "gemm"]) == [0, 0, 0, 1]
    assert families.parts(["add_up", "gemm"]) is None
    assert families.parts([]) is None
    assert families.parts(["gemm", "Memset", "gemm"]) is None


def test_a_graph_without_a_record_teaches_nothing():
    lost = graph((), (), provenance=None, library_kernels=((0, ("gemm",)),))
    assert kernel_families([lost]) == KernelFamilies()
