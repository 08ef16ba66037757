"""Which steps are recorded: by number, by time, once and again, and behind what holds them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from torch.profiler import ProfilerAction

from profiler_ext.run.request import Amount, Repeats
from profiler_ext.run.window import Window
from profiler_ext.torch_compat.profilers import ProfilerUse

LETTERS = {
    ProfilerAction.NONE: "-",
    ProfilerAction.WARMUP: "w",
    ProfilerAction.RECORD: "r",
    ProfilerAction.RECORD_AND_SAVE: "R",
}


class Clock:
    """Tells the time that a test has set."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProfilerUse]:
    fresh = ProfilerUse()
    monkeypatch.setattr("profiler_ext.run.window.USE", fresh)
    yield fresh


def actions(window: Window, steps: int, before: Callable[[int], None] = lambda step: None) -> str:
    """Ask for each step thrice, as torch's profiler and ours do."""
    message = ""
    for step in range(steps):
        before(step)
        asked = [window(step) for _ in range(3)]
        assert len(set(asked)) == 1
        message += LETTERS[asked[0]]
    return message


@pytest.mark.parametrize(("until", "expected"), [(0, "-wR---"), (2, "--R---"), (9, "--R---")])
def test_while_cuda_graphs_are_made_torchs_profiler_does_not_warm_up(
    until: int, expected: str
) -> None:
    """The calls that make them are profiled by themselves: `--skip 2` would else learn nothing."""
    now: list[int] = []
    skip, steps = Amount.parsed("2"), Amount.parsed("1")
    window = Window(skip, steps, is_learning=lambda: now[-1] < until)
    assert actions(window, 6, now.append) == expected


@pytest.mark.parametrize(
    ("skip", "steps", "expected"),
    [
        ("3", "2", "--wrR---"),
        ("0", "1", "R-------"),
        ("0", "3", "rrR-----"),
        ("1", "4", "wrrrR---"),
    ],
)
def test_steps_are_chosen_by_their_numbers(skip: str, steps: str, expected: str) -> None:
    window = Window(Amount.parsed(skip), Amount.parsed(steps))
    assert actions(window, 8) == expected
    assert window.is_over(8)


@pytest.mark.parametrize(
    ("skip", "expected"),
    [("3", "--rrR---"), ("2", "-rrR----"), ("1", "wrR-----"), ("0", "rR------")],
)
def test_on_a_device_the_step_before_leads_in_but_for_the_one_that_compiles(
    skip: str, expected: str
) -> None:
    window = Window(Amount.parsed(skip), Amount.parsed("2"), on_device=lambda: True)
    assert actions(window, 8) == expected
    marked = [step for step in range(8) if window.is_marked(step)]
    assert marked == [int(skip), int(skip) + 1]


@pytest.mark.parametrize(
    ("skip", "steps", "expected"),
    [
        ("2s", "3s", "--wrrR--"),  # a step takes a second
        ("0", "2s", "rR------"),
        ("1", "100ms", "wR------"),
        ("3s", "1", "---wR---"),
        ("0s", "1h", "rrrrrrrr"),
    ],
)
def test_steps_are_chosen_by_the_time(skip: str, steps: str, expected: str) -> None:
    clock = Clock()

    def before(step: int) -> None:
        clock.seconds = float(step)

    window = Window(Amount.parsed(skip), Amount.parsed(steps), now=clock)
    assert actions(window, 8, before) == expected


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (4, "wrR-wrR-wrR-wr"),
        (6, "wrR---wrR---wr"),
        (3, "wrRwrRwrRwrRwr"),
        (2, "wrRwrRwrRwrRwr"),  # a step between, in which all ends that the last one saw begin
        (None, "wrRwrRwrRwrRwr"),
    ],
)
def test_steps_are_recorded_again(every: int | None, expected: str) -> None:
    assert actions(Window(Amount(1), Amount(2), Repeats(every)), 14) == expected


def test_no_recording_begins_while_it_is_held_up() -> None:
    held = {5, 6}
    at = [0]
    window = Window(Amount(1), Amount(1), Repeats(4), has_open_region=lambda: at[0] in held)
    assert actions(window, 12, lambda step: at.__setitem__(0, step)) == "wR--wwwR--wR"


def test_while_another_profiler_is_on_later_steps_are_recorded(use: ProfilerUse) -> None:
    window = Window(Amount(1), Amount(2))

    def before(step: int) -> None:
        use._used_by_others = step in (0, 1)

    assert actions(window, 7, before) == "--wrR--"
    assert window.was_postponed


@pytest.mark.parametrize(
    ("skip", "steps", "expected"),
    [
        ("5", "2", "-rR----wrR--"),
        ("5", "1", "-R----wR----"),
        ("5", "4", "-rR----wrrrR"),
        ("9", "2", "-rR-----wrR-"),
        ("4", "2", "---wrR------"),  # so few are no more than it would take to record early
    ],
)
def test_where_few_steps_may_come_the_first_ones_are_recorded_early(
    skip: str, steps: str, expected: str
) -> None:
    clock = Clock()
    window = Window(Amount.parsed(skip), Amount.parsed(steps), now=clock, may_be_short=lambda: True)
    assert actions(window, 12, lambda step: setattr(clock, "seconds", float(step))) == expected
    marked = [step for step in range(12) if window.is_marked(step)]
    assert marked == [step for step in range(12) if expected[step] in "rR"]
    assert [step for step in range(12) if window.ended_early(step)] == {
        "-r": [2, 3], "-R": [2], "--": []
    }[expected[:2]]  # fmt: skip


def test_before_a_time_is_over_steps_are_recorded_early_too() -> None:
    clock = Clock()

    def before(step: int) -> None:
        clock.seconds = float(step)

    skip, steps = Amount.parsed("6s"), Amount.parsed("2")
    window = Window(skip, steps, now=clock, may_be_short=lambda: True)
    assert actions(window, 10, before) == "-rR---wrR-"


def test_while_another_profiler_is_on_none_is_recorded_early(use: ProfilerUse) -> None:
    window = Window(Amount(5), Amount(2), may_be_short=lambda: True)

    def before(step: int) -> None:
        use._used_by_others = step < 2

    assert actions(window, 8, before) == "----wrR-"


@pytest.mark.parametrize(
    ("step_s", "message"),
    [
        (0.01, "-rR------------wrR--"),
        (0.2, "-rR------wrR--------"),  # a second later
        (2.0, "-rR----wrR----------"),
    ],
)
def test_after_an_early_recording_short_steps_settle_for_longer(
    step_s: float, message: str
) -> None:
    clock = Clock()
    window = Window(Amount(5), Amount(2), now=clock, may_be_short=lambda: True)
    assert actions(window, 20, lambda step: setattr(clock, "seconds", step * step_s)) == message


def test_steps_that_are_requested_later_do_not_settle() -> None:
    window = Window(Amount(9), Amount(2), may_be_short=lambda: True)
    assert actions(window, 12) == "-rR-----wrR-"


@pytest.mark.parametrize(
    ("loop", "on_device", "message"),
    [
        (None, False, "----wrR-----"),
        (7, False, "----wrR-----"),
        (6, False, "----wrR-----"),
        (5, False, "--wrR-------"),
        (3, False, "-rR---------"),
        (2, False, "-rR---------"),
        (1, False, "----wrR-----"),  # a loop in another function may follow
        (5, True, "--rrR-------"),
        (3, True, "-rrR--------"),
        (2, True, "-rR---------"),
    ],
)
def test_of_a_loop_that_is_too_short_the_last_steps_are_recorded(
    loop: int | None, on_device: bool, message: str
) -> None:
    window = Window(Amount(5), Amount(2), on_device=lambda: on_device, expected_steps=lambda: loop)
    assert actions(window, 12) == message


def generating(prefills: set[int], steps: int, *, skip: str = "3", asked: str = "2") -> str:
    """Return the actions for steps of which some are prefills, and others generate tokens."""
    clock = Clock()
    window = Window(Amount.parsed(skip), Amount.parsed(asked), now=clock)
    return actions(window, steps, lambda step: step in prefills and window.prefill_begins(step))


@pytest.mark.parametrize(
    ("prefills", "expected"),
    [
        (set(), "--wrR---------"),
        ({0}, "--wrR---------"),  # before the requested steps
        ({4}, "--wrrR--------"),  # among them: one more is recorded
        ({7}, "--wrR--rrrrrR-"),  # after them: it, three that are not counted, as many as asked for
        ({7, 13}, "--wrR--rrrrrR-"),
    ],
)
def test_a_prefill_is_recorded_beside_the_requested_steps(
    prefills: set[int], expected: str
) -> None:
    assert generating(prefills, 14) == expected


def test_the_steps_just_after_an_awaited_prefill_are_not_counted() -> None:
    window = Window(Amount.parsed("1"), Amount.parsed("2"))
    actions(window, 4)
    window.prefill_begins(4)
    assert actions(window, 11)[4:] == "rrrrrR-"
    assert [step for step in range(4, 11) if window.is_marked(step)] == [4, 8, 9]


def test_a_prefill_is_not_awaited_for_long() -> None:
    clock = Clock()
    window = Window(Amount.parsed("1"), Amount.parsed("1"), now=clock)
    assert actions(window, 3) == "wR-"
    assert window.awaits_prefill(3)
    clock.seconds = 11
    assert not window.awaits_prefill(4)
    window.prefill_begins(4)
    assert window(4) is ProfilerAction.NONE


def test_what_ends_before_the_steps_with_a_prefill_is_as_it_was_requested() -> None:
    window = Window(Amount.parsed("1"), Amount.parsed("1"))
    assert actions(window, 3) == "wR-"
    window.prefill_begins(3)
    assert window(3) is ProfilerAction.RECORD
    window.return_to_requested()
    assert (window.first, window.is_over(2), window.has_prefill) == (1, True, False)
