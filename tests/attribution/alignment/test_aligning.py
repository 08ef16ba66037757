from __future__ import annotations

from profiler_ext.attribution.alignment.aligning import align
from profiler_ext.attribution.alignment.library_kernels import KnownKernels
from profiler_ext.attribution.graph_calls import Match, WorkItem
from profiler_ext.records.evidence import SiteEvidence
from profiler_ext.records.gaps import GapReason
from tests.attribution.graphs import extern, nameless, numbered, triton, user_triton

A, B, C = triton("triton_a_fused_0"), triton("triton_b_fused_1"), triton("triton_c_fused_2")
MM, ADDMM = extern("mm"), extern("addmm")


def _called(*names: str) -> list[WorkItem]:
    return [WorkItem(name) for name in names]


def _replayed(*names: str) -> list[WorkItem]:
    return [
        WorkItem(name, on_device=True, replayed=True, is_kernel=not name.startswith("Memset"))
        for name in names
    ]


def _sites(matches: tuple[Match, ...]) -> list[int | GapReason | None]:
    return [match.gap or match.site for match in matches]


def test_equal_orders_match_site_by_site_and_say_by_which_rule():
    found = align(numbered([A, MM, A]), _called(A.kernel, "aten::mm", A.kernel), KnownKernels())
    assert found == (
        Match(0, SiteEvidence.CALL_ORDER),
        Match(1, SiteEvidence.CALL_ORDER_OP),
        Match(2, SiteEvidence.CALL_ORDER),
    )


def test_a_call_whose_order_is_too_far_from_that_of_the_sites_is_a_gap():
    sites = [triton(f"triton_fused_{n}") for n in range(6_000)]
    items = _called("aten::copy_", *(site.kernel for site in reversed(sites)))
    assert set(align(numbered(sites), items, KnownKernels())) == {
        Match(gap=GapReason.ALIGNMENT_MISMATCH)
    }


def test_operators_of_the_wrapper_are_glue():
    items = _called("aten::copy_", A.kernel, "aten::zero_", "aten::mm")
    assert _sites(align(numbered([A, MM]), items, KnownKernels())) == [
        GapReason.WRAPPER_GLUE,
        0,
        GapReason.WRAPPER_GLUE,
        1,
    ]


def test_a_lost_item_leaves_its_neighbours_exact_and_its_twins_open():
    sites = numbered([A, B, A, C, A])
    items = _called(A.kernel, B.kernel, C.kernel, A.kernel)
    assert _sites(align(sites, items, KnownKernels())) == [0, 1, 3, 4]
    items = _called(B.kernel, A.kernel, A.kernel)
    assert _sites(align(sites, items, KnownKernels())) == [1, 2, 4]
    items = _called(A.kernel, A.kernel)
    assert _sites(align(sites, items, KnownKernels())) == [GapReason.ALIGNMENT_MISMATCH] * 2


def test_swapped_items_are_a_mismatch_and_never_a_guess():
    found = align(numbered([A, B, C]), _called(B.kernel, A.kernel, C.kernel), KnownKernels())
    assert _sites(found) == [GapReason.ALIGNMENT_MISMATCH, GapReason.ALIGNMENT_MISMATCH, 2]


def test_a_doubled_item_is_a_mismatch():
    found = align(numbered([A, B]), _called(A.kernel, A.kernel, B.kernel), KnownKernels())
    assert _sites(found) == [GapReason.ALIGNMENT_MISMATCH, GapReason.ALIGNMENT_MISMATCH, 1]


def test_a_kernel_that_the_graph_does_not_have_is_a_mismatch():
    found = align(numbered([A]), _called(A.kernel, "triton_poi_fused_other_9"), KnownKernels())
    assert _sites(found) == [0, GapReason.ALIGNMENT_MISMATCH]


def test_in_a_replay_one_library_site_takes_all_kernels_between_its_neighbours():
    sites = numbered([A, MM, B])
    items = _replayed(A.kernel, "cublas", "splitK", B.kernel)
    assert align(sites, items, KnownKernels()) == (
        Match(0, SiteEvidence.REPLAY_ORDER),
        Match(1, SiteEvidence.REPLAY_ORDER),
        Match(1, SiteEvidence.REPLAY_ORDER),
        Match(2, SiteEvidence.REPLAY_ORDER),
    )


def test_in_a_replay_a_run_of_library_sites_with_as_many_kernels_takes_one_each():
    items = _replayed(A.kernel, "cublas", "cublas", B.kernel)
    assert _sites(align(numbered([A, MM, ADDMM, B]), items, KnownKernels())) == [0, 1, 2, 3]


def test_in_a_replay_a_memset_leaves_the_boundary_of_a_run_open():
    items = _replayed(A.kernel, "Memset", "cublas", B.kernel)
    open_run = GapReason.AMBIGUOUS_EXTERN_RUN
    assert _sites(align(numbered([A, MM, ADDMM, B]), items, KnownKernels())) == [
        0,
        open_run,
        open_run,
        3,
    ]


def test_in_a_replay_learnt_kernels_close_the_boundary():
    items = _replayed(A.kernel, "k1", "k2", "k3", B.kernel)
    sites = numbered([A, MM, ADDMM, B])
    open_run, wrong = GapReason.AMBIGUOUS_EXTERN_RUN, GapReason.ALIGNMENT_MISMATCH
    assert _sites(align(sites, items, KnownKernels())) == [0, open_run, open_run, open_run, 3]
    seen = {1: ("k1",), 2: ("k2", "k3")}
    assert _sites(align(sites, items, KnownKernels(seen))) == [0, 1, 2, 2, 3]
    seen = {1: ("k1",), 2: ("k3", "k2")}
    assert _sites(align(sites, items, KnownKernels(seen))) == [0, wrong, wrong, wrong, 3]


def test_in_a_replay_what_was_not_learnt_is_a_mismatch_unless_another_replay_ran_it_too():
    items = _replayed(A.kernel, "k1", "k2", B.kernel)
    wrong, sites, seen = GapReason.ALIGNMENT_MISMATCH, numbered([A, MM, B]), {1: ("k1",)}
    assert _sites(align(sites, items, KnownKernels(seen))) == [0, wrong, wrong, 2]
    assert _sites(align(sites, items, KnownKernels(seen, is_reselected=True))) == [0, 1, 1, 2]


def test_in_a_replay_that_another_contradicts_no_number_of_kernels_decides():
    items = _replayed(A.kernel, "k1", "k2", B.kernel)
    sites, open_run = numbered([A, MM, ADDMM, B]), GapReason.AMBIGUOUS_EXTERN_RUN
    assert _sites(align(sites, items, KnownKernels())) == [0, 1, 2, 3]
    contradicted = KnownKernels(is_contradicted=True)
    assert _sites(align(sites, items, contradicted)) == [0, open_run, open_run, 3]


def test_in_a_replay_kernels_of_another_run_say_so_where_they_decide():
    items = _replayed(A.kernel, "k1", "k2", "k3", B.kernel, "k4")
    sites = numbered([A, MM, ADDMM, B, MM])
    kernels = {1: ("k1",), 2: ("k2", "k3"), 4: ("k4",)}
    stored, here = SiteEvidence.STORED_KERNELS, SiteEvidence.REPLAY_KERNELS
    order = SiteEvidence.REPLAY_ORDER
    known_kernels = KnownKernels(kernels, from_store=frozenset({1, 4}))
    assert [(match.site, match.evidence) for match in align(sites, items, known_kernels)] == [
        (0, order),
        (1, stored),
        (2, stored),
        (2, stored),
        (3, order),
        (4, here),
    ]


def test_in_a_replay_a_missing_generated_kernel_opens_its_surroundings():
    items = _replayed(A.kernel, "k1", "k2", C.kernel)
    wrong = GapReason.ALIGNMENT_MISMATCH
    assert _sites(align(numbered([A, MM, B, MM, C]), items, KnownKernels())) == [0, wrong, wrong, 4]


def test_in_a_replay_what_stands_where_no_site_is_open_is_glue():
    items = _replayed("Memset", A.kernel, B.kernel)
    assert _sites(align(numbered([A, B]), items, KnownKernels())) == [GapReason.WRAPPER_GLUE, 0, 1]


def test_in_a_replay_a_site_that_ran_nothing_makes_its_neighbours_doubtful():
    sites = numbered([A, MM, B, MM, C])
    items = _replayed(A.kernel, B.kernel, "k1", "k2", C.kernel)
    wrong = GapReason.ALIGNMENT_MISMATCH
    assert _sites(align(sites, items, KnownKernels())) == [0, 2, wrong, wrong, 4]
    assert _sites(align(sites, items, KnownKernels({1: ()}))) == [0, 2, 3, 3, 4]
    sites = numbered([A, MM, MM, B, MM, C])
    items = _replayed(A.kernel, "k1", B.kernel, "k2", "k3", C.kernel)
    assert _sites(align(sites, items, KnownKernels())) == [0, wrong, 3, wrong, wrong, 5]


def test_a_users_kernel_replays_under_its_functions_name():
    sites = numbered([A, user_triton("addk_0"), user_triton("addk_1"), B])
    assert _sites(align(sites, _replayed(A.kernel, "addk", "addk", B.kernel), KnownKernels())) == [
        0,
        1,
        2,
        3,
    ]
    assert _sites(
        align(sites, _called(A.kernel, "addk_0", "addk_1", B.kernel), KnownKernels())
    ) == [
        0,
        1,
        2,
        3,
    ]


def test_a_site_without_a_known_operator_takes_the_one_operator_left_over_there():
    sites = numbered([A, nameless("torch.ops.higher_order.run_with_rng_state"), B])
    items = [
        WorkItem(A.kernel),
        WorkItem("aten::empty", launched=False),
        WorkItem("aten::_scaled_dot_product_cudnn_attention"),
        WorkItem(B.kernel),
    ]
    assert _sites(align(sites, items, KnownKernels())) == [0, GapReason.WRAPPER_GLUE, 1, 2]


def test_a_site_without_a_known_operator_stays_empty_where_two_are_left_over():
    sites = numbered([A, nameless("torch.ops.higher_order.run_with_rng_state"), B])
    items = _called(A.kernel, "aten::copy_", "aten::rand", B.kernel)
    glue = GapReason.WRAPPER_GLUE
    assert _sites(align(sites, items, KnownKernels())) == [0, glue, glue, 2]


def test_a_graph_without_sites_has_only_glue():
    assert _sites(align((), _called("aten::copy_"), KnownKernels())) == [GapReason.WRAPPER_GLUE]
    assert align(numbered([A]), (), KnownKernels()) == ()
