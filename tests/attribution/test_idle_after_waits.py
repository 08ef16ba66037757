"""Idle time after a wait for the device is the wait's, for as long as the device was busy."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_ext.records.vocabulary import IdleCause
from tests.attribution.idle_marks import (
    STEP,
    annotation,
    call,
    causes,
    launch,
    op,
    ran,
)
from tests.handmade import Mark


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
