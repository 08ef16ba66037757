"""Samples at the instruction that warps wait for, rather than at the one that waits.

A load takes no time itself: a later instruction that needs its value stalls. Which loads it waits
for is in the code: an instruction of variable latency sets one of six scoreboards, and what needs
its result names the scoreboards that it waits on (bits 105 to 121 of an instruction of 128 bits,
on Volta and later; Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018, chapter 2).
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from profiler_ext.inside.pc_sampling import SampledFunction
from profiler_ext.records.kernel_lines import Instruction

_NONE = 7
_MEMORY = ("LD", "LDG", "LDL", "TEX", "TLD", "SULD", "ATOM", "ATOMG", "RED", "CCTL")
_ON_CHIP = ("LDS", "LDSM", "LDC", "MUFU", "S2R", "S2UR", "SHFL", "ATOMS", "I2F", "F2I", "R2UR")
_WAITED_FOR = {"long_scoreboard": _MEMORY, "short_scoreboard": _ON_CHIP}
"""The opcodes whose results a warp waits for with each reason, where the code leaves a choice."""


def at_causes(
    function: SampledFunction, code: Sequence[Instruction]
) -> Mapping[int, Mapping[str, float]]:
    """Return the samples by instruction and reason, a wait for a value at what makes the value.

    A wait for several values is shared equally among what makes them. The sum of samples stays.
    """
    waits = _Waits(code)
    moved: dict[int, Counter[str]] = defaultdict(Counter)
    for offset, reasons in function.at.items():
        for reason, count in reasons.items():
            causes = tuple(waits.of(offset, reason)) if reason in _WAITED_FOR else ()
            for cause in causes or (offset,):
                moved[cause][reason] += count / max(len(causes), 1)  # type: ignore[assignment]
    return moved


class _Waits:
    def __init__(self, code: Sequence[Instruction]) -> None:
        self._code = sorted(code, key=lambda each: each.offset)
        self._offsets = [each.offset for each in self._code]
        self._loops = [
            (self._position(each.target), at)
            for at, each in enumerate(self._code)
            if each.target is not None and each.target <= each.offset
        ]

    def of(self, offset: int, reason: str) -> Iterator[int]:
        """Yield the offsets of the instructions that one waits for with a reason."""
        at = self._position(offset)
        if at >= len(self._code) or self._offsets[at] != offset:
            return
        makers = [
            each for board in sorted(_waits(self._code[at])) for each in self._setters(at, board)
        ]
        fitting = [each for each in makers if each.opcode.split(".")[0] in _WAITED_FOR[reason]]
        yield from dict.fromkeys(each.offset for each in fitting or makers)

    def _setters(self, at: int, board: int) -> list[Instruction]:
        """What sets a scoreboard on the way to an instruction, since it was last waited on."""
        if setters := self._before(at, 0, board):
            return setters
        around = (
            last
            for first, last in sorted(self._loops, key=lambda loop: loop[1])
            if first <= at <= last
        )
        return next(filter(None, (self._before(last + 1, at, board) for last in around)), [])

    def _before(self, at: int, first: int, board: int) -> list[Instruction]:
        setters: list[Instruction] = []
        for each in reversed(self._code[first:at]):
            if board in _sets(each):
                setters.append(each)
            if board in _waits(each):
                break
        return setters

    def _position(self, offset: int) -> int:
        return bisect.bisect_left(self._offsets, offset)


def _sets(instruction: Instruction) -> frozenset[int]:
    """The scoreboards that it sets: when its result is there, when its operands are read."""
    return frozenset({instruction.high >> 46 & 7, instruction.high >> 49 & 7} - {_NONE})


def _waits(instruction: Instruction) -> frozenset[int]:
    """The scoreboards that it waits on before it issues."""
    mask = instruction.high >> 52 & 0x3F
    return frozenset(board for board in range(6) if mask >> board & 1)
