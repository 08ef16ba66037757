"""The buffers between kernels: which, how often, at what cost, and never more than was measured."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from profiler_ext import load
from profiler_ext.comparison.fusions import not_fused
from profiler_ext.comparison.records import FusedKernel
from profiler_ext.exporters import tables
from profiler_ext.records.provenance import Autotuned, CallSite, Choice, Intermediate
from profiler_ext.records.vocabulary import ChoiceKind, FusionBarrier, SiteKind
from profiler_ext.rooflines.intermediates import (
    barrier_between,
    library_call_text,
    passed_buffers,
    saved_bytes,
)
from tests.analyses import gpu_step
from tests.exporters.estimated import estimated
from tests.kineto.traces import H200


@pytest.fixture(scope="module")
def analysis():
    return gpu_step()


def test_each_buffer_between_kernels_that_ran_has_its_two_sides(analysis):
    found = [
        (each.passed.buffer, each.writer.site.kernel, each.reader.site.kernel, each.barrier)
        for each in passed_buffers(analysis)
    ]
    assert sorted(found) == [
        (
            "buf0",
            "extern_kernels.addmm",
            "triton_poi_fused__to_copy_gelu_0",
            FusionBarrier.LIBRARY_CALL,
        ),
        (
            "buf3",
            "triton_red_fused_gelu_backward_sum_0",
            "extern_kernels.mm",
            FusionBarrier.LIBRARY_CALL,
        ),
    ]


def test_a_side_has_the_launches_and_the_line_of_its_call_site(analysis):
    launches = analysis.launches
    for each in passed_buffers(analysis):
        for side in (each.writer, each.reader):
            assert side.duration_ns == launches.duration_ns[side.launches].sum()
            assert set(launches.call_site[side.launches].tolist()) == {side.site.ordinal}
            assert side.place is not None and side.place.line is not None


GELU, GELU_BACKWARD = (0, 1), (1, 0)  # graph and call site


def test_traffic_costs_the_highest_rate_and_never_more_than_both_kernels():
    known = estimated({GELU: ("40000000", None), GELU_BACKWARD: ("20000000", None)})
    launches, rates = known.launches, []
    for (graph, _), moved in ((GELU, 40_000_000), (GELU_BACKWARD, 20_000_000)):
        kernel = launches.kind.where("triton") & (launches.graph == graph).filled(False)
        rates.append(moved / int(launches.duration_ns[kernel][0]))
    for each in passed_buffers(known):
        saved = each.passed.read_bytes
        saved += 0 if each.passed.is_kept else each.passed.written_bytes
        took_ns = each.writer.duration_ns + each.reader.duration_ns
        assert each.could_save_ns == min(round(saved / max(rates)), took_ns) > 0


def test_kernels_that_move_little_tell_no_rate():
    known = estimated({GELU: ("400000", None), GELU_BACKWARD: ("200000", None)})
    assert {each.could_save_ns for each in passed_buffers(known)} == {None}


def test_the_table_has_the_buffers_of_a_phase_a_step_and_a_kernel(analysis):
    whole = tables.fusions(analysis)
    assert sorted(whole["buffer"].tolist()) == ["buf0", "buf3"]
    assert tables.fusions(analysis, phase="backward")["buffer"].tolist() == ["buf3"]
    assert tables.fusions(analysis, kernel="gelu_0")["buffer"].tolist() == ["buf0"]
    of_steps = [tables.fusions(analysis, step=step.number) for step in analysis.steps]
    passes = [sum(table["passes"].tolist()) for table in of_steps]
    assert sum(passes) == sum(whole["passes"].tolist()) > 0


def test_a_store_that_others_need_is_not_saved():
    passed = Intermediate("buf0", 0, 1, 30, 40)
    assert saved_bytes(passed, readers=1) == 70
    assert saved_bytes(passed, readers=2) == 30
    assert saved_bytes(Intermediate("buf0", 0, 1, 30, 40, is_kept=True), readers=1) == 30


def _site(kind, op=None):
    return CallSite(0, "0", kind, op or "triton_poi_0", op, (), ())


def test_a_library_call_on_one_side_is_the_reason_whatever_else_was_said():
    mm, kernel = _site(SiteKind.EXTERN, "aten::mm"), _site(SiteKind.TRITON)
    for pair in ((mm, kernel), (kernel, mm), (mm, mm)):
        assert barrier_between("no shared data", *pair) is FusionBarrier.LIBRARY_CALL
    assert barrier_between(None, kernel, kernel) is FusionBarrier.NOT_GIVEN
    assert barrier_between("words of a later torch", kernel, kernel) is FusionBarrier.OTHER


def test_only_products_and_convolutions_can_be_templates():
    mm, sort = _site(SiteKind.EXTERN, "aten::mm"), _site(SiteKind.EXTERN, "aten::sort")
    kernel = _site(SiteKind.TRITON)
    off, on = _record(), _record(fusion_options=("max_autotune_gemm",))
    assert "max_autotune is off" in library_call_text(off, mm, kernel)
    assert "no choice of max_autotune is recorded" in library_call_text(on, mm, kernel)
    assert library_call_text(off, mm, sort) == "aten::sort, for which Inductor has no template"


def _record(**parts):
    return replace(gpu_step().recording.graphs[0].record, **parts)


LIBRARY = Choice("mm", ChoiceKind.LIBRARY, "", 91_000)
TEMPLATE = Choice("triton_mm", ChoiceKind.TEMPLATE, "BLOCK_M=64", 104_200)
FASTER = Choice("triton_mm", ChoiceKind.TEMPLATE, "BLOCK_M=32", 80_000)
FAILED = Choice("triton_mm", ChoiceKind.TEMPLATE, "BLOCK_M=128", None)
SPLIT = Choice("decompose_k_mm", ChoiceKind.GRAPH, "", 120_000)
TOOK, CHOSE = (
    "aten::mm took 91.0 us alone when it was compiled, ",
    "max_autotune chose the library",
)


@pytest.mark.parametrize(
    ("choices", "others", "text"),
    [
        ((LIBRARY, TEMPLATE), 0, f"{TOOK}the only template 104.2 us: {CHOSE}"),
        ((LIBRARY, TEMPLATE, FAILED), 7, f"{TOOK}the best of 9 templates 104.2 us: {CHOSE}"),
        (
            (LIBRARY, TEMPLATE, SPLIT),
            0,
            f"{TOOK}the best of 2 templates and decompositions 104.2 us: {CHOSE}",
        ),
        (
            (FASTER, LIBRARY, TEMPLATE),
            0,
            f"{TOOK}the best of 2 templates 80.0 us; {CHOSE} nevertheless",
        ),
        ((LIBRARY, FAILED), 0, f"{TOOK}and no template ran: {CHOSE}"),
        ((LIBRARY,), 0, f"{TOOK}and no template was tried: {CHOSE}"),
        (
            (replace(LIBRARY, duration_ns=None), TEMPLATE),
            0,
            f"aten::mm: {CHOSE}; its time is not known",
        ),
    ],
)
def test_where_max_autotune_chose_a_library_call_its_reason_has_the_times(choices, others, text):
    mm, kernel = _site(SiteKind.EXTERN, "aten::mm"), _site(SiteKind.TRITON)
    at = next(at for at, each in enumerate(choices) if each.kind is ChoiceKind.LIBRARY)
    tuned = Autotuned((0,), choices, at, others)
    record = _record(fusion_options=("max_autotune",), autotuned=(tuned,))
    assert library_call_text(record, mm, replace(kernel, ordinal=1)) == text
    cached = _record(autotuned=(replace(tuned, is_cached=True),))
    assert "by times from torch's cache" in library_call_text(cached, mm, kernel)
    sort = replace(_site(SiteKind.EXTERN, "aten::sort"), ordinal=1)
    assert "no template" in library_call_text(record, mm, sort)


def test_a_buffer_has_what_was_timed_for_the_kernels_on_both_sides(analysis):
    graphs = list(analysis.recording.graphs)
    tuned = Autotuned((0,), (LIBRARY, TEMPLATE), 0)
    graphs[0] = replace(graphs[0], provenance=replace(graphs[0].record, autotuned=(tuned,)))
    known = replace(analysis, recording=replace(analysis.recording, graphs=tuple(graphs)))
    found = {each.passed.buffer: each for each in passed_buffers(known)}
    writer = found["buf0"].writer.site
    assert found["buf0"].autotuned == ((writer, tuned),)
    assert found["buf0"].reason.endswith(f"the only template 104.2 us: {CHOSE}")
    assert found["buf3"].autotuned == ()


def test_a_recording_of_an_earlier_version_has_no_buffers():
    recorded = load(H200 / "cases" / "mix_order.session.pt.trace.json.gz")
    assert passed_buffers(recorded.analyses[0]) == ()
    assert len(recorded.columns("fusions")) == 0


def test_a_comparison_says_why_kernels_of_a_changed_fusion_are_two(analysis):
    names = ("extern_kernels.addmm", "triton_poi_fused__to_copy_gelu_0")
    fused = [FusedKernel((name,), (), 1_000, 1) for name in names]
    side = SimpleNamespace(analyses=(analysis, analysis))
    (pair,) = not_fused(side, fused)
    assert (pair.writer, pair.reader, pair.barrier) == (*names, FusionBarrier.LIBRARY_CALL)
    assert list(not_fused(side, fused[:1])) == []
