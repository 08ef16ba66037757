"""What keeps the device waiting: a line that needs a value, the data loader, the driver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings import NOWHERE, Figure, FigureUnit
from profiler_ext.findings.facts import Facts, facts_of
from profiler_ext.findings.groups import Kind
from profiler_ext.findings.launch_groups import launch_groups
from profiler_ext.findings.rules import (
    allocating,
    data_loader,
    launch_bound,
    pageable_copy,
    synchronisation,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import (
    CPU,
    ELEMENTWISE,
    MS,
    STREAM,
    US,
    Script,
    at,
    is_silent,
    judged,
    only,
    placed,
    trained,
)
from tests.findings.test_autograd_nodes import ENGINE, STEPS, Steps
from tests.handmade import Mark, interned

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def batch(script: Script, kernels: int, kernel_us: int = 100) -> None:
    for _ in range(kernels):
        script.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", kernel_us * US, op="aten::mm")


def waiting(*, waits: bool) -> Analysis:
    """Steps of two runs of kernels that would queue up, with or without a wait between them."""
    script = Script()
    for _ in range(3):
        batch(script, 20)
        if waits:
            script.wait("aten::_local_scalar_dense")
            script.work("aten::item", 200 * US, "cpu_op")
        batch(script, 20)
        script.end_step()
    return script.analysis()


def behind(work_us: int) -> Analysis:
    """Steps whose CPU is no quicker than the device, waits for it, and then does something else."""
    script = Script()
    for _ in range(3):
        for _ in range(100):
            script.launch("vectorized_elementwise_kernel", 9 * US, op="aten::mul")
        script.wait("aten::_local_scalar_dense")
        script.work("aten::item", work_us * US, "cpu_op")
        script.end_step()
    return script.analysis()


def test_a_wait_costs_what_the_device_then_waits() -> None:
    found = only(synchronisation.RULE, waiting(waits=True))
    # Two microseconds of the wait itself; the work after it and the way to the end of the next
    # launch's call, which would take less if nobody recorded them; and its way to the device.
    assert found.est_saving_ns == 2 * US + int(207.5 * US / 1.45) + 2.5 * US
    assert found.location == NOWHERE
    assert is_silent(launch_bound.RULE, waiting(waits=True))


def test_a_line_that_waits_in_one_step_of_three_is_left_alone() -> None:
    made = waiting(waits=True)
    (nowhere,) = made.idle.places
    of_first = (made.idle.step == 0).astype(np.int32)
    places = (nowhere, replace(nowhere, file="/m.py", line=3))
    rarely = replace(made, idle=replace(made.idle, places=places, cause_place=of_first))
    found = only(synchronisation.RULE, rarely)
    assert (found.location, found.evidence[0].value) == (NOWHERE, 1)


def test_a_line_that_waits_in_each_of_several_modules_is_one_finding() -> None:
    made = waiting(waits=True)
    line = replace(made.idle.places[0], file="/m.py", line=3)
    layers = tuple(replace(line, module=f"layers.{number}") for number in range(2))
    alternating = (np.arange(len(made.idle)) % 2).astype(np.int32)
    spread = replace(made, idle=replace(made.idle, places=layers, cause_place=alternating))
    found = only(synchronisation.RULE, spread)
    assert (found.location.line, found.location.module) == (3, None)
    assert found.est_saving_ns == only(synchronisation.RULE, waiting(waits=True)).est_saving_ns
    of_one = replace(spread, idle=replace(spread.idle, cause_place=alternating * 0))
    assert only(synchronisation.RULE, of_one).location.module == "layers.0"


def reading(kernel: str, copy_us: int, op: str = "aten::copy_") -> Analysis:
    """Steps whose CPU waits for a copy after each of 20 kernels."""
    script = Script()
    for _ in range(3):
        for _ in range(20):
            batch(script, 1, 2)
            script.launch(kernel, copy_us * US, op=op, cost_ns=40 * US, category="gpu_memcpy")
            script.wait()
        script.end_step()
    return script.analysis()


def test_a_short_copy_to_the_host_is_a_read_of_values_with_its_op() -> None:
    to_host = "Memcpy DtoH (Device -> Pinned)"
    short = only(synchronisation.RULE, reading(to_host, 2))
    read = only(synchronisation.RULE, reading(to_host, 2, "aten::_local_scalar_dense"))
    assert short.est_saving_ns == read.est_saving_ns > 20 * 30 * US / 1.45
    (long,) = launch_groups(facts_of(reading(to_host, 50)))
    # It stays, and nobody waits for it
    assert (long.kind, len(long.launches)) == (Kind.READS, 0) and long.saving_ns


def inverting(check: str) -> Analysis:
    """Steps of 20 rounds with an inverse, some ops, and a look at the inverse's error code."""
    steps = Steps()
    for _ in range(STEPS):
        for _ in range(20):
            with steps.within("aten::linalg_inv"):
                steps.launch("linalg_lu", Phase.FORWARD, us=2)
                with steps.within(check):
                    steps.launch("copy_", Phase.FORWARD, us=2, cost_ns=30 * US)
                    steps.launch("any", Phase.FORWARD, us=2, cost_ns=30 * US)
                    with steps.within("aten::item"):
                        steps.launch("_local_scalar_dense", Phase.FORWARD, us=2)
                        steps.script.wait()
            for _ in range(8):
                steps.launch("mul", Phase.FORWARD, us=2)
        steps.launch("sum", Phase.BACKWARD, us=2)
        steps.end_step()
    analysis = steps.analysis(linalg_inv=at(5, "linalg_inv"), mul=at(6, "mul"), sum=at(6, "sum"))
    lines = tuple(replace(each, file="/model.py", line=5) for each in analysis.idle.places)
    return replace(analysis, idle=replace(analysis.idle, places=lines))


def test_a_check_of_errors_goes_with_all_that_it_launches_and_stays_out_of_loops() -> None:
    checked, other = inverting("aten::_linalg_check_errors"), inverting("aten::to")
    found = only(synchronisation.RULE, checked)
    assert (found.location.line, found.remedy.split()[0]) == (5, "torch.linalg.inv_ex,")
    # Two launches of 30 us in each round
    assert found.est_saving_ns > 20 * 60 * US / 1.45
    loops = [
        next(each for each in launch_groups(facts_of(analysis)) if each.kind is Kind.CALLS)
        for analysis in (checked, other)
    ]
    assert len(loops[1].launches) - len(loops[0].launches) == STEPS * 20 * 3


def picking(picks: int) -> Analysis:
    """Steps that pick a mask's elements so often: seven launches each, after one."""
    script = Script()
    for _ in range(3):
        for _ in range(picks):
            batch(script, 1, 2)
            begin_ns = script.now_ns
            for _ in range(6):
                script.launch("cub", 2 * US, op="aten::nonzero")
            script.wait()
            script.launch(ELEMENTWISE, 2 * US, op="aten::index")
            span = CPU, begin_ns, script.now_ns - begin_ns
            script.marks.append(Mark("aten::index", "cpu_op", *span))
        batch(script, 1, 2)
        script.end_step()
    line, of_step = at(5, "index"), [Phase.FORWARD.value] * 8 * picks + [Phase.BACKWARD.value]
    analysis = placed(script.analysis(), nonzero=line, index=line)
    phases = interned(of_step * 3)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def test_a_pick_of_a_masks_elements_costs_its_wait_and_all_its_launches_but_one() -> None:
    analysis = picking(6)
    found = only(synchronisation.RULE, analysis)
    assert (found.location.file, found.location.line) == ("/model.py", 5)
    assert found.summary.endswith("device synchronization in 6 picks of a mask's elements")
    # Of 70 us on the CPU, as recorded, 10 are left
    assert found.est_saving_ns == pytest.approx(6 * 60 * US / 1.45, rel=0.2)
    (group,) = launch_groups(facts_of(analysis))
    assert group.kind is Kind.PICKS and int(np.sum(group.waits)) == 18


def picking_with_gradients() -> Analysis:
    """Steps that pick a mask's elements, whose places the backward sorts for 900 us of 1000."""
    steps = Steps()
    for step in range(STEPS):
        with steps.within("aten::index", 2 * step, forward=0):
            steps.launch("nonzero", Phase.FORWARD, us=100)
            steps.script.wait()
            steps.launch("gather", Phase.FORWARD, us=200)
        with steps.within("aten::sum", 2 * step + 1, forward=0):
            steps.launch("sum", Phase.FORWARD)
        with steps.within(ENGINE + "IndexBackward0", 2 * step):
            steps.launch("fill_", Phase.BACKWARD, us=100)
            with steps.within("aten::_index_put_impl_"):
                steps.launch("sort", Phase.BACKWARD, us=900)
                steps.launch("put", Phase.BACKWARD, us=100)
        steps.end_step()
    line = at(5, "index")
    return steps.analysis(index=line, _index_put_impl_=at(5, "_index_put_impl_"), fill_=line)


def test_the_gradients_of_picked_elements_need_no_longer_than_picking_them() -> None:
    analysis = picking_with_gradients()
    (group,) = (each for each in launch_groups(facts_of(analysis)) if each.kind is Kind.PICKS)
    kept = [0.0, 1.0, 1.0, 0.2, 0.2]
    assert group.busy_kept == pytest.approx(kept * STEPS)
    assert only(synchronisation.RULE, analysis).est_saving_ns > (100 + 1000 - 200) * US


def picking_in_loop(rounds: int, picks: int) -> Analysis:
    """Steps with a loop over tensors outside of a model, some rounds of which pick by a mask."""
    steps = Steps()
    for _ in range(STEPS):
        for number in range(rounds):
            steps.launch("eq", Phase.OTHER, us=2)
            if number < picks:
                with steps.within("aten::index"):
                    count = "Memcpy DtoH (Device -> Pinned)"
                    steps.launch("nonzero", Phase.OTHER, count, us=2, category="gpu_memcpy")
                    steps.script.wait()
                    steps.launch("gather", Phase.OTHER, us=2)
        steps.end_step()
    line = at(5, "index", Phase.OTHER)
    made = steps.analysis(index=line, eq=line | {"aten_op": "aten::eq"})
    idle = tuple(replace(each, file="/model.py", line=5) for each in made.idle.places)
    return replace(made, idle=replace(made.idle, places=idle))


def test_a_loop_that_picks_by_a_mask_in_each_round_has_those_waits() -> None:
    analysis = picking_in_loop(30, 30)
    loop, *_ = launch_groups(facts_of(analysis))
    # With the wait at the end of the step
    assert (loop.kind, loop.count, int(np.sum(loop.waits))) == (Kind.TENSORS, 30, 31 * STEPS)
    found = only(synchronisation.RULE, analysis)
    assert found.summary == "device synchronization in a Python loop over 30 tensors"
    assert found.remedy.startswith("one index of all elements")
    assert found.est_saving_ns > 0.8 * 30 * 30 * US / 1.45


def test_a_pick_in_a_few_rounds_of_a_loop_is_not_the_loops() -> None:
    kinds = {each.kind for each in launch_groups(facts_of(picking_in_loop(30, 4)))}
    assert {Kind.TENSORS, Kind.PICKS} <= kinds


def copy(script: Script, name: str, op: str = "aten::copy_") -> None:
    """Let the CPU copy pageable memory, in a call that lasts until the copy is over."""
    begin_ns, start_ns = script.now_ns, max(script.free_ns, script.now_ns + 5 * US)
    script.free_ns = start_ns + 2 * US
    script.now_ns = script.free_ns + 5 * US
    ids, span_ns = {"correlation": 10_000 + len(script.marks)}, script.now_ns - begin_ns
    call = Mark("cudaMemcpyAsync", "cuda_runtime", CPU, begin_ns + US, span_ns - 2 * US, ids)
    run = Mark(name, "gpu_memcpy", STREAM, start_ns, 2 * US, ids | {"device": 0, "stream": 7})
    script.marks += [Mark(op, "cpu_op", CPU, begin_ns, span_ns), call, run]


def round_trip(*, launches: bool, op: str = "aten::copy_") -> Analysis:
    """Steps in which the CPU copies a value, works on it, and copies what it made of it back."""
    script = Script()
    for _ in range(3):
        batch(script, 20)
        copy(script, "Memcpy DtoH (Device -> Pageable)")
        script.work("numpy", 200 * US)
        if launches:
            batch(script, 2)
        copy(script, "Memcpy HtoD (Pageable -> Device)", op)
        batch(script, 20)
        script.end_step()
    return script.analysis()


def test_a_wait_that_costs_nothing_as_the_step_is_is_none() -> None:
    script = Script()
    for _ in range(3):
        for _ in range(30):
            script.launch(ELEMENTWISE, 6 * US, op="aten::norm")
        script.wait("aten::_local_scalar_dense")
        for _ in range(30):
            script.launch(ELEMENTWISE, 2 * US, op="aten::other")
        script.end_step()
    line = {
        "file": "/train.py",
        "line": 7,
        "function": "train",
        "code": "norms.append(each.norm())",
    }
    analysis = placed(script.analysis(), norm=line)
    saved_ns = {each.kind: each.saving_ns for each in launch_groups(facts_of(analysis))}
    # Once the loop is one op, the CPU waits for that
    assert saved_ns[Kind.READS] > 30 * US
    assert is_silent(synchronisation.RULE, analysis)


def test_what_is_copied_back_after_a_read_goes_with_it() -> None:
    facts = facts_of(round_trip(launches=False))
    assert facts.replay is not None
    (reads,) = launch_groups(facts)
    assert reads.kind is Kind.READS and reads.waits is not None
    assert int(reads.waits.sum()) == len(reads.waits) == 6
    apart = {each.kind: each.waits for each in launch_groups(facts_of(round_trip(launches=True)))}
    assert {kind: int(np.sum(waits)) for kind, waits in apart.items()} == {
        Kind.READS: 3,
        Kind.COPIES: 3,
    }


def test_what_is_made_of_a_value_on_the_device_is_not_copied_there() -> None:
    (writes,) = launch_groups(facts_of(round_trip(launches=False)))
    (moved,) = launch_groups(facts_of(round_trip(launches=False, op="aten::to")))
    assert len(moved.launches) == len(writes.launches) + 3
    assert moved.saving_ns > writes.saving_ns


def test_copies_back_are_no_copies_of_batches() -> None:
    script = Script()
    for _ in range(3):
        for _ in range(20):
            copy(script, "Memcpy DtoH (Device -> Pinned)")
            copy(script, "Memcpy HtoD (Pageable -> Device)", "aten::to")
        script.end_step()
    assert is_silent(pageable_copy.RULE, script.analysis())
    assert judged(synchronisation.RULE, script.analysis()).ranked


def test_a_wait_of_a_cpu_that_is_behind_costs_the_lead_that_it_would_have_unrecorded() -> None:
    before_ns = [1_050 * US, 1_040 * US, 1_040 * US]
    found = only(synchronisation.RULE, trained(behind(200), *before_ns))
    # The device runs 900 us a step, and the CPU, 1,200 recorded, would take less than that.
    assert (round(found.est_saving_ns / US), found.total_ns) == (140, 1_040 * US)


def test_a_wait_costs_nothing_where_the_steps_before_took_no_longer_than_the_device() -> None:
    before_ns = [905 * US] * 5  # Recorded, 1,400; replayed with a quicker CPU, more than 905 too.
    fills = trained(behind(400), *before_ns, on_device=True)
    assert is_silent(synchronisation.RULE, fills)
    assert not is_silent(synchronisation.RULE, behind(400))


def test_a_wait_costs_as_much_where_the_cpus_lead_differs_from_step_to_step() -> None:
    script = Script()
    for first in (5, 35, 5, 35, 5):
        batch(script, first)
        script.wait("aten::_local_scalar_dense")
        script.work("aten::item", 200 * US, "cpu_op")
        batch(script, 40 - first)
        script.end_step()
    found = only(synchronisation.RULE, script.analysis())
    # The CPU's own span of the usual step is 3 ms shorter than what the device runs in it.
    assert found.est_saving_ns == 2 * US + int(207.5 * US / 1.45) + 2.5 * US


def test_kernels_that_nobody_waits_for_are_none() -> None:
    assert is_silent(synchronisation.RULE, waiting(waits=False))


def loading(load_ms: int) -> Analysis:
    script = Script()
    for _ in range(3):
        script.work(LOADER, load_ms * MS)
        batch(script, 100)
        script.end_step()
    return script.analysis()


def test_a_loader_that_is_slower_than_the_device_keeps_it_waiting() -> None:
    found = only(data_loader.RULE, loading(30))
    assert 20 * MS <= found.est_saving_ns <= 21 * MS
    assert found.remedy.startswith("DataLoader(num_workers=...)")


def test_no_more_is_saved_than_the_device_idles_in_training() -> None:
    analysis = trained(loading(30), *[22 * MS] * 3)
    found = only(data_loader.RULE, analysis)
    assert found.est_saving_ns == 22 * MS - 10 * MS
    most = Figure("no more than a step idles in training", found.est_saving_ns, FigureUnit.NS)
    assert found.evidence[-1] == most


def test_a_loader_that_the_device_is_not_through_with_yet_is_none() -> None:
    assert is_silent(data_loader.RULE, loading(2))


def taking(call: str, steps: int = 3, of: int | None = None) -> Analysis:
    script = Script()
    for step in range(steps):
        batch(script, 20, 20)
        if of is None or step < of:
            script.work(call, 5 * MS, "cuda_runtime")
        batch(script, 20, 20)
        script.end_step()
    return script.analysis()


def test_memory_from_the_driver_keeps_the_device_waiting() -> None:
    found = only(allocating.RULE, taking("cudaMalloc"))
    assert 4 * MS < found.est_saving_ns <= 5 * MS
    assert "empty_cache" in found.remedy


def test_memory_that_is_taken_while_the_device_is_busy_costs_the_lead_of_the_cpu() -> None:
    script = Script()
    for _ in range(3):
        for _ in range(20):  # the device is given 6 ms of work in 0.2 ms
            script.launch("vectorized_elementwise_kernel", 300 * US)
        script.work("cudaMalloc", 7 * MS, "cuda_runtime")
        for _ in range(100):  # for each of these it waits
            script.launch("vectorized_elementwise_kernel", 5 * US, cost_ns=40 * US)
        script.wait()
        script.end_step()
    found = only(allocating.RULE, script.analysis())
    assert found.evidence[-1].value == pytest.approx(1.2 * MS, rel=0.02)  # idle meanwhile
    # On a CPU 1.45 times as fast the short kernels are launched before the device is through
    assert found.est_saving_ns == pytest.approx(3.4 * MS, rel=0.02)


def test_freeing_waits_for_the_device_and_costs_the_lead_of_the_cpu() -> None:
    """A step takes 6 ms of work, 1 ms to free and 2.76 ms to launch; without it 6.5 ms of work."""
    script = Script()
    for _ in range(4):
        for _ in range(20):
            script.launch("vectorized_elementwise_kernel", 300 * US)
        script.work("cudaFree", script.free_ns + MS - script.now_ns, "cuda_runtime")
        for _ in range(100):
            script.launch("vectorized_elementwise_kernel", 5 * US, cost_ns=40 * US)
        script.end_step()
    found = only(allocating.RULE, script.analysis())
    assert found.est_saving_ns == pytest.approx((6 + 1 + 4 / 1.45 - 6.5) * MS, rel=0.1)
    assert is_silent(synchronisation.RULE, script.analysis())


def test_freeing_in_the_order_of_a_stream_waits_for_nothing() -> None:
    """An asynchronous allocator frees a tensor when the device has come to it."""
    script = Script()
    for _ in range(4):
        for _ in range(20):
            script.launch("vectorized_elementwise_kernel", 300 * US)
        script.work("cudaFreeAsync", 5 * US, "cuda_runtime")
        script.end_step()
    replay = Facts(script.analysis()).replay
    assert replay is not None and not len(replay.waits.start_ns)


def test_what_a_program_does_as_it_starts_is_not_reported_of_each_step() -> None:
    waits = "the device waits while memory is taken from the driver, "
    assert only(allocating.RULE, taking("cudaMalloc")).summary == f"{waits}in each step"
    (alone,) = judged(allocating.RULE, taking("cudaFree", steps=1)).ranked
    assert alone.summary == f"{waits}in the one step that was recorded"
    (of_two,) = judged(allocating.RULE, taking("cudaFree", of=2)).ranked
    assert of_two.summary == f"{waits}in 2 of 3 steps"
    assert is_silent(allocating.RULE, taking("cudaFree", of=1))


def test_a_call_that_takes_no_memory_is_none() -> None:
    assert is_silent(allocating.RULE, taking("cudaEventQuery"))
    assert is_silent(pageable_copy.RULE, taking("cudaMalloc"))
