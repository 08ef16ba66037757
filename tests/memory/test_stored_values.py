"""Values of one size that a kernel stores at several lines: which block holds which."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.async_compile import AsyncCompile

import profiler_ext
from profiler_ext.memory.peak import AliveBlock, all_blocks
from profiler_ext.records.memory import MemoryGap
from profiler_ext.sessions.session import Session
from tests import compiling

fresh_torch = compiling.fresh_torch
pytestmark = [
    pytest.mark.usefixtures("fresh_torch"),
    pytest.mark.filterwarnings("ignore::profiler_ext.errors.LateCaptureWarning"),
]
ROWS, WIDE = 127, 509
Run = Callable[..., tuple[torch.Tensor, ...]]


def recorded(run: Run) -> tuple[Session, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Train with a compiled function; return what its last forward was given and returned."""
    compiled = torch.compile(run)
    given = torch.rand(ROWS, WIDE), torch.rand(ROWS, WIDE, requires_grad=True)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)
    with profiler_ext.profile(schedule=schedule, strict=True, memory=True) as prof:
        for _ in range(3):
            returned = compiled(*given)
            saved = [*saved_by(returned)]
            torch.stack([each.sum() for each in returned]).sum().backward()
            prof.step()
    return prof.session, given, (*returned, *saved)


def saved_by(returned: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield what the node of autograd of a compiled function holds."""
    node: Any = next(each.grad_fn for each in returned if each.grad_fn is not None)
    yield from node.saved_tensors
    yield from getattr(node, "_tensors_no_vc_check", None) or ()


def by_address(session: Session) -> dict[int, AliveBlock]:
    """Return the last block at each address, of those that the step allocated."""
    record = session.recording.memory
    assert record is not None
    every = all_blocks(session.analysis, record)
    pairs = zip(every.timeline.blocks, every.described, strict=True)
    return {block.address: made for block, made in pairs if not block.is_older}


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def chain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = x * w
    second = first.sin()
    third = second + 1.0
    fourth = third * first
    joined = torch.cat([fourth.exp(), third @ x.T, x @ w.T], 1)
    return third, first, fourth, second, joined, joined * 2.0


LINE = chain.__code__.co_firstlineno
LINES = [LINE + 3, LINE + 1, LINE + 4, LINE + 2, LINE + 5, LINE + 6]  # of what it returns


def test_each_value_of_a_kernel_has_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a compiler, the kernels do nothing: the wrapper allocates all the same.
    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda *_: lambda *_: None)
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True, "compile_threads": 1}):
        session, _, tensors = recorded(chain)
    blocks = by_address(session)
    found = [blocks[address(each)] for each in tensors[: len(LINES)]]
    assert [each.place.line for each in found] == LINES
    of_one = found[:4]
    assert len({each.size_bytes for each in of_one}) == len({each.kernel for each in of_one}) == 1


_OPS = (
    "torch.sin({0})",
    "{0} * {1}",
    "{0} + {1}",
    "torch.sigmoid({0})",
    "torch.exp({0} * 0.1)",
    "torch.tanh({0} - {1})",
    "torch.where({0} > 0.5, {0}, {1})",
    "{0} / {0}.sum(1, keepdim=True)",
    "torch.softmax({0}, 1)",
    "({0} @ {1}.T) @ {1} * 1e-4",
    "torch.flip({0}, [0])",
)


def program(seed: int) -> tuple[list[str], list[str]]:
    """Return the lines of a function, each of which makes a value of one size, and its results."""
    drawn = random.Random(seed)
    names, lines = ["x", "w"], list[str]()
    for number in range(drawn.randint(8, 14)):
        inputs = [drawn.choice(names[-4:]), drawn.choice(names)]
        names.append(f"v{number}")
        lines.append(f"v{number} = {drawn.choice(_OPS).format(*inputs)} + {number}.0")
    made = names[2:]
    return lines, sorted({made[-1], *drawn.sample(made, len(made) // 2)}, key=made.index)


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(8))
def test_the_line_of_a_value_is_the_one_that_computes_it(seed: int, tmp_path: Path) -> None:
    lines, results = program(seed)
    source = tmp_path / "model.py"
    body = "\n    ".join(["def run(x, w):", *lines, f"return ({', '.join(results)},)"])
    source.write_text("import torch\n" + body + "\n")
    made: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), made)
    # Memory that is reused has another value later than the one that it was allocated for.
    with torch._inductor.config.patch(allow_buffer_reuse=False, inplace_buffers=False):
        session, (x, w), tensors = recorded(made["run"])

    names: dict[str, Any] = {"torch": torch, "x": x, "w": w.detach()}
    values = {}
    for number, line in enumerate(lines, start=3):
        exec(line, names)
        values[number] = names[line.partition(" ")[0]]
    blocks, outcomes = by_address(session), Counter[str]()
    for tensor in {address(each): each for each in tensors}.values():
        of = [n for n, value in values.items() if _is_same(value, tensor)]
        block = blocks.get(address(tensor))
        if len(of) == 1 and block is not None:
            is_right = block.place.line == of[0]
            is_gap = block.place.gap == MemoryGap.SEVERAL_VALUES
            outcomes["right" if is_right else "gap" if is_gap else "wrong"] += 1
    assert outcomes == {"right": outcomes["right"]} and outcomes["right"] >= len(results)


def _is_same(value: torch.Tensor, other: torch.Tensor) -> bool:
    is_like = value.shape == other.shape and value.dtype == other.dtype
    return is_like and torch.allclose(value, other.detach(), rtol=1e-4)
