"""Python's ways to run a line: generators, exceptions, decorators, recursion, text that is run."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import nn

import profiler_ext
from tests.compiling import torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import briefly, launches, seen

pytestmark = needs_lines
GIVEN = torch.rand(4, 4)


def test_a_generator_s_launches_have_its_lines_also_where_it_goes_on() -> None:
    def values() -> Iterator[Any]:
        yield GIVEN.sin()  # line: first
        yield GIVEN.cos()  # line: second

    def step() -> None:
        for value in values():
            value.exp()  # line: loop

    assert briefly(step, "sin", "exp", "cos") == [
        ("sin", "other", "first"),
        ("exp", "other", "loop"),
        ("cos", "other", "second"),
        ("exp", "other", "loop"),
    ]


def test_coroutines_that_take_turns_have_each_its_own_lines() -> None:
    async def one() -> None:
        GIVEN.sin()  # line: one
        await asyncio.sleep(0)
        GIVEN.cos()  # line: end of one

    async def other() -> None:
        GIVEN.exp()  # line: other
        await asyncio.sleep(0)
        GIVEN.tan()  # line: end of other

    async def both() -> None:
        await asyncio.gather(one(), other())

    def step() -> None:
        asyncio.run(both())

    assert [line for _, _, line in briefly(step, "sin", "exp", "cos", "tan")] == [
        "one",
        "other",
        "end of one",
        "end of other",
    ]


class Raises(nn.Module):
    def forward(self, x: Any) -> Any:
        x.sin()  # line: before
        raise ValueError


def test_after_an_exception_went_through_a_module_a_launch_has_the_line_that_caught_it() -> None:
    model = nn.Sequential(Raises())

    def step() -> None:
        try:
            model(GIVEN)
        except ValueError:
            GIVEN.cos()  # line: caught
        with contextlib.suppress(ZeroDivisionError):
            GIVEN.exp().div_(1 // 0)  # line: in the frame
        GIVEN.tan()  # line: after

    found = {(each.op, each.line, each.module) for each in seen(step, "sin", "cos", "exp", "tan")}
    assert found == {
        ("sin", "before", "0"),
        ("cos", "caught", None),
        ("exp", "in the frame", None),
        ("tan", "after", None),
    }


def doubled(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(function)
    def wrapper(x: Any) -> Any:
        return function(x).mul(2)  # line: wrapper

    return wrapper


@doubled
def decorated(x: Any) -> Any:
    return x.sin()  # line: decorated


def recursive(x: Any, depth: int) -> Any:
    if depth:
        x = recursive(x, depth - 1).mul(2)  # line: on the way back
    return x.sin()  # line: every depth


def test_decorated_and_recursive_functions_have_the_lines_that_run() -> None:
    def step() -> None:
        decorated(GIVEN)
        recursive(GIVEN, 1)

    assert [line for _, _, line in briefly(step, "sin", "mul")] == [
        "decorated",
        "wrapper",
        "every depth",
        "on the way back",
        "every depth",
    ]


def test_comprehensions_and_lambdas_have_their_lines() -> None:
    def step() -> None:
        values = [GIVEN.sin() for _ in range(2)]  # line: list
        function = lambda x: x.cos()  # noqa: E731  # line: lambda
        list(map(function, values[:1]))  # line: map
        tuple(x.exp() for x in values)  # line: generator

    assert [line for _, _, line in briefly(step, "sin", "cos", "exp")] == [
        "list",
        "list",
        "lambda",
        "generator",
        "generator",
    ]


def test_of_a_call_over_several_lines_the_line_is_that_of_its_last_name() -> None:
    """As a traceback has it: what a method's name stands on, or where a function's call begins."""

    # fmt: off
    def step() -> None:
        (
            GIVEN.sin()  # line: first method
            .cos()  # line: second method
        )
        torch.add(  # line: call
            GIVEN,
            GIVEN.exp(),  # line: argument
        )

    # fmt: on
    assert [line for _, _, line in briefly(step, "sin", "cos", "exp", "add")] == [
        "first method",
        "second method",
        "argument",
        "call",
    ]


def test_several_statements_on_a_line_have_that_line() -> None:
    def step() -> None:
        a = GIVEN.sin(); a.cos(); decorated(a); a.exp()  # noqa: E702  # line: all  # fmt: skip

    assert [line for _, _, line in briefly(step, "sin", "cos", "mul", "exp")] == [
        "all",
        "all",
        "decorated",
        "wrapper",
        "all",
    ]


def test_text_that_is_run_has_the_line_that_runs_it() -> None:
    code = compile("GIVEN.sin()", "<string>", "exec")

    def step() -> None:
        exec(code, globals())  # line: exec
        eval("GIVEN.cos()")  # line: eval

    found = [line for _, _, line in briefly(step, "sin", "cos")]
    assert found == ["exec", "eval"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x).relu()  # line: block


def test_modules_have_their_paths_and_one_called_by_forward_is_of_the_module_that_called() -> None:
    model = nn.Sequential(Block(), Block())
    model.append(model[0])

    def step() -> None:
        x = model(GIVEN)  # line: model
        model[1].forward(x)

    found = [(each.op, each.module) for each in seen(step, "linear", "relu")]
    assert found == [
        ("linear", "0.layer"),
        ("relu", "0"),
        ("linear", "1.layer"),
        ("relu", "1"),
        ("linear", "0.layer"),
        ("relu", "0"),
        ("linear", "1.layer"),
        ("relu", None),
    ]


class Passing(nn.Module):
    def forward(self, x: Any) -> Any:
        y = nn.Softmax(1)(x)  # line: passing
        return nn.ReLU()(y)


def test_what_a_module_runs_that_is_gone_is_of_the_one_that_called_it() -> None:
    model = nn.Sequential(Passing())

    def step() -> None:
        model(GIVEN)
        nn.Tanh()(GIVEN)

    found = [(each.op, each.module) for each in seen(step, "softmax", "relu", "tanh")]
    assert found == [("softmax", "0"), ("relu", "0"), ("tanh", None)]


SHARED = nn.Sequential(nn.Identity(), nn.GELU())


class Calling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.unregistered = [nn.Tanh()]

    def forward(self, x: Any) -> Any:
        return self.unregistered[0](SHARED(self.layer(x)))


def test_a_module_that_the_model_does_not_hold_is_no_part_of_it_but_of_what_calls_it() -> None:
    model = nn.Sequential(Calling())

    def step() -> None:
        model(GIVEN)
        SHARED(GIVEN)

    found = [(each.op, each.module) for each in seen(step, "linear", "gelu", "tanh")]
    assert found == [("linear", "0.layer"), ("gelu", "0"), ("tanh", "0"), ("gelu", "1")]


class Unfinished(nn.Module):
    def __init__(self) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x.sin()


def test_a_module_that_was_not_made_fails_as_it_does_without_us() -> None:
    def step() -> None:
        with pytest.raises(AttributeError, match="_backward_hooks"):
            Unfinished()(GIVEN)
        GIVEN.cos()  # line: after

    assert briefly(step, "sin", "cos") == [("cos", "other", "after")]


def test_a_step_that_begins_within_a_function_has_all_its_lines() -> None:
    profile = profiler_ext.profile(strict=True)

    def begun_within() -> None:
        profile.start()
        GIVEN.sin()  # line: within
        profile.step()
        profile.stop()

    begun_within()  # line: outside
    (found,) = launches(profile.session.analysis, "sin")
    assert found.line == "within"
    places = [place for place in profile.session.analysis.places if place.aten_op == "aten::sin"]
    assert [frame.function for frame in places[0].stack][-2:] == [
        "test_a_step_that_begins_within_a_function_has_all_its_lines",
        "begun_within",
    ]


def test_a_model_that_nobody_differentiates_is_forward_and_the_rest_is_other() -> None:
    model = torch.nn.ReLU()

    def step() -> None:
        batch = GIVEN.sin()  # line: batch
        with torch.no_grad():
            model(batch)  # line: call
        with torch.inference_mode():
            model(batch)  # line: again
        batch.sum().item()  # line: logged

    assert briefly(step, "sin", "relu", "sum", "item") == [
        ("sin", "other", "batch"),
        ("relu", "forward", "call"),
        ("relu", "forward", "again"),
        ("sum", "other", "logged"),
        ("item", "other", "logged"),
    ]
