"""Profilers take turns: the program's own gets what it asked for, and ours keeps what it had."""

import os
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerAction, ProfilerActivity

import profiler_ext
from profiler_ext.torch_compat.profilers import USE
from tests.compiling import train_once
from tests.watched import other_gaps

CPU = [ProfilerActivity.CPU]


def products(profiler) -> int:
    return sum(event.name == "aten::mm" for event in profiler.events())


def test_ours_steps_aside_and_has_a_session_before_and_after(fresh_torch: Path) -> None:
    with profiler_ext.profile(activities=CPU, acc_events=True) as ours:
        train_once()
        ours.step()
        with torch.profiler.profile(activities=CPU) as theirs:
            train_once(fresh=False)
        ours.step()
        train_once(fresh=False)
    assert products(theirs) == 4
    before, after = ours.sessions
    assert [gap.reason for gap in other_gaps(before)] == ["profiler_taken"]
    assert other_gaps(after) == []
    counts = [list(each.attribution().aten_op).count("aten.mm.default") for each in (before, after)]
    assert counts == [4, 4]


def test_while_theirs_is_on_ours_records_nothing(fresh_torch: Path) -> None:
    profiler_ext.enable()
    train_once()
    with torch.profiler.profile(activities=CPU) as theirs:
        with profiler_ext.profile(activities=CPU) as ours:
            train_once(fresh=False)
        assert ours.sessions == []
    assert products(theirs) == 4


def test_the_later_of_two_of_ours_records(fresh_torch: Path) -> None:
    with profiler_ext.profile(activities=CPU) as outer:
        train_once()
        with profiler_ext.profile(activities=CPU) as inner:
            train_once(fresh=False)
    assert len(outer.sessions) == len(inner.sessions) == 1
    assert [gap.reason for gap in other_gaps(outer.session)] == ["profiler_taken"]


def test_profilers_of_two_threads_wait_for_each_other(fresh_torch: Path) -> None:
    """Torch's own crash where one begins as the other ends."""
    both, profilers = threading.Barrier(2), []

    def record() -> None:
        both.wait()
        with profiler_ext.profile(activities=CPU) as ours:
            torch.ones(2, 2).mm(torch.ones(2, 2))
        profilers.append(ours)

    for _ in range(5):
        threads = [threading.Thread(target=record) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    reported = [len(each.sessions) + (each.refusal is not None) for each in profilers]
    assert reported == [1] * 10  # before torch 2.14 one that comes between is refused
    assert not USE.is_in_use


def test_a_callback_may_wait_for_another_threads_profile(
    fresh_torch: Path,
) -> None:
    profilers = []

    def record(*_: object) -> None:
        with profiler_ext.profile(activities=CPU) as ours:
            torch.ones(2, 2).mm(torch.ones(2, 2))
        profilers.append(ours)

    def wait_for_another(prof: profiler_ext.profile) -> None:
        thread = threading.Thread(target=record)
        thread.start()
        thread.join(60)
        profilers.append(prof)

    def each_step(_: int) -> ProfilerAction:
        return ProfilerAction.RECORD_AND_SAVE

    with profiler_ext.profile(
        activities=CPU, on_trace_ready=wait_for_another, schedule=each_step, acc_events=True
    ) as ours:
        ours.step()
    assert [len(each.sessions) for each in profilers] == [1, 2, 1, 2]
    assert not USE.is_in_use


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_a_cycle_whose_handler_raises_has_its_session_and_so_has_the_next(
    fresh_torch: Path,
) -> None:
    def fails(_: object) -> None:
        raise ValueError("the program's")

    cycles = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=2)
    with profiler_ext.profile(schedule=cycles, on_trace_ready=fails) as prof:
        for number in range(4):
            torch.ones(2).sum()
            with pytest.raises(ValueError) if number in (1, 3) else nullcontext():
                prof.step()
    assert [[step.number for step in each.analysis.steps] for each in prof.sessions] == [[1], [3]]


def test_torch_is_left_as_it_was_found(fresh_torch: Path) -> None:
    names = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
    before = [vars(torch.autograd.profiler)[name] for name in names]
    with profiler_ext.profile(activities=CPU), torch.profiler.profile(activities=CPU):
        assert USE.is_used_by_others
    assert not USE.is_in_use
    assert [vars(torch.autograd.profiler)[name] for name in names] == before


def test_a_forked_child_asks_torch_for_nothing_that_may_be_locked(
    fresh_torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the child is to hear is settled before it is there: it has no other thread's locks."""
    hears, asked = torch._C._autograd._enable_record_function, tmp_path / "asked"

    def noted(is_on: bool) -> None:
        with asked.open("a") as file:
            print("parent" if os.getpid() == parent else "child", is_on, file=file)
        hears(is_on)

    parent = os.getpid()
    monkeypatch.setattr(torch._C._autograd, "_enable_record_function", noted)
    with profiler_ext.profile(activities=CPU) as prof:
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        torch.ones(2, 2).mm(torch.ones(2, 2))
    assert asked.read_text().splitlines() == ["parent False", "parent True"]
    assert list(prof.session.attribution().aten_op)[-1] == "aten::mm"
