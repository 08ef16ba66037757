"""Whose launches a step waits for: optimizers and loops, each with what merging them saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.finding import Location
from profiler_ext.findings.launch_groups import Kind, launch_groups
from profiler_ext.findings.ranking import judge
from profiler_ext.findings.rules import (
    RULES,
    cpu_work,
    eager_beside_compiled,
    launch_bound,
    per_parameter_optimizer,
    python_loop,
    synchronisation,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase, Scope
from tests.findings.stepping import CPU, MS, US, Script, is_silent, only, placed
from tests.handmade import Mark

_STEPS = 3
_COPY = "Memcpy DtoH (Device -> Pageable)"
_ADAMW = ("aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::sqrt", "aten::addcdiv_")
_LINE = {"file": "/train.py", "line": 7, "function": "train", "code": "p.mul_(scale)"}


def optimizing(name: str, ops: tuple[str, ...], parameters: int = 20, kernel_ns: int = 2 * US):
    """Return steps in which an optimizer launches its ops for one parameter after the other."""
    script = Script()
    for _ in range(_STEPS):
        script.launch("gemm", 100 * US, op="aten::mm")
        begin_ns = script.now_ns
        for _ in range(parameters):
            for op in ops:
                script.launch("vectorized_elementwise_kernel", kernel_ns, op=op)
        span_ns = script.now_ns - begin_ns
        mark = Mark(f"Optimizer.step#{name}.step", "user_annotation", CPU, begin_ns, span_ns)
        script.marks.append(mark)
        script.end_step()
    return script.analysis()


def test_an_optimizer_that_updates_parameters_one_by_one_is_named():
    found = only(per_parameter_optimizer.RULE, optimizing("AdamW", _ADAMW))
    updates = "AdamW updates 20 parameters one by one (100 launches)"
    assert found.summary == f"CPU launch-bound: {updates}"
    assert found.remedy == "AdamW(..., fused=True)"
    # Of 1,010 us of a step 100 launches are 1,000, on a CPU 1.45 times as fast 690, of which 69
    # are left; then the device, busy for 100 us and for a third of 200, sets the pace.
    assert round(found.est_saving_ns / US) == 527


def test_an_optimizer_without_a_fused_version_is_told_to_loop_on_the_device():
    found = only(per_parameter_optimizer.RULE, optimizing("Muon", ("aten::mul_", "aten::add_")))
    assert found.summary.endswith("Muon updates 20 parameters one by one (40 launches)")
    assert found.remedy == "foreach=True, or torch.compile(optimizer.step)"


def test_an_optimizer_of_few_launches_or_of_lists_is_none():
    assert is_silent(per_parameter_optimizer.RULE, optimizing("AdamW", _ADAMW, parameters=6))
    merged = tuple(f"aten::_foreach_{at}" for at in range(5))
    assert is_silent(per_parameter_optimizer.RULE, optimizing("AdamW", merged))


def test_a_fused_optimizer_with_a_group_for_each_parameter_is_named():
    ops = ("aten::_foreach_add_", "aten::_fused_adamw_")
    found = only(per_parameter_optimizer.RULE, optimizing("AdamW", ops, parameters=40))
    updates = "AdamW updates 40 groups of parameters one by one (80 launches)"
    assert found.summary == f"CPU launch-bound: {updates}"
    assert found.remedy == "one group for all parameters of equal settings (lr, weight_decay)"
    # 80 launches take 800 us of the CPU's time, 1.45 times as fast without a recording: a fortieth
    # of it is left; then the device, busy for 100 us and for half of 160, sets the pace.
    assert 350 < found.est_saving_ns / US < 560


def test_an_optimizer_with_a_group_for_each_layer_is_none():
    assert is_silent(
        per_parameter_optimizer.RULE, optimizing("AdamW", ("aten::_fused_adamw_",), parameters=24)
    )


def test_an_optimizer_that_the_device_is_slow_with_is_not_called_launch_bound():
    found = only(per_parameter_optimizer.RULE, optimizing("AdamW", _ADAMW, kernel_ns=30 * US))
    assert found.summary == "AdamW updates 20 parameters one by one (100 launches)"
    # 3 ms of a step are these kernels, of which a fused one leaves 35%.
    assert 1.8 * MS < found.est_saving_ns <= 0.65 * 3 * MS


def looping(
    tensors: int,
    *,
    waits: bool = False,
    kernel_ns: int = 2 * US,
    read: str = "_local_scalar_dense",
    blocks: int | None = None,
    code: str = "norms.append(each.norm())",
) -> Analysis:
    """Return steps with a loop over tensors at one line, after work that keeps the device busy."""
    script, shape = Script(), {} if blocks is None else {"grid": [blocks, 1, 1]}
    for _ in range(_STEPS):
        script.launch("gemm", 100 * US, op="aten::mm")
        for _ in range(tensors):
            script.launch("vectorized_elementwise_kernel", kernel_ns, op="aten::norm", **shape)
            if waits:
                copy = "Memcpy DtoH (Device -> Pageable)"
                script.launch(copy, US, op=f"aten::{read}", category="gpu_memcpy")
                script.wait()
        script.end_step()
    at_line = {"norm": _LINE | {"code": code}, read: _LINE | {"code": code}}
    made = placed(script.analysis(), **at_line)
    places = tuple(replace(each, **_LINE) for each in made.idle.places)
    return replace(made, idle=replace(made.idle, places=places))


def test_a_loop_over_tensors_is_one_finding_with_its_line():
    found = only(python_loop.RULE, looping(30))
    assert found.summary == "CPU launch-bound: a Python loop over 30 tensors (30 launches)"
    assert (found.location.file, found.location.line) == ("/train.py", 7)
    assert found.remedy.startswith("torch's _foreach_* ops")
    assert 50 * US < found.est_saving_ns < 30 * 10 * US


def test_what_the_cpu_computes_between_the_launches_of_a_loop_is_not_the_loops():
    script = Script()
    for _ in range(_STEPS):
        for _ in range(30):
            script.launch("vectorized_elementwise_kernel", 2 * US, op="aten::norm")
            script.work("aten::prod", 2 * MS, "cpu_op")
        script.end_step()
    made = placed(script.analysis(), norm=_LINE)
    assert only(cpu_work.RULE, made).est_saving_ns == pytest.approx(30 * 2 * MS, rel=0.01)
    (loop,) = (each for each in launch_groups(facts_of(made)) if each.kind is Kind.TENSORS)
    assert loop.saving_ns == pytest.approx(0.9 * 30 * 10 * US / 1.45, rel=0.1)


def test_a_few_tensors_are_no_loop():
    assert is_silent(python_loop.RULE, looping(12))


def test_long_kernels_of_a_loop_are_as_long_once_they_are_one():
    assert is_silent(python_loop.RULE, looping(30, kernel_ns=40 * US))
    assert is_silent(python_loop.RULE, looping(30, kernel_ns=40 * US, blocks=132))


@pytest.mark.parametrize(("blocks", "left_ns"), [(66, 600 * US), (1, 40 * US)])
def test_kernels_with_few_blocks_run_beside_each_other_once_they_are_one(blocks, left_ns):
    found = only(python_loop.RULE, looping(30, kernel_ns=40 * US, blocks=blocks))
    assert found.est_saving_ns == pytest.approx(30 * 40 * US - left_ns, rel=0.02)


@pytest.mark.parametrize(
    "code", ["h = cell(h, x)", "hs.append(cell(hs[-1]))", "total += x.norm()", "y = cell("]
)
def test_rounds_that_may_need_each_other_are_as_long_once_they_are_one(code):
    assert is_silent(python_loop.RULE, looping(30, kernel_ns=40 * US, blocks=1, code=code))


def test_a_loop_that_copies_each_tensor_to_the_host_waits_as_well():
    analysis = looping(30, waits=True, read="copy_")
    found = only(synchronisation.RULE, analysis)
    assert found.remedy.startswith("one copy of all tensors")
    assert found.evidence[-1].value == sum(
        each.saving_ns for each in launch_groups(facts_of(analysis)) if each.kind is Kind.TENSORS
    )
    assert is_silent(python_loop.RULE, analysis)


def test_a_loop_that_reads_each_value_costs_its_waits_and_its_launches():
    analysis = looping(30, waits=True)
    found = only(synchronisation.RULE, analysis)
    assert "in a Python loop over 30 tensors" in found.summary
    saved_ns = {each.kind: each.saving_ns for each in launch_groups(facts_of(analysis))}
    assert saved_ns[Kind.READS] > 0
    assert saved_ns[Kind.TENSORS] > 0
    assert abs(found.est_saving_ns - saved_ns[Kind.READS] - saved_ns[Kind.TENSORS]) <= 1
    assert is_silent(python_loop.RULE, analysis)


def cells(rounds: int, body: int = 2, *, compiled: int = 0, views: int = 0) -> Analysis:
    """Return steps whose forward runs the ops of a line again and again, and their backward.

    ``views`` launches of a step's backward are of another line of the function, with no others.
    """
    script = Script()
    for _ in range(_STEPS):
        for at in range(compiled):
            script.launch(f"triton_poi_fused_{at}", 2 * US, op="aten::triton")
        for _ in range(rounds):
            for at in range(body):
                script.launch("void at::native::cell", 2 * US, op=f"aten::cell_{at}")
        for _ in range(rounds * body):
            script.launch("void at::native::cell_backward", 2 * US, op="aten::cell_backward")
        for _ in range(views):
            script.launch("void at::native::sum_backward", 2 * US, op="aten::sum")
        script.end_step()
    names = [f"cell_{at}" for at in range(body)]
    line = _LINE | {"module": "cell", "module_class": "Cell"}
    forward = {name: line | {"phase": Phase.FORWARD} for name in names}
    behind = line | {"phase": Phase.BACKWARD}
    views_line = behind | {"line": line["line"] + 1}
    analysis = placed(script.analysis(), **forward, cell_backward=behind, sum=views_line)
    return _in_phases(analysis)


def _in_phases(analysis: Analysis) -> Analysis:
    """Return the analysis with the phases of its launches, by their names, and compiled ones."""
    names = [analysis.launches.name[at] for at in range(len(analysis.launches))]
    phase = np.array([int("backward" in name) for name in names], np.int32)
    scope = np.array([int("triton" in name) for name in names], np.int32)
    launches = replace(
        analysis.launches,
        phase=Interned(phase, (Phase.FORWARD, Phase.BACKWARD)),
        scope=Interned(scope, (Scope.EAGER, Scope.COMPILED)),
    )
    return replace(analysis, launches=launches)


def test_a_loop_in_a_forward_counts_its_backward():
    found = only(python_loop.RULE, cells(25))
    runs = "a Python loop runs 25 times a step (100 launches)"
    assert found.summary == f"CPU launch-bound: {runs}"
    assert "torch.bmm" in found.remedy


def test_a_line_of_views_in_a_loop_counts_with_the_sums_of_their_gradients():
    assert "(125 launches)" in only(python_loop.RULE, cells(25, views=25)).summary
    assert "(100 launches)" in only(python_loop.RULE, cells(25, views=20)).summary


def test_rounds_of_several_steps_without_a_backward_are_no_loop():
    script = Script()
    for _ in range(_STEPS):
        for _ in range(4):
            script.launch("void at::native::cell", 2 * US, op="aten::cell_0")
        script.end_step()
    line = _LINE | {"module": "cell", "module_class": "Cell", "phase": Phase.FORWARD}
    assert is_silent(python_loop.RULE, _in_phases(placed(script.analysis(), cell_0=line)))


def test_a_line_of_few_rounds_or_a_whole_model_in_each_is_no_loop():
    assert is_silent(python_loop.RULE, cells(6))
    assert is_silent(python_loop.RULE, cells(10, body=60))


def moments(rounds: int, layers: int = 4, body: int = 15) -> Analysis:
    """Return steps that run layers in each moment, and the lines of a function after each."""
    script = Script()
    for _ in range(_STEPS):
        for _ in range(rounds):
            for layer in range(layers):
                script.launch("void cutlass::conv", 2 * US, op=f"aten::conv_{layer}")
                for at in range(body):
                    script.launch("void at::native::neuron", 2 * US, op=f"aten::neuron_{at}")
        script.launch("void at::native::mean_backward", 2 * US, op="aten::mean_backward")
        script.end_step()
    model, called = Frame("/model.py", 12, "forward", "conv(x)"), {"phase": Phase.FORWARD}
    convs = {
        f"conv_{layer}": called
        | {"file": "/model.py", "function": "forward", "line": 12, "stack": (model,)}
        | {"module": f"convs.{layer}", "module_class": "Conv2d", "code": "conv(x)"}
        for layer in range(layers)
    }
    stack = (replace(model, line=13, code="x = fired(x)"), Frame("/model.py", 3, "fired", "x * s"))
    fired = called | {"file": "/model.py", "function": "fired", "line": 3, "stack": stack}
    neurons = {f"neuron_{at}": fired | {"module": ""} for at in range(body)}
    return _in_phases(placed(script.analysis(), **convs, **neurons))


def test_a_loop_has_what_its_rounds_call_as_one_finding_at_its_own_line():
    found = only(python_loop.RULE, moments(8))
    assert found.location == Location("/model.py", 13, "x = fired(x)")
    assert found.summary.endswith("a Python loop runs 32 times a step (512 launches)")


def test_layers_that_run_once_beside_a_loop_are_not_of_it():
    # The layers' own lines run as often as the loop's, each for another module
    found = only(python_loop.RULE, moments(1, layers=12, body=4))
    assert found.location.line == 3
    assert "(48 launches)" in found.summary


def test_beside_compiled_graphs_eager_launches_are_to_be_compiled_too():
    analysis = cells(25, compiled=50)
    found = only(eager_beside_compiled.RULE, analysis)
    eager = "eager ops next to compiled graphs (100 launches)"
    assert found.summary == f"CPU launch-bound: {eager}"
    assert is_silent(python_loop.RULE, analysis)


def unrolled(code: str, rounds: int = 12, *, calls: int = 1) -> Analysis:
    """Return steps of a compiled graph in which a line has two products in each round."""
    script = Script()
    for _ in range(_STEPS):
        for _ in range(rounds * calls):
            for product in ("mm", "addmm"):
                script.launch("triton_gemm", 2 * US, op=f"aten::{product}")
        script.launch("void at::native::sum_backward", 2 * US, op="aten::sum")
        script.end_step()
    line = _LINE | {"module": "mixed", "module_class": "Experts", "phase": Phase.FORWARD}
    line |= {"code": code, "aten_op": "aten.mm.default"}
    made = _in_phases(placed(script.analysis(), mm=line, addmm=line))
    # Each op of the graph has a place of its own
    number = np.arange(len(made.launches)) % (2 * rounds * calls + 1) % (2 * rounds)
    is_own = np.arange(len(made.launches)) % (2 * rounds * calls + 1) < 2 * rounds * calls
    products = tuple(replace(made.places[0]) for _ in range(2 * rounds))
    at = np.where(is_own, number, len(products))
    other = made.places[int(made.shares.place[-1])]
    shares = replace(made.shares, place=at[made.shares.launch])
    return replace(made, places=(*products, other), shares=shares)


def test_a_loop_that_dynamo_unrolled_is_a_loop_where_no_round_needs_another():
    found = only(python_loop.RULE, unrolled("parts.append(gelu(part @ up[at]) @ down[at])"))
    assert found.summary.endswith("a Python loop runs 12 times a step (24 launches)")
    assert is_silent(python_loop.RULE, unrolled("state = tanh(state @ up) @ down"))
    assert is_silent(python_loop.RULE, unrolled("parts.append(a @ b[at] @ c @ d[at])", 10))


def test_a_graph_that_several_layers_call_is_no_loop():
    assert is_silent(python_loop.RULE, unrolled("return self.out(y)", 1, calls=12))


def test_no_time_is_saved_twice():
    for analysis in (optimizing("AdamW", _ADAMW), looping(30, waits=True), cells(25)):
        step_ns = facts_of(analysis).training.step_ns
        findings = judge(analysis, RULES).ranked
        saved_ns = sum(each.est_saving_ns for each in findings if not each.overlaps_with)
        assert 0 < saved_ns <= step_ns
        # A read of a value is a pageable copy too, which says so.
        shared = {each.rule for each in findings if each.overlaps_with}
        assert shared <= {"pageable_copy"}


def test_what_groups_save_is_not_launch_bound_too():
    analysis = optimizing("AdamW", _ADAMW)
    facts = facts_of(analysis)
    alone_ns = facts.step_ns - facts.training.overhead_ns - facts.busy_ns
    (group,) = launch_groups(facts)
    rest = sum(each.est_saving_ns for each in judge(analysis, (launch_bound.RULE,)).ranked)
    assert rest <= max(alone_ns - group.saving_ns, 0) + 1


def heads(count: int, code: str, *, join: str = "cat") -> Analysis:
    """Return steps in which a line calls the modules of a list, and a function joins results."""
    script = Script()
    for _ in range(_STEPS):
        for at in range(count):
            for op in ("linear", "gelu", "relu"):
                script.launch("void at::native::head", 2 * US, op=f"aten::{op}_{at}")
        script.launch("void at::native::join", 2 * US, op=f"aten::{join}")
        script.end_step()
    call = Frame("/model.py", 30, "forward", code)
    inner = Frame("/model.py", 9, "forward", "return F.gelu(self.query(x))")
    forward = {"phase": Phase.FORWARD, "file": "/model.py", "function": "forward"}
    places = {
        f"{op}_{at}": forward | {"line": 9, "module": f"block.heads.{at}", "stack": (call, inner)}
        for at in range(count)
        for op in ("linear", "gelu", "relu")
    }
    joins = forward | {"line": 30, "module": "block", "stack": (call,)}
    return _in_phases(placed(script.analysis(), **places, **{join: joins}))


def _lines_of(analysis: Analysis) -> list[tuple[int | None, int]]:
    groups = launch_groups(facts_of(analysis))
    return [(each.location.line, each.count) for each in groups if each.kind is Kind.CALLS]


@pytest.mark.parametrize(
    "code",
    [
        "return self.out(torch.cat([head(x) for head in self.heads], -1))",
        "rows = [self.heads[at](x[:, at]) for at in range(12)]",
        "results.append(head(x))",
        "out[:, :, at] = head(x[:, :, at])",
        "head(x)",
    ],
)
def test_a_line_that_calls_modules_without_each_other_is_a_loop(code):
    assert _lines_of(heads(12, code)) == [(30, 12)]
    found = only(python_loop.RULE, heads(12, code))
    assert found.summary.endswith("a Python loop runs 12 times a step (36 launches)")
    assert (found.location.file, found.location.code) == ("/model.py", code)


@pytest.mark.parametrize(
    "code",
    [
        "x = layer(x)",
        "x += layer(x)",
        "features.append(layer(features))",
        "hidden[at] = cell(x, before[at])",
        "x[at] = layer(x[at - 1])",
        "x[at] = x = layer(features[at])",
        "x = layer(x, [each.float() for each in masks])",
        "hidden = layer(",
    ],
)
def test_layers_that_take_each_others_results_are_no_loop(code):
    assert _lines_of(heads(12, code)) == []


def test_modules_whose_results_nothing_joins_or_that_are_few_are_no_loop():
    assert _lines_of(heads(12, "head(x)", join="add")) == []
    assert _lines_of(heads(6, "return torch.cat([head(x) for head in self.heads])")) == []


def _copy_slices(script: Script, number: int, op: str, duration_ns: int) -> None:
    """Launch an op in the autograd node of a write to a part of a tensor."""
    begin_ns = script.now_ns
    script.launch(f"void at::native::{op}_backward", duration_ns, op=f"aten::{op}")
    span = CPU, begin_ns, script.now_ns - begin_ns
    args = {"Sequence number": number, "Fwd thread id": 1}
    name = "autograd::engine::evaluate_function: torch::autograd::CopySlices"
    script.marks.append(Mark(name, "cpu_op", *span, args))


def writing() -> Analysis:
    """Return steps in which a line writes what 12 modules return into parts of a tensor."""
    script = Script()
    for step in range(_STEPS):
        begin_ns = script.now_ns
        for at in range(12):
            script.launch("void at::native::gemm", 2 * US, op=f"aten::linear_{at}")
            script.launch("void at::native::copy", 2 * US, op="aten::write")
        script.launch("void at::native::loss", 2 * US, op="aten::loss")
        made = [each for each in script.marks if each.start_ns >= begin_ns]
        for number, each in enumerate(
            each for each in made if each.name in ("aten::write", "aten::loss")
        ):
            each.args["Sequence number"] = 13 * step + number
        for at in range(12):
            _copy_slices(script, 13 * step + at, "copied", 20 * US)
        script.end_step()
    call = Frame("/model.py", 30, "forward", "out[:, at] = layer(x[:, at])")
    own = {"phase": Phase.FORWARD, "file": "/model.py", "function": "forward"}
    own |= {"line": 30, "code": call.code, "stack": (call,)}
    places = {f"linear_{at}": own | {"module": f"model.layers.{at}"} for at in range(12)}
    places["write"] = own | {"module": "model"}
    places["copied"] = {"phase": Phase.BACKWARD, "line": None, "file": None}
    return _in_phases(placed(script.analysis(), **places))


def test_a_loop_that_writes_parts_of_a_tensor_has_the_gradients_that_it_copies():
    (group,) = (each for each in launch_groups(facts_of(writing())) if each.kind is Kind.CALLS)
    assert (group.location.line, group.count) == (30, 12)
    assert len(group.launches) == _STEPS * 36
    # Of 12 whole gradients, 20 us each, one is left; of the others, which are short, one half
    assert set(np.round(group.busy_kept, 4)) == {0.5, round(1 / 12, 4)}


def picking() -> Analysis:
    """Return steps in which a loop of no module picks columns, which the backward adds up."""
    script = Script()
    for step in range(_STEPS):
        begin_ns = script.now_ns
        for _ in range(20):
            script.launch("void at::native::copy", 2 * US, op="aten::copied")
        script.launch("void at::native::loss", 2 * US, op="aten::loss")
        made = [each for each in script.marks if each.start_ns >= begin_ns]
        ops = (each for each in made if each.name in ("aten::copied", "aten::loss"))
        for number, each in enumerate(ops):
            each.args["Sequence number"] = 21 * step + number
        for at in range(20):
            _copy_slices(script, 21 * step + at, "cloned", 2 * US)
            script.launch("void at::native::select_backward", 2 * US, op="aten::select_backward")
        script.end_step()
    picked = _LINE | {"code": "out[:, at] = x[:, labels[at]]", "phase": Phase.OTHER}
    behind = {"select_backward": picked | {"phase": Phase.BACKWARD}}
    made = _in_phases(placed(script.analysis(), copied=picked, cloned={"line": None}, **behind))
    phase = np.where(made.launches.phase.where(Phase.FORWARD), 2, made.launches.phase.codes)
    phases = Interned(phase.astype(np.int32), (Phase.FORWARD, Phase.BACKWARD, Phase.OTHER))
    return replace(made, launches=replace(made.launches, phase=phases))


def test_a_loop_over_tensors_counts_its_backward():
    (group,) = launch_groups(facts_of(picking()))
    assert (group.kind, group.count, group.location.line) == (Kind.TENSORS, 20, 7)
    assert len(group.launches) == _STEPS * 60
    # Of zeros around the gradient of a part one round is left, of other short kernels one half
    assert set(np.round(group.busy_kept, 3)) == {0.05, 0.1, 0.5}


def generators(runs: int, count: int) -> Analysis:
    """Return steps in which a line sums modules of one list, some at a time, after other code."""
    script = Script()
    for _ in range(_STEPS):
        for at in range(runs * count):
            if at % count == 0:
                script.launch("void at::native::up", 2 * US, op=f"aten::up_{at}")
            script.launch("void at::native::block", 2 * US, op=f"aten::block_{at}")
        script.end_step()
    code = "x = sum(block(x) for block in blocks) / count"
    call, inner = Frame("/model.py", 30, "forward", code), Frame("/model.py", 9, "forward", "y")
    own = {"phase": Phase.FORWARD, "file": "/model.py", "function": "forward"}
    places = {
        f"block_{at}": own | {"line": 9, "module": f"model.blocks.{at}", "stack": (call, inner)}
        for at in range(runs * count)
    }
    before = Frame("/model.py", 28, "forward", "x = F.leaky_relu(x)")
    up = own | {"line": 28, "module": "model", "stack": (before,)}
    places |= {f"up_{at}": up for at in range(0, runs * count, count)}
    return _in_phases(placed(script.analysis(), **places))


def test_a_line_that_calls_few_modules_of_a_list_at_a_time_is_no_loop():
    assert _lines_of(generators(1, 12)) == [(30, 12)]
    assert _lines_of(generators(2, 8)) == [(30, 8)]
    assert _lines_of(generators(4, 3)) == []


def packed(by_one_op: bool, waits: bool = False) -> Analysis:
    """Return steps that copy rows of a batch, by an op for each of them or by one for all."""
    script = Script()
    for _ in range(_STEPS):
        begin_ns = script.now_ns
        for _ in range(25):
            script.launch("void at::native::copy", 2 * US, op="aten::copy_")
            if waits:
                script.wait()
        if by_one_op:
            span = CPU, begin_ns, script.now_ns - begin_ns
            script.marks.append(Mark("aten::_pack_padded_sequence", "cpu_op", *span))
        script.end_step()
    line = _LINE | {"phase": Phase.FORWARD}
    return _in_phases(placed(script.analysis(), copy_=line, _pack_padded_sequence=line))


def test_an_op_that_launches_the_same_again_and_again_is_no_loop_of_python():
    assert len(_lines_of(packed(by_one_op=False))) == 1
    assert _lines_of(packed(by_one_op=True)) == []


def test_the_waits_of_an_op_that_loops_go_with_it():
    analysis = packed(by_one_op=True, waits=True)
    (group,) = launch_groups(facts_of(analysis))
    assert group.kind is Kind.OPS and int(np.sum(group.waits)) == _STEPS * 25
    assert is_silent(synchronisation.RULE, analysis)
    (without,) = launch_groups(facts_of(packed(by_one_op=True)))
    assert group.saving_ns > without.saving_ns


def test_a_loop_that_waits_in_each_round_costs_its_waits_too():
    script = Script()
    for _ in range(_STEPS):
        for _ in range(12):
            script.launch("void at::native::cell", 30 * US, op="aten::cell_0")
            script.launch(_COPY, US, op="aten::nonzero", category="gpu_memcpy")
            script.wait()
        script.launch("void at::native::cell_backward", 2 * US, op="aten::cell_backward")
        script.end_step()
    line = _LINE | {"module": "cell", "module_class": "Cell", "phase": Phase.FORWARD}
    backward = {"cell_backward": line | {"phase": Phase.BACKWARD}}
    made = placed(script.analysis(), cell_0=line, nonzero=line, **backward)
    idle = replace(made.idle, places=tuple(replace(each, **_LINE) for each in made.idle.places))
    analysis = _in_phases(replace(made, idle=idle))
    found = only(python_loop.RULE, analysis)
    assert found.summary.endswith("(25 launches) and waits for the device")
    assert {each.name: each.value for each in found.evidence}["waits for the device in them"] == 12
    assert is_silent(synchronisation.RULE, analysis)
    assert [each.kind for each in launch_groups(facts_of(analysis))] == [Kind.CALLS]


def test_a_loop_has_what_needs_no_gradient_in_its_rounds() -> None:
    script = Script()
    for _ in range(_STEPS):
        for _ in range(20):
            script.launch("void at::native::other", 2 * US, op="aten::eq")
            script.launch("void at::native::cell", 2 * US, op="aten::cell")
        script.launch("void at::native::sum_backward", 2 * US, op="aten::sum_backward")
        script.end_step()
    line = _LINE | {"module": "", "module_class": "Net"}
    mask = line | {"line": 8, "phase": Phase.OTHER}
    made = placed(script.analysis(), cell=line | {"phase": Phase.FORWARD}, eq=mask)
    names = [made.launches.name[at] for at in range(len(made.launches))]
    phases = [Phase.FORWARD, Phase.BACKWARD, Phase.OTHER]
    codes = np.array([("backward" in name) + 2 * ("other" in name) for name in names], np.int32)
    analysis = replace(made, launches=replace(made.launches, phase=Interned(codes, tuple(phases))))
    assert only(python_loop.RULE, analysis).summary.endswith("times a step (40 launches)")
