"""Whose operators a recording has, and that to end it never ends the process.

Before torch 2.14 one thread is recorded where another may run operators; from then on, all are.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from torch.profiler import ProfilerAction, ProfilerActivity

import profiler_ext
from profiler_ext.errors import UsageError
from profiler_ext.profiling import recorded_threads
from profiler_ext.records.gaps import GapReason
from profiler_ext.sessions.session import Session
from profiler_ext.torch_compat.behaviour import ENDS_ALL_THREADS
from profiler_ext.torch_compat.other_threads import other_threads
from tests.compiling import fresh_torch, torch

__all__ = ["fresh_torch"]
pytestmark = [
    pytest.mark.usefixtures("fresh_torch"),
    pytest.mark.filterwarnings("ignore::profiler_ext.errors.CaptureWarning"),
]
before_2_14 = pytest.mark.skipif(bool(ENDS_ALL_THREADS), reason="torch can end all threads")
OPTIONS: dict[str, Any] = {"activities": [ProfilerActivity.CPU], "lines": False}


@contextmanager
def next_to(work: Callable[[], object]) -> Iterator[None]:
    """Have a thread do something again and again meanwhile."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(0.001):
            work()

    thread = threading.Thread(target=run, name="beside")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def in_thread(work: Callable[[], object]) -> None:
    """Do something in a thread of its own, which is over then."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def each_step(_: int) -> ProfilerAction:
    """A schedule under which each step is a recording."""
    return ProfilerAction.RECORD_AND_SAVE


def product() -> None:
    torch.ones(2, 3) @ torch.ones(3, 2)


def sine() -> None:
    torch.ones(5).sin()


def recorded(session: Session) -> set[str]:
    """Return those of the tests' operators that a session has."""
    return {"aten::matmul", "aten::sin"} & set(session.attribution().aten_op)


def unrecorded(session: Session) -> list[str]:
    """Return which threads a session says were not recorded."""
    gaps = session.recording.gaps
    return [gap.detail for gap in gaps if gap.reason is GapReason.THREAD_NOT_RECORDED]


# Whose operators are recorded


def test_a_thread_that_begins_and_ends_within_the_recording_is_recorded() -> None:
    with profiler_ext.profile(**OPTIONS) as prof:
        product()
        in_thread(sine)
    assert recorded(prof.session) == {"aten::matmul", "aten::sin"}
    assert unrecorded(prof.session) == []


@before_2_14
def test_next_to_a_thread_that_may_run_operators_the_one_that_begins_is_recorded_alone() -> None:
    with next_to(sine), profiler_ext.profile(**OPTIONS) as prof:
        product()
        torch.ones(2, requires_grad=True).sum().backward()
    assert recorded(prof.session) == {"aten::matmul"}
    assert unrecorded(prof.session) == ["beside"]
    assert "aten::ones_like" in set(prof.session.attribution().aten_op)  # the backward's


@before_2_14
def test_each_recording_looks_again_who_is_next_to_it() -> None:
    with profiler_ext.profile(schedule=each_step, acc_events=True, **OPTIONS) as prof:
        product()
        with next_to(sine):
            prof.step()
            product()
        prof.step()
        product()
    assert [unrecorded(each) for each in prof.sessions] == [[], ["beside"], []]


def test_a_torch_that_ends_all_threads_records_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_threads, "ENDS_ALL_THREADS", True)
    go_on = threading.Event()
    thread = threading.Thread(target=lambda: (go_on.wait(), sine()))
    thread.start()
    with profiler_ext.profile(**OPTIONS) as prof:
        product()
        go_on.set()
        thread.join()
    assert recorded(prof.session) == {"aten::matmul", "aten::sin"}
    assert unrecorded(prof.session) == []


def test_a_configuration_of_the_programs_own_is_kept() -> None:
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=False)
    with profiler_ext.profile(experimental_config=config, **OPTIONS) as prof:
        product()
        in_thread(sine)
    assert recorded(prof.session) == {"aten::matmul"}
    assert unrecorded(prof.session) == []


# Which threads may run operators


def test_a_thread_that_waits_for_another_or_for_work_runs_none() -> None:
    is_over = threading.Event()
    working = threading.Thread(target=is_over.wait, name="working")
    joining = threading.Thread(target=lambda: working.join(), name="joining")
    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        pool.submit(working.start).result()
        joining.start()
        _until(lambda: "working" in other_threads() and "joining" not in other_threads())
        _until(lambda: "pool_0" not in other_threads())
        pool.submit(is_over.wait)
        _until(lambda: "pool_0" in other_threads())
        is_over.set()


def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        pass


def test_a_thread_that_does_what_runs_no_operators_is_known_by_its_module() -> None:
    is_over = threading.Event()
    names = {"__name__": "tqdm._monitor", "is_over": is_over}
    exec("def monitor(): is_over.wait()", names)
    monitor = threading.Thread(target=names["monitor"], name="monitor")
    pinning = threading.Thread(target=is_over.wait, name="pinning")
    monitor.start()
    pinning.start()
    _until(lambda: "pinning" in other_threads() and "monitor" not in other_threads())
    is_over.set()
    monitor.join()
    pinning.join()
    assert other_threads() == ()


# Where it is ended


@before_2_14
def test_what_another_thread_had_to_end_is_lost_and_says_so() -> None:
    with next_to(sine):
        prof = profiler_ext.profile(**OPTIONS)
        prof.start()
        product()
        in_thread(prof.stop)
        with pytest.raises(UsageError, match="end a profile in the thread that began it"):
            _ = prof.session
        with profiler_ext.profile(**OPTIONS) as later:
            product()
    assert recorded(later.session) == {"aten::matmul"}


@before_2_14
def test_the_programs_own_profiler_begins_where_another_thread_ended_ours() -> None:
    before = torch.autograd.profiler._prepare_profiler
    with next_to(sine):
        prof = profiler_ext.profile(**OPTIONS)
        prof.start()
        in_thread(prof.stop)
        with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as theirs:
            product()
    assert "aten::matmul" in {event.name for event in theirs.events()}
    assert torch.autograd.profiler._prepare_profiler is before  # and torch is as it was found


@before_2_14
def test_a_profile_of_another_thread_is_refused_while_one_thread_is_recorded_alone() -> None:
    refused = profiler_ext.profile(**OPTIONS)
    with next_to(sine), profiler_ext.profile(**OPTIONS) as prof:
        product()
        in_thread(lambda: (refused.start(), refused.stop()))
    assert recorded(prof.session) == {"aten::matmul"}
    with pytest.raises(UsageError, match="let that profile end first"):
        _ = refused.session


@before_2_14
def test_the_programs_own_profiler_in_another_thread_gets_what_it_asked_for() -> None:
    theirs = torch.profiler.profile(activities=[ProfilerActivity.CPU])

    def run() -> None:
        with theirs:
            sine()

    with next_to(product), profiler_ext.profile(**OPTIONS) as prof:
        in_thread(run)
    assert "aten::sin" in {event.name for event in theirs.events()}
    with pytest.raises(UsageError, match="what was recorded is lost"):
        _ = prof.session


@before_2_14
def test_a_step_of_another_thread_ends_none_of_the_one_that_is_recorded_alone() -> None:
    with next_to(sine), profiler_ext.profile(schedule=each_step, **OPTIONS) as prof:
        product()
        in_thread(prof.step)
        assert (prof.step_num, prof.sessions) == (0, [])
        prof.step()
    assert [recorded(each) for each in prof.sessions] == [{"aten::matmul"}, set()]


ENDS = """
import threading
import torch
import profiler_ext

torch.manual_seed(0)
options = dict(activities=[torch.profiler.ProfilerActivity.CPU], lines=False, source=False)
weight = torch.ones(8, 8)
is_over = threading.Event()

def busy():
    while not is_over.is_set():
        torch.sin(weight)
        torch.ones(8, 8, requires_grad=True).mm(weight).sum().backward()

def begun():
    is_over.clear()
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    return threads

def ended(threads):
    is_over.set()
    for thread in threads:
        thread.join()

threads = begun()
for _ in range(30):
    with profiler_ext.profile(**options) as prof:
        torch.ones(3)
ended(threads)
for _ in range(5):
    with profiler_ext.profile(**options) as prof:
        threads = begun()
        torch.ones(3)
    ended(threads)
print("ended", len(prof.sessions))
"""


def test_threads_that_run_operators_as_recordings_end_do_not_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended 1\n")
