"""The rounds of a loop that need what the round before made: which launches merging leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings.code_of_rounds import (
    statement_text,
    statements_in_turn,
    statements_of_masks,
    statements_of_state,
)
from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import launch_groups
from profiler_ext.findings.recurrences import IN_TURN, in_turn
from profiler_ext.findings.rules import launch_bound, python_loop
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.recording import Function, Position, PythonLines, thread_positions
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import US, Script, judged, only, placed

_STEPS = 3


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        (["given = self.input(x[t])", "h = self.cell(given, h)", "outs.append(h)"], {1, 2}),
        (["h, c = self.cell(x, (h, c))"], {0}),
        (["h = h + step * f(h)"], {0}),
        (["state = state * decay + x[t]"], {0}),
        (["self.h = cell(x[t], self.h)"], {0}),
        (["centre = x[picked[-1]]", "at = far(centre)", "picked.append(at)"], {0, 1, 2}),
        (["x[t] = layer(x[t - 1])"], {0}),
        (["cache[:, t] = key(y)", "y = attend(query, cache)"], {0, 1}),
        (["total.add_(f(x[t], total))", "print(total)"], {0, 1}),
        (["if done.all():", "done |= cell(x, done)"], {0, 1}),
        (["try:", "h = cell(h)"], {1}),
        # No round of these needs another: sums, other items, what the round before was given
        (["total = total + f(x[t])", "count += 1"], set()),
        (["parts.append(f(x[at : at + t]))", "at += t"], set()),
        (["most = torch.maximum(most, f(x[t]))"], set()),
        (["x[t] = layer(x[t])"], set()),
        (["cache[:, t] = key(x[t])", "y = attend(query, cache)"], set()),
        (["change = x[t] - before", "before = x[t]"], set()),
        (["y = f(x[t])", "y = g(y)", "outs.append(y)"], set()),
        (["out[rows] += self.expert(x[t][rows])"], set()),
        (["y = [f(h) for h in heads]", "h = y[0]"], set()),
        (["h = cell(h", "y = h"], None),
        (["loss = f(x[t])", "loss.backward()", "optimizer.step()"], None),
    ],
)
def test_the_text_of_a_round_tells_what_needs_the_round_before(body, bound):
    assert statements_in_turn("for t in range(n):", body) == bound


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            ["m = (g >= e[t]) & (g < e[t + 1]) & valid", "n = m.sum().item()", "w[m] = 1 / n"],
            {0, 1, 2},
        ),
        (["m = labels == t", "total = total + loss[m].mean()"], {0, 1}),
        (["m = labels.eq(t)", "x = x + 1", "y = m.any()"], {0, 2}),
        # Products of what a mask picks are as many in one pass; a tensor that changes is another
        (["m = labels == t", "y = self.experts[t](x[m])"], {0}),
        (["m = h == t", "h = f(h, m)"], set()),
        (["m = x @ w[t] > 0", "n = m.sum()"], set()),
        (["m = labels == t", "n = m.sum("], set()),
    ],
)
def test_the_text_of_a_round_tells_what_it_counts_by_a_mask(body, found):
    assert statements_of_masks("for t in range(n):", body) == found


@pytest.mark.parametrize(
    ("methods", "found"),
    [
        # A spiking neuron: the membrane is kept, the current is the round's own
        ({"forward": ["i = self.fc(x)", "self.mem = self.decay * self.mem + i"]}, [{1}]),
        ({"forward": ["h = self.h", "h = f(x, h)", "self.h = h"]}, [{0, 1, 2}]),
        ({"forward": ["y = self.step(x)"], "step": ["self.h = self.cell(x, self.h)"]}, [{0}, {0}]),
        ({"forward": ["y = self.read(x)", "self.h = y"], "read": ["z = f(self.h)"]}, [{0, 1}, {0}]),
        # What is only kept, counted or overwritten needs no call before
        ({"forward": ["self.last = f(x)", "return self.last"]}, [set()]),
        ({"forward": ["self.calls += 1", "return f(x)"]}, [set()]),
        ({"forward": ["self.cache.append(f(x))", "return g(x)"]}, [set()]),
        ({"forward": ["h = self.cell(h)", "return h"], "cell": ["h = f(h)"]}, [set(), set()]),
    ],
)
def test_the_text_of_a_module_tells_what_needs_its_call_before(methods, found):
    assert list(statements_of_state(methods).values()) == found


def test_a_statement_of_several_lines_ends_where_its_brackets_do():
    assert statement_text(["h = cell(", 'x[")"],', "h,"]) == 'h = cell(\nx[")"],\nh,)'


_MODULES = (ModuleFrame("", "Net"), ModuleFrame("cell", "Cell"))
_INNER = "return f(x, h)"
_GIVEN = "given = F.linear(each)"
_FUNCTIONS = (Function("/m.py", "forward"), Function("/m.py", "call"))


def recurrent(
    rounds: int,
    code: str,
    *,
    waits: bool = False,
    first: str = _GIVEN,
    first_us: int = 2,
    inner: str = _INNER,
) -> Analysis:
    """Return steps in which each round of a loop calls two lines, the second of a module."""
    script = Script()
    for _ in range(_STEPS):
        for _ in range(rounds):
            script.launch("void at::native::linear", first_us * US, op="aten::linear")
            for at in range(4):
                script.launch("void at::native::cell", 2 * US, op=f"aten::cell_{at}")
            if waits:
                script.launch("Memcpy DtoH", US, op="aten::item", category="gpu_memcpy")
                script.wait()
        script.launch("void at::native::sum_backward", 2 * US, op="aten::sum_backward")
        script.end_step()
    given = Frame("/m.py", 11, "forward", first)
    call, within = Frame("/m.py", 12, "forward", code), Frame("/m.py", 3, "call", inner)
    own = {"phase": Phase.FORWARD, "file": "/m.py", "module_class": "Net"}
    of_call = own | {"function": "call", "line": 3, "module": "cell", "stack": (call, within)}
    of_line = own | {"function": "forward", "line": 11, "module": "", "stack": (given,)}
    places = {f"cell_{at}": of_call | {"code": inner} for at in range(4)}
    places |= {"linear": of_line | {"code": given.code}, "item": of_call | {"code": inner}}
    made = placed(script.analysis(), **places)
    names = [made.launches.name[at] for at in range(len(made.launches))]
    phase = np.array([int("backward" in name) for name in names], np.int32)
    launches = replace(made.launches, phase=Interned(phase, (Phase.FORWARD, Phase.BACKWARD)))
    recording = replace(made.recording, python=_lines(rounds, first, code, inner))
    return replace(made, launches=launches, recording=recording)


def _lines(rounds: int, first: str, code: str, inner: str) -> PythonLines:
    """Return the lines of these steps: a loop of a function, and what its second line calls."""
    positions = (
        Position(None, module=0),
        Position(0, 0),
        Position(0, 0, 10, code="for each in x:"),
        Position(0, 0, 11, code=first),
        Position(0, 0, 12, code=code),
        Position(4, module=1),
        Position(5, 1),
        Position(5, 1, 3, code=inner),
    )
    step = [0, 1, 2, *([3, 4, 5, 6, 7, 5, 4, 2] * rounds), 0, -1]
    visited = step * _STEPS
    thread = thread_positions(100, list(range(len(visited))), visited)
    return PythonLines(_FUNCTIONS, _MODULES, positions, (thread,), (), len(visited))


def _loops(analysis: Analysis) -> dict[str, LaunchGroup]:
    return {
        each.what: each for each in launch_groups(facts_of(analysis)) if each.kind is Kind.CALLS
    }


def test_rounds_without_each_other_are_one_loop_to_merge():
    analysis = recurrent(25, "y = self.cell(given, h)")
    assert only(python_loop.RULE, analysis).summary.endswith("times a step (125 launches)")
    assert in_turn(facts_of(analysis)).is_free.sum() == len(analysis.places) - 1


def test_of_rounds_that_need_each_other_only_the_rest_is_merged():
    analysis = recurrent(25, "h = self.cell(given, h)")
    bound, merged = judged(python_loop.RULE, analysis).ranked
    assert bound.summary.endswith("a Python loop whose rounds need each other (100 launches)")
    assert "reduce-overhead" in bound.remedy
    assert merged.summary.endswith("a Python loop runs 25 times a step (25 launches)")
    assert (merged.location.line, bound.location.line) == (11, 12)
    groups = _loops(analysis)
    assert set(np.round(groups[""].cpu_kept, 3)) == {0.04}
    # A node of a CUDA graph takes 2 of the 10 us of a launch; its kernels run as before
    assert set(groups[IN_TURN].cpu_kept) == {0.2}
    assert set(np.ravel(groups[IN_TURN].busy_kept)) == {1.0}


def test_a_module_that_keeps_a_state_needs_its_call_before():
    analysis = recurrent(25, "y = self.cell(given)", inner="self.h = f(x, self.h)")
    bound, merged = judged(python_loop.RULE, analysis).ranked
    assert bound.summary.endswith("a Python loop whose rounds need each other (100 launches)")
    assert merged.summary.endswith("a Python loop runs 25 times a step (25 launches)")
    # Each of 25 modules is called once: its state is of the step before
    once = [0, 1, 2, 3, 4, 5, 6, 7, 5, 4, 2, *([3, 4, 2] * 24), 0, -1]
    assert set(in_turn(facts_of(_with_lines(analysis, once))).rounds.tolist()) == {1}


def test_rounds_that_need_each_other_and_wait_are_no_graph():
    analysis = recurrent(25, "h = self.cell(given, h)", waits=True)
    assert IN_TURN not in _loops(analysis)
    assert judged(launch_bound.RULE, analysis).ranked


def _with_lines(analysis: Analysis, visited: list[int], *more: Position) -> Analysis:
    """Return the analysis of steps in which the thread came to these positions."""
    python = analysis.recording.python
    assert python is not None
    thread = thread_positions(100, list(range(len(visited) * _STEPS)), visited * _STEPS)
    lines = replace(python, threads=(thread,), positions=(*python.positions, *more))
    return replace(analysis, recording=replace(analysis.recording, python=lines))


def test_modules_that_each_run_in_one_round_do_not_repeat_in_turn():
    # In the first of 25 rounds alone the thread comes to this module
    once = [0, 1, 2, 3, 4, 5, 6, 7, 5, 4, 2, *([3, 4, 2] * 24), 0, -1]
    analysis = recurrent(25, "h = self.cell(given, h)")
    assert set(in_turn(facts_of(_with_lines(analysis, once))).rounds.tolist()) == {1}


def test_a_statement_of_several_lines_reads_what_all_of_them_do():
    # The thread comes back to its first line once the arguments are there
    visited = [0, 1, 2, *([3, 4, 8, 9, 4, 5, 6, 7, 5, 4, 2] * 25), 0, -1]
    arguments = Position(0, 0, 13, code="given,"), Position(0, 0, 14, code="h,")
    analysis = _with_lines(recurrent(25, "h = self.cell("), visited, *arguments)
    assert set(in_turn(facts_of(analysis)).rounds.tolist()) == {1, 25}
    # Without them nothing is known of the round
    visited = [0, 1, 2, *([3, 4, 5, 6, 7, 5, 4, 2] * 25), 0, -1]
    found = in_turn(facts_of(_with_lines(analysis, visited)))
    assert set(found.rounds.tolist()) == {1} and not found.is_free.any()


def test_what_each_round_compares_is_read_once():
    analysis = recurrent(25, "y = self.cell(x)", first="mine = labels == each", first_us=40)
    (group,) = _loops(analysis).values()
    busy = dict(zip(group.launches.tolist(), group.busy_kept, strict=True))
    assert busy[0] == 1 / 25 and busy[1] == 0.5
    saved_ns = only(python_loop.RULE, analysis).est_saving_ns
    assert saved_ns > 24 * 40 * US
    other = recurrent(25, "y = self.cell(x)", first="mine = self.of(each)", first_us=40)
    assert saved_ns > only(python_loop.RULE, other).est_saving_ns + 20 * 40 * US
