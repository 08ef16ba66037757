"""The records of one step's values: which work gave what was there already, or what nobody reads.

The values of a step before the recording are compared on the device, bit by bit. What stands here
are counts of elements; no value of the program is kept.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """The innermost line of the program that ran an op."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class OpValues:
    """What the calls of one op at one line gave, in the forward or in the backward."""

    at: ProgramLine  # for an op of the backward, the line of its forward op
    op: str  # ``aten::addmm``
    is_backward: bool
    calls: int
    elements: int  # of all that it gave and that was compared
    # Of tensors that are equal, bit by bit, to one that an op of the same name gave before in the
    # step; never of tensors of one value throughout
    repeated_elements: int
    # Of rows (all dimensions but the last) that are equal to a row before them in the tensor; never
    # of rows of one value throughout
    equal_row_elements: int
    # Of rows of a forward that an earlier call of this op at this line gave, too: lengths grow, or
    # windows overlap
    rows_computed_before_elements: int = 0
    # That nothing reads in the step and that is freed by its end; with what is computed of these
    # elements alone
    unread_elements: int = 0
    # Something reads a result where no gradient is recorded, in ``torch.no_grad()``: a matcher,
    # a metric
    is_read_without_gradient: bool = False


@dataclass(frozen=True, slots=True)
class GradientValues:
    """The gradients of what one op gave at one line: which of their slices are zero throughout."""

    at: ProgramLine  # of the forward op
    node: str  # autograd's name: ``AddmmBackward0``
    calls: int
    elements: int
    zero_elements: int  # in slices along a dimension, or in rows, that are zero throughout
    # The forward op, as a node of autograd, that reads so little: its own gradient has no such
    # slices; "" where the gradient was given to ``backward``
    reader: str = ""
    reader_at: ProgramLine | None = None


@dataclass(frozen=True, slots=True)
class StepValues:
    """The values of one step."""

    step: int  # its number
    ops: tuple[OpValues, ...] = ()
    gradients: tuple[GradientValues, ...] = ()
    # Tensors that were not compared, and nodes after which a backward was not followed: those after
    # a limit, or while a CUDA graph was captured
    not_compared: int = 0


def inconsistency_of_values(values: StepValues) -> str | None:
    """Return what is wrong with values that were read from a file, ``None`` if nothing is."""
    parts = [
        *((each.elements, each.repeated_elements, each.unread_elements) for each in values.ops),
        *(
            (each.elements, each.equal_row_elements, each.rows_computed_before_elements)
            for each in values.ops
        ),
        *((each.elements, each.zero_elements, 0) for each in values.gradients),
    ]
    if any(not 0 <= part <= whole for whole, *own in parts for part in own):
        return "values: fewer elements than a part of them has"
    calls = [*(each.calls for each in values.ops), *(each.calls for each in values.gradients)]
    if min(calls, default=1) < 1 or values.not_compared < 0:
        return "values: an op without calls"
    return None
