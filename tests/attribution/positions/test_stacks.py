"""What a position says: frames, module, whether a forward runs again."""

from __future__ import annotations

from profiler_ext.attribution.positions import NO_POSITION, Stacks, StackState
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.recording import Function, Position, PythonLines

BLOCK = ModuleFrame("blocks.0", "Block")
LINES = PythonLines(
    functions=(
        Function("/m.py", "step"),
        Function("/torch/utils/checkpoint.py", "recompute_fn", is_recompute=True),
        Function("/m.py", "forward"),
    ),
    modules=(BLOCK, None),
    positions=(
        Position(None, 0, 3, code="loss.backward()"),
        Position(0, 1),
        Position(1, module=0),
        Position(2, 2, 9, code="return x"),
        Position(2, 2),
        Position(0, module=1),
    ),
    threads=(),
    clock=(),
    end_ns=0,
)
STEP = Frame("/m.py", 3, "step", "loss.backward()")
FORWARD = Frame("/m.py", 9, "forward", "return x")


def test_a_standing_has_the_frames_outermost_first_and_the_innermost_module() -> None:
    stacks = Stacks(LINES)
    assert stacks.state(0) == StackState((STEP,))
    assert stacks.state(3) == StackState((STEP, FORWARD), BLOCK, is_recompute=True, in_module=True)
    assert stacks.depth(3) == 4


def test_what_began_before_is_left_out() -> None:
    stacks = Stacks(LINES)
    assert stacks.state(3, above=1) == StackState(
        (FORWARD,), BLOCK, is_recompute=True, in_module=True
    )
    assert stacks.state(3, above=2) == StackState((FORWARD,), BLOCK, in_module=True)
    assert stacks.state(3, above=4) == StackState()


def test_a_line_and_a_module_that_are_not_known_are_reported_to_be_so() -> None:
    stacks = Stacks(LINES)
    assert stacks.state(4) == StackState(
        (STEP,), BLOCK, is_recompute=True, is_line_known=False, in_module=True
    )
    assert stacks.state(5) == StackState((STEP,), in_module=True)
    assert stacks.state(NO_POSITION) == StackState()


def test_code_that_calls_what_was_compiled_has_no_frame_and_resumed_code_another_s() -> None:
    lines = PythonLines(
        functions=(
            Function("/m.py", "step"),
            Function("/m.py", "forward"),
            Function("/m.py", "forward", is_compiled=True),
            Function("/m.py", "torch_dynamo_resume_in_forward_at_9", is_resume=True),
            Function("/m.py", "torch_dynamo_resume_in_forward_at_9", False, True, True),
        ),
        modules=(BLOCK,),
        positions=(
            Position(None, 0, 3, code="loss.backward()"),
            Position(0, module=0),
            Position(1, 2, 7),
            Position(1, 1, 9, code="return x"),
            Position(3, 4, 9),
            Position(3, 3, 11, code="y.item()"),
            Position(5, 4, 11),
        ),
        threads=(),
        clock=(),
        end_ns=0,
    )
    resumed = Frame("/m.py", 11, "torch_dynamo_resume_in_forward_at_9", "y.item()")
    stacks = Stacks(lines)
    assert [stacks.state(at) for at in range(2, 7)] == [
        StackState((STEP,), BLOCK, in_module=True),
        StackState((STEP, FORWARD), BLOCK, in_module=True),
        StackState((STEP,), BLOCK, in_module=True),
        StackState((STEP, resumed), BLOCK, in_module=True),
        StackState((STEP,), BLOCK, in_module=True),
    ]
    assert stacks.state(6, above=1) == StackState((), BLOCK, in_module=True)
