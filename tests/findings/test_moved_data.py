"""Lines that only move data, and tensors far larger than what they are made of and become."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.ranking import judge
from profiler_ext.findings.rules import growing_cache, large_intermediate, moved_data, uncompiled
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Function, Position, PythonLines
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import (
    ELEMENTWISE,
    US,
    Script,
    at,
    forward,
    is_silent,
    made,
    only,
    placed,
)
from tests.findings.test_autograd_nodes import ENGINE, GEMM, STEPS, Steps

STRIDED = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl>"
REDUCES = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"
GATHERS = "void at::native::vectorized_gather_kernel<16, long>"
JOINS = "void at::native::CatArrayBatchedCopy<OpaqueType<4u>>"
LARGE, SMALL = [4096, 1, 1], [64, 1, 1]


def moved(
    op: str, code: str, *readers: str, inner: str = "", kernel: str = JOINS, count: int = 4
) -> Analysis:
    """Steps with a line that moves data several times, and what runs after each."""
    inner = inner or op
    others = {each: at(9, code="y = self.out(x)") for each in readers}
    launches = (forward(inner, kernel), *(forward(each) for each in readers))
    return made(*launches, count=count, **{inner: at(3, op, code=code)}, **others)


def test_caches_that_are_reordered_whole_are_moved_data():
    code = "kv = [k.index_select(0, i) for k in kv]"
    found = only(moved_data.RULE, moved("index_select", code, kernel=GATHERS))
    assert found.est_saving_ns == 4 * 300 * US
    assert (found.location.line, found.evidence[2].value) == (3, "aten::index_select")
    assert "another order" in found.summary


@pytest.mark.parametrize(
    ("op", "code", "reader", "words", "inner"),
    [
        ("cat", "x = torch.cat((x, new), 1)", "mm", "grows", ""),
        ("cat", "both = torch.cat((left, right), 1)", "addmm", "multiplied", ""),
        ("cat", "x = torch.cat((x.sin(), x.cos()), 1)", "addmm", "multiplied", ""),
        ("cat", "both = torch.cat((left, right), 1)", "mul", "next op reads", ""),
        ("matmul", "y = self.weight @ x[..., None]", "bmm", "operand", "copy_"),
        ("reshape", "k = k[:, None].expand(b, 4, n, d).reshape(b, -1)", "bmm", "repeated", "copy_"),
        ("contiguous", "k = F.pad(k, p).unfold(1, n, 1).contiguous()", "mm", "repeated", "copy_"),
        ("cat", "self.queue = torch.cat((new, self.queue[8:]))", "bmm", "grows", ""),
        ("repeat_interleave", "k = heads.repeat_interleave(4, 1)", "bmm", "repeated", "copy_"),
        ("roll", "shifted = torch.roll(x, (1, 1), (1, 2))", "add", "next op reads", ""),
    ],
)
def test_what_runs_next_or_the_line_itself_tells_why(
    op: str, code: str, reader: str, words: str, inner: str
):
    assert words in only(moved_data.RULE, moved(op, code, reader, inner=inner)).summary


@pytest.mark.parametrize(
    "analysis",
    [
        moved("cat", "x = torch.cat((x, skip), 1)", "cudnn_convolution"),
        moved("index", "own = x[order]", "mm"),
        moved("reshape", "y = y.transpose(1, 2).reshape(b, n, -1)", "mul", inner="copy_"),
        moved("clone", "y = x.clone()", "mul_"),
        moved("contiguous", "x = F.unfold(x, 3).contiguous()", "mm", inner="copy_"),
        moved("cat", "y = torch.cat((a, b))", *["mm"] * 60, count=1),
        moved("index_select", "own = x.index_select(0, rows)"),
        moved("index_select", "x = x + y.index_select(0, rows)"),
    ],
    ids=[
        "a_skip_connection",
        "sorted_rows",
        "other_sizes",
        "written_in_place",
        "patches",
        "little",
        "no_reader",
        "rows_that_are_added",
    ],
)
def test_what_may_be_needed_is_not_reported(analysis: Analysis):
    assert is_silent(moved_data.RULE, analysis)


def test_the_gradient_of_windows_counts_with_their_copy():
    steps = Steps()
    for _ in range(STEPS):
        with steps.within("aten::pad"):
            steps.launch("copy_", Phase.FORWARD, us=10)
        with steps.within("aten::contiguous"):
            steps.launch("copy_", Phase.FORWARD)
        steps.launch("mm", Phase.FORWARD)
        steps.launch("unfold_backward", Phase.BACKWARD)
        steps.end_step()
    code = "k = F.pad(k, sides).unfold(1, n, 1).contiguous()"
    own = {op: at(3, op, code=code) for op in ("pad", "contiguous")}
    back = at(3, "unfold_backward", Phase.BACKWARD, code=code)
    found = only(moved_data.RULE, steps.analysis(**own, unfold_backward=back))
    # The longest copy of the line tells why, not the first
    assert ("repeated" in found.summary, found.location.line) == (True, 3)
    assert found.est_saving_ns == pytest.approx((10 + 300 + 300) * US, rel=0.01)


@pytest.mark.parametrize(
    ("reader", "code", "sums"),
    [
        ("index_select", "taken = every.index_select(0, order)", 300),
        ("index_select", "taken = rows.index_select(0, order)", 0),
        ("mul", "y = every * scale", 0),
    ],
)
def test_what_is_repeated_to_be_picked_by_index_loses_the_sum_of_its_gradients(
    reader: str, code: str, sums: int
):
    steps = Steps()
    for step in range(STEPS):
        with steps.within("aten::repeat_interleave", 10 * step):
            steps.launch("copy_", Phase.FORWARD)
        with steps.within(f"aten::{reader}", 10 * step + 1):
            steps.launch(reader, Phase.FORWARD)
        steps.launch("mm", Phase.FORWARD)
        with steps.within(ENGINE + "RepeatBackward0", 10 * step):
            steps.launch("sum", Phase.BACKWARD)
        steps.end_step()
    repeat = at(3, "repeat_interleave", code="every = x.repeat_interleave(8, 0)")
    places = {"repeat_interleave": repeat, reader: at(4, reader, code=code)}
    found = only(moved_data.RULE, steps.analysis(**places))
    assert found.location.line == 3
    assert found.est_saving_ns == pytest.approx((300 + sums) * US, rel=0.01)


def test_a_special_rule_has_a_line_first_and_the_most_general_one_gets_the_rest():
    analysis = moved("cat", "k = torch.cat((k, new), 2)", "mul")
    own, rest = judge(analysis, (uncompiled.RULE, moved_data.RULE)).ranked
    assert (own.rule, own.est_saving_ns, own.location.line) == ("moved_data", 4 * 300 * US, 3)
    assert rest.rule == "uncompiled"
    assert rest.est_saving_ns <= 4 * 300 * US  # of the multiplications alone


def test_a_special_rule_has_a_line_before_it():
    code = "k = torch.cat((k, new), 2)"
    long = Script()
    for _ in range(3):
        for _ in range(4):
            long.launch(JOINS, 900 * US, op="aten::cat")
            long.launch(ELEMENTWISE, 100 * US, op="aten::mul")
        long.wait()
        long.end_step()
    analysis = placed(long.analysis(), cat=at(3, "cat", code=code), mul=at(9))
    (found,) = judge(analysis, (moved_data.RULE, growing_cache.RULE)).ranked
    assert found.rule == "growing_cache"


def gradients(*, count: int = 4, sums: int = 3, sum_us: int = 300) -> Analysis:
    """Steps whose backward fills a whole gradient for each part of a tensor, and adds them."""
    steps = Steps()
    for _ in range(STEPS):
        steps.launch("mul", Phase.FORWARD)
        for at_part in range(count):
            with steps.within("aten::select_backward"):
                steps.launch("fill_", Phase.BACKWARD)
                steps.launch("copy_", Phase.BACKWARD)
            if at_part < sums:
                steps.launch("add_", Phase.GRADIENT_ACCUMULATION, us=sum_us)
        steps.end_step()
    own = at(7, "select_backward", Phase.BACKWARD, code="y = x[:, i] * w")
    sum_of = at(7, "add_", Phase.GRADIENT_ACCUMULATION)
    return steps.analysis(mul=at(7, "mul"), select_backward=own, add_=sum_of)


def test_gradients_of_parts_cost_their_zeros_and_half_of_their_sums():
    found = only(moved_data.RULE, gradients())
    assert found.est_saving_ns == pytest.approx((4 + 1.5) * 300 * US, rel=0.01)
    assert (found.location.line, found.remedy[:8]) == (7, "x.unbind")


def test_the_gradient_of_one_part_alone_has_to_be_filled():
    assert is_silent(moved_data.RULE, gradients(count=1, sums=0))


def test_sums_of_other_sizes_are_not_those_of_parts():
    assert is_silent(moved_data.RULE, gradients(sum_us=3000))


def spectra(*shifts: str, reader: str = "mul", after: str = "abs") -> Analysis:
    """Steps that multiply a shifted spectrum, and shift what they make of it."""
    steps = Steps()
    for step in range(STEPS):
        with steps.within("aten::fft_fft2"):
            steps.launch("_fft_c2c", Phase.FORWARD, us=3000)
        for number, (shift, reads) in enumerate(zip(shifts, (reader, after), strict=False)):
            with (
                steps.within(f"aten::{shift}"),
                steps.within("aten::roll", 10 * step + 2 * number),
            ):
                steps.launch("roll", Phase.FORWARD)
            with steps.within(f"aten::{reads}", 10 * step + 2 * number + 1):
                steps.launch(reads, Phase.FORWARD)
        for number, _ in enumerate(shifts):
            with steps.within(ENGINE + "RollBackward0", 10 * step + 2 * number):
                steps.launch("roll", Phase.BACKWARD)
        steps.end_step()
    forth = {op: at(6, op) for op in ("fft_fft2", "fft_fftshift", reader)}
    return steps.analysis(**forth, **{op: at(7, op) for op in ("fft_ifftshift", after)})


def test_spectra_that_are_shifted_there_and_back_count_with_their_backward():
    found = only(moved_data.RULE, spectra("fft_fftshift", "fft_ifftshift"))
    assert found.est_saving_ns == pytest.approx(4 * 300 * US, rel=0.01)
    assert (found.location.line, found.remedy[:11]) == (6, "no fftshift")


def test_one_shift_or_what_a_layer_reads_may_be_needed():
    assert is_silent(moved_data.RULE, spectra("fft_fftshift"))
    assert is_silent(moved_data.RULE, spectra("fft_fftshift", "fft_ifftshift", reader="mm"))


@dataclass(frozen=True)
class Cube:
    """What a function does that makes differences of all pairs."""

    broadcasts: bool = True
    producer_us: int = 10
    following: tuple[int, ...] = tuple(SMALL)
    reduces: bool = True
    learns: bool = False
    sums: bool = True
    conjugates: bool = False  # an operand is copied within the op that broadcasts it
    transforms: bool = False

    def analysis(self) -> Analysis:
        steps = Steps()
        for step in range(STEPS):
            steps.launch("mm", Phase.FORWARD, GEMM, self.producer_us)
            if self.broadcasts:
                with steps.within("aten::unsqueeze"):
                    pass
            with steps.within("aten::subtract", 10 * step):
                if self.conjugates:
                    steps.launch("copy_", Phase.FORWARD, us=5, grid=SMALL, block=[128, 1, 1])
                steps.launch("sub", Phase.FORWARD, STRIDED, grid=LARGE, block=[128, 1, 1])
            if self.transforms:
                steps.launch("_fft_c2r", Phase.FORWARD, "vector_fft_symm_c2r<256u, float>")
            steps.launch("pow", Phase.FORWARD, ELEMENTWISE, grid=LARGE, block=[128, 1, 1])
            if self.reduces:
                steps.launch("amin", Phase.FORWARD, REDUCES)
            steps.launch("sqrt", Phase.FORWARD, us=5, grid=self.following, block=[128, 1, 1])
            with steps.within("aten::loss", 10 * step + 1):
                pass
            if self.learns:
                with steps.within(ENGINE + "SubBackward0", 10 * step):
                    steps.launch("neg", Phase.BACKWARD, STRIDED)
                    if self.sums:
                        steps.launch("sum", Phase.BACKWARD, REDUCES)
            steps.end_step()
        behind = {"phase": Phase.BACKWARD}
        names = {"mm": 2, "subtract": 3, "pow": 4, "amin": 5, "sqrt": 6, "_fft_c2r": 3}
        places = {name: at(line, name, function="distances") for name, line in names.items()}
        return steps.analysis(
            **places, neg=at(3, "subtract") | behind, sum=at(3, "subtract") | behind
        )


def test_what_a_called_function_chooses_and_reduces_is_of_the_same_large_intermediate():
    analysis = Cube().analysis()
    outer = Frame("/model.py", 9, "step")
    of_both, of_called = ("step", (outer,)), ("nearest", (outer, Frame("/model.py", 3, "step")))
    places = tuple(
        replace(each, function=function, stack=(*stack, Frame("/model.py", 4, function)))
        for each in analysis.places
        for function, stack in [of_called if each.line in (4, 5) else of_both]
    )
    found = only(large_intermediate.RULE, replace(analysis, places=places))
    assert found.est_saving_ns == pytest.approx(750 * US, rel=0.01)
    # Of two calls, each is another one's
    apart = tuple(replace(each, stack=each.stack[1:]) for each in places)
    others = (apart[at] if each.line in (4, 5) else each for at, each in enumerate(places))
    assert is_silent(large_intermediate.RULE, replace(analysis, places=tuple(others)))


def test_differences_of_all_pairs_are_a_large_intermediate():
    found = only(large_intermediate.RULE, Cube().analysis())
    # Half of one pass of three is left: a fused loop computes all elements, and writes none
    assert found.est_saving_ns == pytest.approx(750 * US, rel=0.01)
    assert (found.location.line, found.evidence[0].value) == (3, 4096 * 128 * 4)


def layered() -> Analysis:
    """Steps of two layers that call one function, of which the second makes a smaller tensor."""
    steps = Steps()
    for step in range(STEPS):
        for _ in range(8):
            steps.launch("mm", Phase.FORWARD, GEMM, 10)
        for layer, (blocks, us) in enumerate(((4 * LARGE[0], 300), (LARGE[0], 80))):
            with steps.within("aten::unsqueeze"):
                pass
            with steps.within("aten::subtract", 10 * step + layer):
                steps.launch(
                    "sub", Phase.FORWARD, STRIDED, us, grid=[blocks, 1, 1], block=[128, 1, 1]
                )
            steps.launch("amin", Phase.FORWARD, REDUCES, us)
            steps.launch("sqrt", Phase.FORWARD, us=5, grid=SMALL, block=[128, 1, 1])
        steps.end_step()
    lines = {"subtract": 3, "amin": 5, "sqrt": 6}
    places = {name: at(line, name, function="distances") for name, line in lines.items()}
    return steps.analysis(mm=at(2, "mm", function="step"), **places)


def test_a_later_layer_makes_a_smaller_large_intermediate_of_its_own():
    found = only(large_intermediate.RULE, layered())
    assert found.est_saving_ns == pytest.approx((2 - 0.5) * 380 * US, rel=0.01)


def counted(code: str) -> Analysis:
    """Steps that compare all pairs of classes, of more elements than one launch has."""
    steps = Steps()
    for step in range(STEPS):
        steps.launch("mm", Phase.FORWARD, GEMM, 10)
        for name in ("eq", "ne"):
            with steps.within("aten::unsqueeze"):
                pass
            steps.launch(name, Phase.FORWARD, STRIDED, 5, grid=SMALL, block=[128, 1, 1])
        with steps.within("aten::bitwise_and", 10 * step):
            for _ in range(2):
                steps.launch("bitwise_and", Phase.FORWARD, STRIDED, grid=LARGE, block=[128, 1, 1])
        with steps.within("aten::copy_", 10 * step + 1):
            for _ in range(8):
                grid = [LARGE[0] // 4, 1, 1]
                steps.launch("copy_", Phase.FORWARD, ELEMENTWISE, 75, grid=grid, block=[128, 1, 1])
        steps.launch("sum", Phase.FORWARD, REDUCES)
        steps.launch("sqrt", Phase.FORWARD, us=5, grid=SMALL, block=[128, 1, 1])
        steps.end_step()
    lines = {"mm": (2, "x = a @ b"), "eq": (3, "found = one == each[:, None]")}
    lines |= {"ne": (4, "wanted = other == each[:, None, None]"), "bitwise_and": (5, code)}
    lines |= {
        "copy_": (6, "return both.sum(2)"),
        "sum": (6, "return both.sum(2)"),
        "sqrt": (7, "y"),
    }
    analysis = steps.analysis(
        **{name: at(line, name, function="f", code=text) for name, (line, text) in lines.items()}
    )
    return in_parts(analysis, "aten::bitwise_and", "aten::copy_")


def in_parts(analysis: Analysis, *ops: str) -> Analysis:
    """The same where one op launches what such ops launched one after the other."""
    names, op = analysis.recording.trace.events.name, analysis.launches.op_event.copy()
    for before, row in itertools.pairwise(range(len(op))):
        if names[int(op[row])] in ops and names[int(op[before])] == names[int(op[row])]:
            op[row] = op[before]
    return replace(analysis, launches=replace(analysis.launches, op_event=op))


def contracted(*, reader: str = "einsum", op: str = "mul") -> Analysis:
    """Steps that write out outer products, and then sum them up by a product."""
    steps = Steps()
    copies = STRIDED.replace("impl", "impl_nocast")
    for _ in range(STEPS):
        for _ in range(8):
            steps.launch("mm", Phase.FORWARD, GEMM, 10)
        with steps.within("aten::einsum"):
            with steps.within("aten::unsqueeze"):
                pass
            steps.launch(op, Phase.FORWARD, STRIDED, grid=LARGE, block=[128, 1, 1])
        with steps.within(f"aten::{reader}"):
            steps.launch("copy_", Phase.FORWARD, copies, 500, grid=LARGE, block=[128, 1, 1])
            steps.launch("bmm", Phase.FORWARD, GEMM, 50)
        steps.launch("sqrt", Phase.FORWARD, us=5, grid=SMALL, block=[128, 1, 1])
        steps.end_step()
    places = {"mm": at(2, "mm"), "sqrt": at(5, "sqrt"), "einsum": at(3, "einsum", function="f")}
    return steps.analysis(**places | {reader: at(3, reader, function="f")})


def test_outer_products_that_a_product_sums_up_are_a_large_intermediate():
    found = only(large_intermediate.RULE, contracted())
    assert found.est_saving_ns == pytest.approx((300 + 500 + 50 - 150) * US, rel=0.01)
    assert is_silent(large_intermediate.RULE, contracted(reader="linear"))
    assert is_silent(large_intermediate.RULE, contracted(op="exp"))


def test_what_is_larger_than_all_that_it_reads_is_broadcast_and_may_run_in_parts():
    found = only(large_intermediate.RULE, counted("both = found & wanted"))
    assert found.evidence[0].value == 2 * LARGE[0] * 128 * 4
    # Half of the shortest op of all elements is left
    assert found.est_saving_ns == pytest.approx((600 + 600 + 300 - 300) * US, rel=0.01)
    for code in ("both = found & mask", "both = found & self.wanted", "found &= wanted"):
        assert is_silent(large_intermediate.RULE, counted(code))


@dataclass(frozen=True)
class Picked:
    """What a function does that converts masks, and reads them at some points."""

    sample_us: int = 10
    loss_us: int = 10
    code: str = "return sample(masks.float(), points)"
    indexes: bool = False

    def analysis(self) -> Analysis:
        steps = Steps()
        for _ in range(STEPS):
            steps.launch("cat", Phase.OTHER, JOINS, 100)
            with steps.within("aten::to"):
                steps.launch("copy_", Phase.OTHER, grid=LARGE, block=[128, 1, 1])
            steps.launch("mul", Phase.OTHER, us=5, grid=SMALL, block=[128, 1, 1])
            reader = "index" if self.indexes else "grid_sampler_2d"
            steps.launch(reader, Phase.OTHER, GATHERS, self.sample_us)
            steps.launch("log_sigmoid", Phase.FORWARD, us=self.loss_us)
            steps.launch("mm_backward", Phase.BACKWARD)
            steps.end_step()
        lines = {"mul": 8, "grid_sampler_2d": 8, "log_sigmoid": 9}
        places = {name: at(line, name) for name, line in lines.items()}
        places["cat"] = at(3, "cat", function="f")
        places["to"] = at(4, "to", function="f", code=self.code)
        places["index"] = at(4, "index", function="f", code=self.code)
        return steps.analysis(**places, mm_backward=at(2, "linear", Phase.BACKWARD))


def test_copies_of_whole_tensors_of_which_few_values_are_read():
    by_index = Picked(code="return masks.float()[at]", indexes=True)
    assert only(large_intermediate.RULE, by_index.analysis()).location.line == 4
    found = only(large_intermediate.RULE, Picked().analysis())
    assert found.est_saving_ns == pytest.approx((100 + 300 - 10) * US, rel=0.01)
    assert (found.location.line, "few values" in found.summary) == (4, True)


@pytest.mark.parametrize(
    "picked",
    [
        Picked(100),
        Picked(100, indexes=True),
        Picked(loss_us=100),
        Picked(code="self.masks = masks.float()"),
    ],
    ids=["many_are_read", "many_by_index", "another_may_read_them", "an_object_keeps_them"],
)
def test_copies_that_may_be_read_whole_are_needed(picked: Picked):
    assert is_silent(large_intermediate.RULE, picked.analysis())


def test_the_backward_of_a_large_intermediate_counts_where_it_sums_the_gradient():
    found = only(large_intermediate.RULE, Cube(learns=True).analysis())
    # Five kernels less half a pass forward and half a pass backward
    assert found.est_saving_ns == pytest.approx(1200 * US, rel=0.01)


def test_a_transform_of_a_large_intermediate_counts_and_its_operand_may_be_copied_first():
    cube = Cube(conjugates=True, transforms=True)
    found = only(large_intermediate.RULE, cube.analysis())
    assert found.est_saving_ns == pytest.approx(1050 * US, rel=0.01)


@pytest.mark.parametrize(
    "cube",
    [
        Cube(broadcasts=False),
        Cube(producer_us=200),
        Cube(following=tuple(LARGE)),
        Cube(reduces=False),
        Cube(learns=True, sums=False),
    ],
    ids=["same_sizes", "large_operand", "large_result", "not_reduced", "operand_of_that_size"],
)
def test_what_is_made_of_large_tensors_or_stays_large_is_none(cube: Cube):
    assert is_silent(large_intermediate.RULE, cube.analysis())


def test_the_elements_of_a_kernel_are_its_blocks_times_what_each_computes():
    analysis = Cube().analysis()
    counts = large_intermediate.elements_of(facts_of(analysis))
    assert counts[:5].tolist() == [0, 4096 * 512, 4096 * 512, 0, 64 * 512]


REORDERS = "seen = seen.permute(1, 0, 2).reshape(-1, seen.shape[2])"


def reordered(move: str = REORDERS, **codes: str) -> Analysis:
    """Steps of four layers, each of which copies what it is given into another order."""
    of_step = {20: "for layer in layers:", 21: codes.get("call", "x = layer(x, seen)")}
    of_step |= {22: codes["after"]} if "after" in codes else {}
    of_layer = {
        4: codes.get("before", "y = self.norm(x)"),
        5: move,
        6: "return x + self.values(seen)",
    }
    frames = (Frame("/m.py", 21, "step", of_step[21]), Frame("/m.py", 5, "forward", move))
    layers = made(
        forward("copy_", STRIDED),
        forward("addmm"),
        count=4,
        copy_=at(5, "reshape", code=move, stack=frames),
        addmm=at(6, code=of_layer[6]),
    )
    positions = [Position(None, 0, line, code=code) for line, code in of_step.items()]
    positions += [Position(1, 1, line, code=code) for line, code in of_layer.items()]
    functions = (Function("/m.py", "step"), Function("/m.py", "forward"))
    python = PythonLines(functions, (), tuple(positions), (), (), end_ns=0)
    return replace(layers, recording=replace(layers.recording, python=python))


def test_what_each_layer_puts_into_the_same_order_is_moved_once() -> None:
    found = only(moved_data.RULE, reordered())
    assert (found.location.line, found.est_saving_ns) == (5, 3 * 300 * US)
    assert found.remedy.startswith("once before the layers")


@pytest.mark.parametrize(
    "codes",
    [
        {"call": "seen = layer(seen, x)"},
        {"call": "x = layer(x, seen[i])"},
        {"after": "seen = seen + x"},
        {"before": "seen = self.norm(seen)"},
        {"move": "y = (seen + x).permute(1, 0, 2).reshape(-1, 3)"},
    ],
)
def test_what_differs_from_layer_to_layer_has_to_be_moved_in_each(codes: dict[str, str]) -> None:
    assert is_silent(moved_data.RULE, reordered(**codes))
