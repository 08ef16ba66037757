"""What was measured inside kernels, as text, and read where it lies next to a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from profiler_ext.errors import TraceError
from profiler_ext.exporters.json_output.documents import InsideAnswer
from profiler_ext.exporters.views import formatting
from profiler_ext.file_io import read_regular, replacing
from profiler_ext.printable import printable
from profiler_ext.records.inside import InsideRoute, KernelPart, MeasuredKernel
from profiler_ext.records.stored import known

FILE_NAME = "inside.json"
"""The file of an answer, in the folder of the session."""
_MAX_BYTES = 64 * 1024 * 1024
_NUMBERS = "{:>9}  {:>9}  {:>6}  {:>6}  "
_HEADS = ("without", "saves", "share", "model")
_LEAST_NAME, _NARROW_NAME, _WIDE_NAME = 6, 12, 24
_WIDE = 100
_SAMPLED = "{:>9}  {:>6}  {:>6}  {:20}  "
_SAMPLED_HEADS = ("time", "share", "model", "waits for")
# The words of Nsight Compute's guide for the reasons of stalls; others keep their names.
_WAITS = {
    "long_scoreboard": "memory",
    "lg_throttle": "the memory queue",
    "short_scoreboard": "on-chip memory",
    "mio_throttle": "the on-chip queue",
    "barrier": "a barrier",
    "membar": "a memory barrier",
    "math_pipe_throttle": "a busy pipe",
    "wait": "a fixed latency",
    "no_instructions": "instructions",
    "branch_resolving": "a branch",
    "drain": "stores at its end",
    "imc_miss": "a constant",
}
_ISSUED = ("selected", "not_selected")  # the warp could go on


def inside_of(session: Path) -> InsideAnswer | None:
    """Return what was measured inside the kernels of a session, if it lies in its folder.

    Raises:
        TraceError: It is no answer of ``profiler-ext inside``.
    """
    path = (session if session.is_dir() else session.parent) / FILE_NAME
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(read_regular(path, _MAX_BYTES), type=known(InsideAnswer))
    except (OSError, msgspec.MsgspecError) as error:
        raise TraceError(
            f"{path} is no answer of profiler-ext inside: {error}; remove it"
        ) from error


def write_inside(folder: Path, kernels: Sequence[MeasuredKernel]) -> None:
    """Write what was measured inside the kernels of a session into its folder, if it is new."""
    before = inside_of(folder) if kernels else None
    if not kernels or (before is not None and before.kernels == list(kernels)):
        return
    answer = InsideAnswer(
        command=[], query="", device="", duration_ns=0, kernels=list(kernels), notes=[]
    )
    with replacing(folder / FILE_NAME) as file:
        file.write(msgspec.json.format(msgspec.json.encode(answer), indent=1) + b"\n")


def inside_lines(answer: InsideAnswer, width: int) -> Iterator[str]:
    """Yield the lines of a screen."""
    for number, kernel in enumerate(answer.kernels):
        yield from ("",) if number else ()
        yield from _kernel_lines(kernel, width)


def _kernel_lines(kernel: MeasuredKernel, width: int) -> Iterator[str]:
    yield formatting.start(printable(kernel.kernel), width)
    median, total = map(formatting.time_text, (kernel.step_ns, kernel.total_ns))
    launches = "1 launch" if kernel.launches == 1 else f"{kernel.launches} launches"
    all_of_them = f", {total}" if kernel.launches > 1 else ""
    yield f"  {median} a launch ({launches} in the recorded steps{all_of_them})"
    if kernel.whole_ns is not None:
        yield f"  {_alone(kernel)}"
    if kernel.samples is not None:
        yield f"  by {kernel.samples:,} samples of its instructions in the step"
    if any(each.saved_ns is not None or each.time_ns for each in kernel.parts):
        yield from _part_lines(kernel, width)
    if kernel.reason:
        yield formatting.start(f"  shares stay the cost model's: {kernel.reason}", width)


def _alone(kernel: MeasuredKernel) -> str:
    cold, warm = (
        "?" if each is None else formatting.time_text(each)
        for each in (kernel.cold_ns, kernel.warm_ns)
    )
    if kernel.is_cold:
        return f"alone {cold} with a cold L2 cache, as measured here; {warm} with a warm one"
    return f"alone {warm} with a warm L2 cache, as measured here; {cold} with a cold one"


def _part_lines(kernel: MeasuredKernel, width: int) -> Iterator[str]:
    nodes = list(map(_node, kernel.parts))
    places = [_place(each) for each in kernel.parts]
    most = _WIDE_NAME if width >= _WIDE else _NARROW_NAME
    node_width, place_width = (
        min(max(*map(len, names), _LEAST_NAME), most) for names in (nodes, places)
    )
    is_sampled = kernel.route is InsideRoute.SAMPLES
    columns = _SAMPLED if is_sampled else _NUMBERS
    heads = columns.format(*(_SAMPLED_HEADS if is_sampled else _HEADS))
    yield f"  {heads}{'node':{node_width}}  {'line':{place_width}}  code"
    for part, node, place in zip(kernel.parts, nodes, places, strict=True):
        numbers = columns.format(*(_sampled if is_sampled else _numbers)(kernel, part))
        names = f"{formatting.start(node, node_width):{node_width}}  "
        names += f"{formatting.path_end(place, place_width):{place_width}}  "
        text = printable(part.reason or part.code or "")
        yield formatting.start(f"  {numbers}{names}{text}", width).rstrip()
    if kernel.hidden_ns and kernel.whole_ns:
        hidden = formatting.time_text(kernel.hidden_ns)
        percent = formatting.percent_text(kernel.hidden_ns, kernel.whole_ns)
        yield f"  {hidden} ({percent}) is shared, or hidden: no single row's removal saves it"


def _node(part: KernelPart) -> str:
    does = "store " if part.is_store else "load " if part.is_load else ""
    return does + ", ".join(part.nodes)


def _numbers(kernel: MeasuredKernel, part: KernelPart) -> tuple[str, str, str, str]:
    share, model = _shares(kernel, part)
    if part.saved_ns is None or kernel.whole_ns is None:
        return "", "", share, model
    without = formatting.time_text(max(kernel.whole_ns - part.saved_ns, 0))
    saves = formatting.time_text(part.known_saved_ns) if part.known_saved_ns else "nothing"
    return without, saves, share, model


def _sampled(kernel: MeasuredKernel, part: KernelPart) -> tuple[str, str, str, str]:
    share, model = _shares(kernel, part)
    return formatting.time_text(part.time_ns), share, model, _wait(part)


def _shares(kernel: MeasuredKernel, part: KernelPart) -> tuple[str, str]:
    share = formatting.percent_text(part.time_ns, kernel.step_ns) if part.time_ns else ""
    return share, "" if part.modelled_share is None else f"{100 * part.modelled_share:.1f}%"


def _wait(part: KernelPart) -> str:
    """The largest reason why a part's instructions were not issued, with its share."""
    waits = [each for each in part.stalls if each[0] not in _ISSUED]
    if not waits:
        return ""
    reason, time_ns = waits[0]
    return f"{_WAITS.get(reason, printable(reason))} {100 * time_ns / part.time_ns:.0f}%"


def _place(part: KernelPart) -> str:
    return "" if part.file is None or part.line is None else f"{Path(part.file).name}:{part.line}"


def summary(kernels: Sequence[MeasuredKernel]) -> str:
    """Return how many kernels have measured shares."""
    measured = sum(bool(each.sites) for each in kernels)
    return f"{measured} of {len(kernels)} kernels have measured shares in place of the cost model's"
