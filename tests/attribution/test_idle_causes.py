"""Each piece of idle time has the cause that what ended it had waited for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.records import IdleCause, Recording, Thread
from tests.attribution.reading import assert_conserves
from tests.handmade import Mark, pieces, trace

MAIN, AUTOGRAD, OTHER = Thread(100, 100), Thread(100, 101), Thread(100, 102)
STREAM, PROFILER = Thread(0, 7), Thread(-1, 0)
STEP = Mark("ProfilerStep#1", "user_annotation", MAIN, 0, 1000)


def op(name: str, start_ns: int, end_ns: int, thread: Thread = MAIN) -> Mark:
    return Mark(name, "cpu_op", thread, start_ns, end_ns - start_ns)


def annotation(name: str, start_ns: int, end_ns: int, thread: Thread = MAIN) -> Mark:
    return Mark(name, "user_annotation", thread, start_ns, end_ns - start_ns)


def call(name: str, start_ns: int, end_ns: int, number: int = 0, thread: Thread = MAIN) -> Mark:
    told = {"correlation": number} if number else {}
    return Mark(name, "cuda_runtime", thread, start_ns, end_ns - start_ns, told)


def ran(number: int, start_ns: int, end_ns: int, category: str = "kernel") -> Mark:
    told = {"device": 0, "stream": 7, "correlation": number}
    return Mark("work", category, STREAM, start_ns, end_ns - start_ns, told)


def launch(number: int, start_ns: int, end_ns: int, thread: Thread = MAIN) -> Mark:
    return call("cudaLaunchKernel", start_ns, end_ns, number, thread)


def causes(*marks: Mark) -> list[tuple[str, int, int]]:
    """Return the cause of each piece of idle time, and from when to when it lasts."""
    analysis = attribute(Recording(trace(marks)))
    assert_conserves(analysis)
    return [(p.cause, p.start_ns, p.start_ns + p.duration_ns) for p in pieces(analysis)]


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
        ("launch_latency", 930, 1000),
        ("launch_latency", 1000, 1100),
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


def test_what_the_profiler_does_beside_a_busy_thread_is_not_what_holds_it_up() -> None:
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


def test_beside_a_collective_that_nothing_waits_for_the_cpu_works() -> None:
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


# What follows a wait


def waiting(busy_ns: int, *more: Mark) -> Sequence[Mark]:
    """Wait from 100 to 20 after the device is done, then launch at 120 and 100 further on."""
    done = 100 + busy_ns
    return (
        *(STEP, launch(1, 0, 10), ran(1, 10, done)),
        *(call("cudaStreamSynchronize", 100, done + 20), op("aten::mm", done + 70, done + 120)),
        *(launch(2, done + 100, done + 120), ran(2, done + 120, 1000), *more),
    )


def test_idle_time_after_a_wait_is_its_consequence_if_it_waited_long_enough() -> None:
    assert causes(*waiting(300)) == [
        ("launching", 0, 10),
        ("synchronisation", 400, 420),
        ("after_synchronisation", 420, 470),
        ("after_synchronisation", 470, 520),
    ]


def test_beyond_what_the_device_was_busy_meanwhile_it_would_have_been_idle_anyway() -> None:
    assert causes(*waiting(70)) == [
        ("launching", 0, 10),
        ("synchronisation", 170, 190),
        ("after_synchronisation", 190, 240),
        ("after_synchronisation", 240, 260),
        ("launching", 260, 290),
    ]


def test_a_wait_for_a_device_that_is_done_has_no_consequence() -> None:
    marks = (
        *(STEP, launch(1, 0, 10), ran(1, 10, 100), call("cudaDeviceSynchronize", 150, 170)),
        *(launch(2, 200, 210), ran(2, 210, 1000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 10),
        ("python", 100, 150),
        ("synchronisation", 150, 170),
        ("python", 170, 200),
        ("launching", 200, 210),
    ]


def test_a_lead_lasts_over_several_launches_and_waits_until_it_is_used_up() -> None:
    marks = (
        *(STEP, launch(1, 0, 10), ran(1, 10, 400), call("cudaStreamSynchronize", 100, 400)),
        *(launch(2, 440, 450), ran(2, 450, 500), launch(3, 540, 550), ran(3, 550, 600)),
        *(call("cudaStreamSynchronize", 590, 600), launch(4, 640, 650), ran(4, 650, 1000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 10),
        ("after_synchronisation", 400, 440),
        ("after_synchronisation", 440, 450),
        ("after_synchronisation", 500, 540),
        ("after_synchronisation", 540, 550),
        ("after_synchronisation", 600, 640),
        ("after_synchronisation", 640, 650),
    ]


def test_a_call_that_frees_memory_waits_for_the_device_too() -> None:
    marks = (
        *(STEP, launch(1, 0, 10), ran(1, 10, 400), call("cudaFree", 100, 420)),
        *(launch(2, 500, 510), ran(2, 510, 1000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 10),
        ("allocating", 400, 420),
        ("after_synchronisation", 420, 500),
        ("after_synchronisation", 500, 510),
    ]


def test_an_item_is_a_copy_that_is_waited_for_and_a_call_that_finds_it_done() -> None:
    marks = (
        *(STEP, launch(1, 0, 10), ran(1, 10, 400), op("aten::item", 90, 450)),
        *(call("cudaMemcpyAsync", 100, 420, 2), ran(2, 400, 405, "gpu_memcpy")),
        *(call("cudaStreamSynchronize", 430, 440), launch(3, 500, 510), ran(3, 510, 1000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 10),
        ("synchronisation", 405, 420),
        ("after_synchronisation", 420, 430),
        ("synchronisation", 430, 440),
        ("after_synchronisation", 440, 450),
        ("after_synchronisation", 450, 500),
        ("after_synchronisation", 500, 510),
    ]


def test_a_loader_keeps_its_name_after_a_wait_and_uses_up_the_lead() -> None:
    loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 430, 600)
    marks = (
        *(STEP, launch(1, 0, 10), ran(1, 10, 400), call("cudaStreamSynchronize", 200, 410)),
        *(loader, launch(2, 650, 660), ran(2, 660, 1000)),
    )
    assert causes(*marks) == [
        ("launching", 0, 10),
        ("synchronisation", 400, 410),
        ("after_synchronisation", 410, 430),
        ("data_loader", 430, 600),
        ("after_synchronisation", 600, 610),
        ("python", 610, 650),
        ("launching", 650, 660),
    ]


def test_every_cause_is_one_of_the_vocabulary() -> None:
    assert {cause for cause, _, _ in causes(*waiting(300))} < set(IdleCause)
