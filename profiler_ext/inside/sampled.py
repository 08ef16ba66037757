"""What each line of a generated kernel takes, by samples of its instructions in the step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from profiler_ext.inside.line_table import LineTable, part_of
from profiler_ext.inside.pc_sampling import SampledFunction
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.inside.stalls import at_causes
from profiler_ext.records.inside import (
    InsideRoute,
    KernelPart,
    MeasuredKernel,
    MeasuredSite,
    apportioned,
)
from profiler_ext.records.kernel_lines import KernelLine, KernelLineEvidence, LinePart

_LEAST_SAMPLES = 1000
"""Below, a share of a tenth has a standard error of more than a point."""
_MOST_UNKNOWN = 0.01
_UNKNOWN = (LinePart.GAP.label, LinePart.PROGRAM.label)
_WITHOUT_LINE = KernelLine(LinePart.GAP, KernelLineEvidence.NO_LINE)


@dataclass(frozen=True, slots=True)
class SampledBinary:
    """The samples of one function, with the lines of its instructions."""

    function: SampledFunction
    table: LineTable
    text: str  # of the file that was compiled


@dataclass(slots=True)
class _Sampled:
    """The samples of lines that do the same."""

    lines: set[int] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> float:
        """All of them."""
        return sum(self.reasons.values())


def sampled_kernels(
    chosen: Sequence[ChosenKernel], binaries: Sequence[SampledBinary]
) -> list[MeasuredKernel]:
    """Return the time of each line of kernels, by samples.

    Args:
        chosen: the kernels.
        binaries: what was sampled; a kernel may have several, as one for each of its alignments.
    """
    return [
        _measured(each, [binary for binary in binaries if _is_of(binary, each)]) for each in chosen
    ]


def _is_of(binary: SampledBinary, chosen: ChosenKernel) -> bool:
    # Kernels of two graphs may have one name. Without a line table the name is all that is known.
    if not binary.text:
        return binary.table.kernel == chosen.kernel
    return binary.text.strip() == chosen.source.text.strip()


def _measured(chosen: ChosenKernel, binaries: Sequence[SampledBinary]) -> MeasuredKernel:
    reason = _why_not(binaries)
    parts = () if reason else _parts(chosen, _by_what_lines_do(chosen, binaries))
    unknown_ns = sum(each.time_ns for each in parts if each.reason in _UNKNOWN)
    if unknown_ns > _MOST_UNKNOWN * chosen.step_ns:
        reason = f"{100 * unknown_ns / chosen.step_ns:.0f}% of its time is of lines of no known op"
    sites = () if reason else _sites(chosen, [each for each in parts if each.nodes])
    if not (reason or sites):
        reason = "its lines compute other ops at other call sites"
    return MeasuredKernel(
        chosen.kernel,
        InsideRoute.SAMPLES,
        chosen.launches,
        chosen.total_ns,
        chosen.step_ns,
        parts=parts,
        sites=sites,
        text=chosen.source.text,
        reason=reason,
        samples=sum(binary.function.count for binary in binaries),
    )


def _why_not(binaries: Sequence[SampledBinary]) -> str:
    if not binaries:
        return "none of its instructions was sampled"
    if gap := next((each.table.gap for each in binaries if each.table.gap), None):
        return gap
    count = sum(each.function.count for each in binaries)
    return f"it has only {count} samples" if count < _LEAST_SAMPLES else ""


def _by_what_lines_do(
    chosen: ChosenKernel, binaries: Sequence[SampledBinary]
) -> Mapping[tuple[LinePart, tuple[str, ...]], _Sampled]:
    """Return the samples of lines by what they do, and for which nodes."""
    sampled: dict[tuple[LinePart, tuple[str, ...]], _Sampled] = defaultdict(_Sampled)
    for binary in binaries:
        instructions = {each.offset: each for each in binary.table.instructions}
        for offset, reasons in at_causes(binary.function, binary.table.instructions).items():
            line, number = _WITHOUT_LINE, None
            if (instruction := instructions.get(offset)) is not None:
                line = part_of(instruction, chosen.source, binary.table)
                number = binary.table.number_in(chosen.source, instruction)
            own = sampled[LinePart.NODE if line.nodes else line.part, line.nodes]
            own.reasons.update(reasons)
            if number is not None:
                own.lines.add(number)
    return sampled


def _parts(
    chosen: ChosenKernel, sampled: Mapping[tuple[LinePart, tuple[str, ...]], _Sampled]
) -> tuple[KernelPart, ...]:
    """Return what lines do with the time of it; the times add up to that of a launch."""
    times = apportioned(chosen.step_ns, [each.count for each in sampled.values()])
    parts = list[KernelPart]()
    for ((what, nodes), own), time_ns in zip(sampled.items(), times, strict=True):
        part = replace(
            chosen.part(nodes, sorted(own.lines)), time_ns=time_ns, stalls=_stalls(own, time_ns)
        )
        parts.append(part if nodes else replace(part, reason=what.label, modelled_share=None))
    return tuple(sorted(parts, key=lambda each: -each.time_ns))


def _stalls(sampled: _Sampled, time_ns: int) -> tuple[tuple[str, int], ...]:
    """Split a time by the reasons of its samples, the largest first."""
    if not time_ns:
        return ()
    reasons = sampled.reasons.most_common()
    times = apportioned(time_ns, [count for _, count in reasons])
    return tuple((reason, part) for (reason, _), part in zip(reasons, times, strict=True) if part)


def _sites(chosen: ChosenKernel, parts: Sequence[KernelPart]) -> tuple[MeasuredSite, ...]:
    """Return the times of nodes at each site.

    Indices, masks and frames are of all nodes, in proportion to the time of each.
    """
    own = [each.time_ns for each in parts]
    if not any(own):
        return ()
    whole = apportioned(chosen.step_ns, own)
    return chosen.times_of_sites(
        [replace(part, time_ns=time_ns) for part, time_ns in zip(parts, whole, strict=True)]
    )
