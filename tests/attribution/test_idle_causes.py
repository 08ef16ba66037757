"""Each piece of idle time has the cause that what ended it had waited for."""

from __future__ import annotations

import pytest

from profiler_ext.records.events import Thread
from tests.attribution.idle_marks import (
    AUTOGRAD,
    MAIN,
    OTHER,
    PROFILER,
    STEP,
    annotation,
    call,
    causes,
    launch,
    op,
    ran,
)
from tests.handmade import Mark


def test_until_the_launch_the_cpu_is_in_python_and_in_the_op_and_then_it_is_latency() -> None:
    marks = (STEP, op("aten::mm", 200, 300), launch(1, 250, 280), ran(1, 350, 1000))
    assert causes(*marks) == [
        ("python", 0, 200),
        ("launching", 200, 280),
        ("launch_latency", 280, 350),
    ]


def test_what_was_enqueued_before_the_device_was_idle_does_not_wait_for_the_cpu() -> None:
    marks = (STEP, launch(1, 0, 10), launch(2, 20, 30), ran(1, 0, 500), ran(2, 505, 1000))
    assert causes(*marks) == [("between_launches", 500, 505)]


def test_a_step_that_begins_in_a_latency_does_not_change_it() -> None:
    second = Mark("ProfilerStep#2", "user_annotation", MAIN, 1000, 1000)
    marks = (
        *(STEP, second, launch(1, 0, 10), launch(2, 910, 930), launch(3, 1050, 1060)),
        *(ran(1, 0, 900), ran(2, 1100, 1500), ran(3, 1500, 2000)),
    )
    assert causes(*marks) == [
        ("python", 900, 910),
        ("launching", 910, 930),
        ("launch_latency", 930, 1100),
    ]


def test_python_after_the_last_launch_of_a_step_is_its_end() -> None:
    second = Mark("ProfilerStep#2", "user_annotation", MAIN, 1000, 1000)
    marks = (
        *(STEP, second, launch(1, 0, 10), ran(1, 10, 900), op("aten::log", 920, 950)),
        *(launch(2, 1100, 1110), ran(2, 1110, 2000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 10),
        ("end_of_step", 900, 920),
        ("launching", 920, 950),
        ("end_of_step", 950, 1000),
        ("python", 1000, 1100),
        ("launching", 1100, 1110),
    ]


@pytest.mark.parametrize(
    ("around", "cause"),
    [
        (annotation("enumerate(DataLoader)#_SingleProcess.__next__", 0, 500), "data_loader"),
        (annotation("enumerate(DataPipe)#Mapper", 0, 500), "data_loader"),
        (op("compile_fx_inner (dynamo_timed)", 0, 500), "compiling"),
        (op("CachingAutotuner.benchmark_all_configs", 0, 500), "compiling"),
        (op("CUDAGraphNode.record (dynamo_timed)", 0, 500), "compiling"),
        (op("gloo:all_reduce", 0, 500), "other_rank"),
        (call("cudaMalloc", 0, 500), "allocating"),
        (call("cudaHostAlloc", 0, 500), "allocating"),
        (call("cudaStreamSynchronize", 0, 500), "synchronisation"),
        (call("cudaEventQuery", 0, 500), "launching"),
        (op("Torch-Compiled Region: 0/0", 0, 500), "launching"),
        (annotation("## Call CompiledFxGraph fkey ##", 0, 500), "launching"),
        (annotation("Optimizer.step#AdamW.step", 0, 500), "python"),
        (annotation("nccl:all_reduce", 0, 500), "launching"),
    ],
)
def test_what_the_cpu_is_in_tells_the_cause(around: Mark, cause: str) -> None:
    marks = (STEP, around, launch(1, 500, 500), ran(1, 500, 1000))
    assert causes(*marks) == [(cause, 0, 500)]


def test_what_a_loader_or_a_compiler_does_is_theirs_as_deep_as_it_is() -> None:
    loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 400)
    marks = (STEP, loader, op("aten::stack", 50, 100), launch(1, 400, 410), ran(1, 410, 1000))
    assert causes(*marks) == [("data_loader", 0, 400), ("launching", 400, 410)]


def node(name: str, start_ns: int, end_ns: int, thread: Thread = AUTOGRAD) -> tuple[Mark, Mark]:
    evaluates = f"autograd::engine::evaluate_function: {name}"
    return op(evaluates, start_ns, end_ns, thread), op(name, start_ns + 10, end_ns - 10, thread)


@pytest.mark.parametrize("thread", [AUTOGRAD, MAIN])
def test_between_and_within_its_nodes_it_is_autograd_s_engine(thread: Thread) -> None:
    marks = (
        *(STEP, op("aten::sum", 0, 100), *node("MmBackward0", 200, 300, thread)),
        *(op("aten::mm", 230, 250, thread), *node("AddBackward0", 400, 500, thread)),
        *(op("aten::add", 440, 480, thread), launch(1, 450, 460, thread), ran(1, 460, 1000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 100),
        ("python", 100, 200),
        ("autograd", 200, 230),
        ("launching", 230, 250),
        ("autograd", 250, 440),
        ("launching", 440, 460),
    ]


def test_between_two_backward_passes_it_is_what_the_other_thread_did() -> None:
    marks = (
        *(STEP, *node("MmBackward0", 0, 100), op("aten::zero_", 200, 300)),
        *(*node("MmBackward0", 500, 600), launch(1, 520, 530, AUTOGRAD), ran(1, 530, 1000)),
    )
    assert causes(*marks) == [
        ("autograd", 0, 100),
        ("python", 100, 200),
        ("launching", 200, 300),
        ("python", 300, 500),
        ("autograd", 500, 520),
        ("launching", 520, 530),
    ]


def test_an_optimizer_s_launch_waits_for_the_backward_before_it() -> None:
    marks = (
        *(STEP, *node("torch::autograd::AccumulateGrad", 0, 300)),
        *(op("aten::mul_", 400, 500), launch(1, 450, 500), ran(1, 500, 1000)),
    )
    assert causes(*marks) == [
        ("autograd", 0, 300),
        ("python", 300, 400),
        ("launching", 400, 500),
    ]


def test_a_thread_of_the_program_s_own_goes_its_own_way() -> None:
    marks = (STEP, op("aten::mm", 0, 400), launch(1, 450, 460, OTHER), ran(1, 460, 1000))
    assert causes(*marks) == [("python", 0, 450), ("launching", 450, 460)]


def test_what_the_profiler_does_while_nothing_else_goes_on_is_its_own() -> None:
    taken = Mark("Activity Buffer Request", "overhead", PROFILER, 120, 200)
    marks = (STEP, op("aten::mm", 100, 400), taken, launch(1, 400, 410), ran(1, 410, 1000))
    assert causes(*marks) == [
        ("python", 0, 100),
        ("launching", 100, 120),
        ("profiler", 120, 320),
        ("launching", 320, 410),
    ]


def test_what_the_profiler_does_next_to_a_busy_thread_is_not_what_holds_it_up() -> None:
    taken = Mark("Buffer Flush", "overhead", PROFILER, 100, 200)
    ops = [op("aten::mm", start, start + 30) for start in range(100, 300, 50)]
    marks = (STEP, *ops, taken, launch(1, 400, 410), ran(1, 410, 1000))
    assert "profiler" not in {cause for cause, _, _ in causes(*marks)}


def test_until_a_collective_of_the_cpu_is_over_it_waits_for_another_rank() -> None:
    marks = (
        *(STEP, op("c10d::barrier", 0, 20), annotation("gloo:barrier", 50, 300, OTHER)),
        *(op("aten::mm", 310, 400), launch(1, 350, 360), ran(1, 360, 1000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 20),
        ("other_rank", 20, 300),
        ("python", 300, 310),
        ("launching", 310, 360),
    ]


def test_next_to_a_collective_that_nothing_waits_for_the_cpu_works() -> None:
    barrier = (op("c10d::allreduce_", 0, 20), annotation("gloo:all_reduce", 50, 300, OTHER))
    works = (STEP, *barrier, op("aten::mul", 40, 60), launch(1, 350, 360), ran(1, 360, 1000))
    assert "other_rank" not in {cause for cause, _, _ in causes(*works)}
    later = Mark("ProfilerStep#1", "user_annotation", MAIN, 0, 9_000_000)
    sleeps = (later, *barrier, launch(1, 2_000_000, 2_000_010), ran(1, 2_000_010, 9_000_000))
    assert "other_rank" not in {cause for cause, _, _ in causes(*sleeps)}


def test_a_launch_without_a_call_is_unknown() -> None:
    marks = (STEP, op("aten::mm", 0, 400), ran(1, 410, 1000))
    assert causes(*marks) == [("no_launch_call", 0, 410)]


def test_without_events_of_the_cpu_what_is_in_no_call_is_unknown() -> None:
    marks = (launch(1, 0, 10), ran(1, 10, 50), launch(2, 100, 110), ran(2, 120, 200))
    assert causes(*marks) == [
        ("launching", 0, 10),
        ("no_cpu_events", 50, 100),
        ("launching", 100, 110),
        ("launch_latency", 110, 120),
    ]
