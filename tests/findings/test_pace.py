"""A launch sets the pace where the step waits for it, not where the device waits for the CPU."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.findings.critical_path import find_critical_path
from profiler_ext.findings.facts import facts_of
from tests.findings.stepping import US, Script


def kernels(*durations_us: int) -> Script:
    script = Script()
    for duration in durations_us:
        script.launch("vectorized_elementwise_kernel", duration * US)
    return script


def test_a_queue_that_the_cpu_waits_for_sets_the_pace():
    script = kernels(40, 40, 40)
    script.wait()
    script.end_step()
    assert find_critical_path(script.analysis()).is_critical.tolist() == [True, True, True]


def test_kernels_before_the_device_waits_for_the_cpu_do_not():
    script = kernels(2, 2, 2)
    script.wait()
    script.end_step()
    # The CPU waits for the last one only.
    assert find_critical_path(script.analysis()).is_critical.tolist() == [False, False, True]


def test_a_run_that_ends_in_a_wait_of_the_device_does_not():
    script = kernels(15, 2, 2, 40)
    script.now_ns += 100 * US
    script.launch("vectorized_elementwise_kernel", 5 * US)
    script.wait()
    script.end_step()
    assert find_critical_path(script.analysis()).is_critical.tolist() == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_a_trace_that_ends_with_a_full_queue_is_paced_by_the_device():
    script = kernels(40, 40, 40)
    script.end_step()
    assert find_critical_path(script.analysis()).is_critical.tolist() == [True, True, True]


def test_a_copy_to_pageable_memory_is_awaited_by_its_own_call():
    script = kernels(40, 40)
    script.launch("Memcpy DtoH (Device -> Pageable)", 500 * US, category="gpu_memcpy")
    call = script.marks[-2]
    script.now_ns = script.free_ns + US
    script.marks[-2] = replace(call, duration_ns=script.now_ns - call.start_ns)
    script.wait()
    script.launch("vectorized_elementwise_kernel", 2 * US)
    script.launch("vectorized_elementwise_kernel", 2 * US)
    script.end_step()
    is_critical = find_critical_path(script.analysis()).is_critical.tolist()
    assert is_critical == [True, True, True, False, False]


def test_the_device_waited_from_the_end_of_one_launch_to_the_next():
    script = kernels(2, 2)
    script.end_step()
    assert find_critical_path(script.analysis()).waited_ns.tolist() == [0, 8 * US]


def test_a_call_that_waits_for_room_in_a_full_queue_is_no_work_of_the_cpu():
    for kernel_us, waits_ns in ((1000, 97_500), (2, 0)):
        script = kernels(*[kernel_us] * 600)
        script.launch("vectorized_elementwise_kernel", kernel_us * US, cost_ns=400 * US)
        script.end_step()
        analysis = script.analysis()
        begins, ends = find_critical_path(analysis).waits_for_room
        assert sum(ends - begins) == waits_ns
        # From the end of one call to the end of the next, and between the step's marks
        assert find_critical_path(analysis).since_ns[-1] == 302_500 - waits_ns
        assert facts_of(analysis).cpu_ns == 6_400 * US - waits_ns


def test_launches_of_other_streams_take_no_room():
    script = kernels(*[1000] * 600)
    script.launch("vectorized_elementwise_kernel", 1000 * US, cost_ns=400 * US, stream=9)
    script.end_step()
    assert not len(find_critical_path(script.analysis()).waits_for_room[0])
