"""Times, names, phases and breakdown rows as text, and the colours of phases.

Colours are distinguishable with any of the three kinds of colour blindness, and contrast with
white, the dark page, and (``middle``) both; tests/exporters/test_colors.py measures it. Perfetto
takes no colours from a trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from statistics import median_low
from typing import Any

from profiler_ext.errors import UsageError
from profiler_ext.exporters.table_kinds import TableKind
from profiler_ext.kineto.names import graph_key, is_graph_marker
from profiler_ext.printable import printable
from profiler_ext.records import vocabulary
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.memory import MemoryGap, MemoryKind, UnusedKind
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.recording import Settings

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_CUTLASS = re.compile(r"cutlass::(?:Kernel\d*|device_kernel)<(?:cutlass::)?(\w+)")
_NAMESPACES = re.compile(
    r"\b(?:at::native|at::cuda|c10|cub|thrust|cublasLt|detail)::|\(anonymous namespace\)::"
)
_ENDS = re.compile(r"(?:_execute\w*_kernel)?_{1,2}5x_cublas$")
_PREFIXES = ("extern_kernels.", "torch.ops.aten.", "torch.ops.", "aten.")
_CATEGORIES = {
    term.value: term.label for each in (vocabulary.BreakdownCategory, GapReason) for term in each
}
_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))
PYTHON = "Python outside of any op"
_MAX_CHARS = 48
_THREE, _FOUR = (Context(prec=digits, rounding=ROUND_HALF_UP) for digits in (3, 4))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


@dataclass(frozen=True, slots=True)
class Color:
    """A colour, as ``#rrggbb``."""

    light: str  # on a light page
    dark: str  # on a dark page
    middle: str  # for unknown backgrounds: terminals, notebooks


PHASE_COLORS: Mapping[vocabulary.Phase, Color] = {
    vocabulary.Phase.FORWARD: Color("#2464dc", "#8ab4ff", "#5294fa"),
    vocabulary.Phase.BACKWARD: Color("#a9502c", "#d64a26", "#c8330f"),
    vocabulary.Phase.RECOMPUTE: Color("#c47f0c", "#f7b02a", "#c4860a"),
    vocabulary.Phase.GRADIENT_ACCUMULATION: Color("#66298c", "#a53fe0", "#8e48d3"),
    vocabulary.Phase.OPTIMIZER: Color("#0f4a33", "#c8f2da", "#1e7a5d"),
    vocabulary.Phase.OTHER: Color("#868d95", "#8a9098", "#898e96"),
}
SCOPE_COLORS: Mapping[vocabulary.Scope, Color] = {
    vocabulary.Scope.COMPILED: Color("#334a66", "#b9c9de", "#5f7ea6"),
    vocabulary.Scope.EAGER: Color("#6f88ab", "#7189ab", "#8a94a3"),
    vocabulary.Scope.COMMUNICATION: Color("#0d7d86", "#3fb5be", "#128f99"),
    vocabulary.Scope.IDLE: Color("#c9ced4", "#4a5057", "#9aa1a9"),
}


_COLORS = {str(key): color for key, color in (*PHASE_COLORS.items(), *SCOPE_COLORS.items())}


def style_sheet() -> str:
    """Return CSS with a variable and a class for each phase and scope."""
    light = _variables(lambda color: color.light)
    dark = _variables(lambda color: color.dark)
    on_dark = f"@media screen and (prefers-color-scheme: dark) {{ {dark} }}"
    return f"{light}\n{on_dark}\n{_classes()}\n"


def scheme_style_sheet() -> str:
    """Return the same for a page that sets ``color-scheme``, as TensorBoard does."""
    return f"{_variables(lambda color: f'light-dark({color.light}, {color.dark})')}\n{_classes()}\n"


def _variables(value: Callable[[Color], str]) -> str:
    return f":root {{{''.join(f' --{name}: {value(color)};' for name, color in _COLORS.items())} }}"


def _classes() -> str:
    return "\n".join(
        f".{name} {{ background: var(--{name}); fill: var(--{name}); }}" for name in _COLORS
    )


def middle(text: str, width: int) -> str:
    """Return a name cut in its middle: ``triton_poi_…_view_5``."""
    if len(text) <= width:
        return text
    after = (width - 1) // 2
    return text[: max(width - 1 - after, 0)] + _ELLIPSIS + text[len(text) - after :]


def path_end(text: str, width: int) -> str:
    """Return the end of a path; of a remark its start."""
    if len(text) <= width or text.startswith("("):
        return start(text, width)
    return _ELLIPSIS + text[len(text) - width + 1 :]


def start(text: str, width: int) -> str:
    """Return the start of a line of code."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + _ELLIPSIS


def short_kernel(name: str) -> str:
    """Return a kernel's name without result type, parameters and torch's namespaces."""
    if (matched := _CUTLASS.search(name)) is not None:
        return matched[1]
    plain = _ENDS.sub("", _NAMESPACES.sub("", name.removeprefix("void ")))
    return plain[: _parameters(plain)].rstrip() or name


def kernel_text(row: Mapping[str, Any]) -> str:
    """Return a kernel's name; of a library call also the device's kernel."""
    kernel, own = row["kernel"], row["name"]
    if own is None or own == kernel:
        return short_kernel(kernel)
    if own.endswith(kernel) or kernel.startswith(("triton_", "cpp_")):
        return str(kernel)
    prefix = next((each for each in _PREFIXES if kernel.startswith(each)), "")
    return f"{kernel.removeprefix(prefix)}: {short_kernel(own)}"


def _parameters(name: str) -> int:
    """Return where the parameters begin: a bracket after a name, outside of template arguments."""
    depth = 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not name[:at].endswith(" "):
            return at
    return len(name)


PHASE_STYLES = {phase: color.middle for phase, color in PHASE_COLORS.items()}


def require_top(top: int) -> int:
    """Return the number of rows to show.

    Raises:
        UsageError: It is less than 1.
    """
    if top < 1:
        raise UsageError(f"cannot show the top {top} rows; ask for 1 or more")
    return top


def time_text(duration_ns: float) -> str:
    """Return a time with three digits: ``12.3 us``."""
    for unit, size in _UNITS:
        if duration_ns >= 0.9995 * size:
            value = duration_ns / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{duration_ns:.0f} ns"


def signed_time_text(duration_ns: float) -> str:
    """Return a time that may be negative."""
    return f"-{time_text(-duration_ns)}" if duration_ns < 0 else time_text(duration_ns)


def per_step_text(duration_ns: float, steps: int) -> str:
    """Return a sum over steps as a mean: ``12.3 us a step``."""
    return time_text(duration_ns) if steps < 2 else f"{time_text(duration_ns / steps)} a step"


def range_text(least_ns: float, most_ns: float) -> str:
    """Return a range of times: ``132 - 135 us``."""
    least, most = time_text(least_ns), time_text(most_ns)
    (number, unit), (_, of_most) = least.split(), most.split()
    return f"{number if unit == of_most else least} - {most}"


def percent_text(part: float, total: float) -> str:
    """Return a percentage, ``""`` without a total."""
    return f"{100 * part / total:.1f}%" if total else ""


def with_recorded_text(unrecorded: str, recorded: str) -> str:
    """Return the value in training, and the recorded one if it differs."""
    return unrecorded if unrecorded == recorded else f"{unrecorded} ({recorded} as recorded)"


def short_path(path: str, settings: Settings) -> str:
    """Return a path relative to its root."""
    roots = (*settings.user_roots, *settings.library_roots)
    for root in sorted(roots, key=len, reverse=True):
        if path.startswith(root.rstrip("/") + "/"):
            return path[len(root.rstrip("/")) + 1 :]
    return path


def short_phase(phase: vocabulary.Phase) -> str:
    """Return a phase's short column heading."""
    return "grad. acc." if phase is vocabulary.Phase.GRADIENT_ACCUMULATION else phase.value


def gap_text(reason: str) -> str:
    """Return a gap's reason in words, an unknown one as it is."""
    return GapReason(reason).label if reason in tuple(GapReason) else reason


def size_text(size_bytes: int) -> str:
    """Return a size of three digits: ``1.25 GiB``; halves go up, as scripts round them."""
    for unit, size in _SIZES:
        if abs(size_bytes) >= size:
            value = Decimal(size_bytes) / size
            digits = _THREE if abs(value) < 1000 else _FOUR
            return f"{digits.create_decimal(value).normalize():f} {unit}"
    return f"{size_bytes} B"


def peak_text(row: Mapping[str, Any], peak_bytes: int, settings: Settings) -> str:
    """Return how high a peak of memory is, and where in the step, by a row of ``by_memory``."""
    device = "the CPU" if row["device"] is None else f"device {row['device']}"
    size = f"{size_text(peak_bytes)} ({peak_bytes:,} bytes)"
    file, phase = row["at_file"], vocabulary.Phase(row["at_phase"]).label
    place = "" if file is None else f" at {short_path(file, settings)}:{row['at_line']}"
    return f"Peak of {device}: {size} in step {row['step']}, {phase}{place}"


def reserved_text(row: Mapping[str, Any]) -> str:
    """Return what is reserved at a peak besides its blocks, and what is outside the allocator."""
    if row["at_reserved_bytes"] is None:
        return ""
    parts = {
        UnusedKind.GRAPH_POOLS: row["at_pools_bytes"],
        UnusedKind.FRAGMENTS: row["at_fragments_bytes"],
        UnusedKind.CACHED: row["at_cached_bytes"],
        UnusedKind.AWAITING: row["at_awaiting_bytes"],
    }
    besides = ", ".join(f"{size_text(size)} {kind.label}" for kind, size in parts.items() if size)
    outside, rounding = row["at_outside_bytes"], row["at_rounding_bytes"]
    return (
        f"Reserved then: {size_text(row['at_reserved_bytes'])}"
        + (f", of it {besides}" if besides else "")
        + (f", {size_text(rounding)} rounding" if rounding else "")
        + (f"; {size_text(outside)} {UnusedKind.OUTSIDE.label}" if outside else "")
    )


def memory_label(row: Mapping[str, Any], settings: Settings) -> str:
    """Return the line of a row of ``by_memory``, or what holds it, or why there is none."""
    if row["file"] is not None:
        return f"{short_path(row['file'], settings)}:{row['line']}"
    if row["gap"] == MemoryGap.HELD_BY_NAME or row["kind"] == MemoryKind.WORKSPACES:
        return f"({MemoryKind(row['kind']).label})"
    return f"({row['aten_op'] or memory_gap_text(row['gap'])})"


def memory_gap_text(gap: str | None) -> str:
    """Return why a block of memory has no line, in words."""
    return MemoryGap(gap).label if gap in tuple(MemoryGap) else gap_text(gap or "no line")


def cause_text(cause: str) -> str:
    """Return an idle cause in words, an unknown one as it is."""
    return vocabulary.IdleCause(cause).label if cause in tuple(vocabulary.IdleCause) else cause


def delay_cause_text(row: Mapping[str, Any]) -> str:
    """Return what delayed a rank: an idle cause, or running."""
    return "running" if row["cause"] is None else cause_text(row["cause"])


def labels(kind: TableKind, row: Mapping[str, Any], settings: Settings) -> tuple[str, ...]:
    """Return the name columns of a summing table's row."""
    first, *others = (_name(name, row, settings) for name, _ in kind.shown)
    if row[kind.shown[0][0]] is None:
        first = f"({gap_text(row['gap']) if row.get('gap') else kind.unnamed})"
    return (first, *others)


def _activity(event: str | None) -> str | None:
    return "a compiled graph" if is_graph_marker(event or "") else event


def _name(column: str, row: Mapping[str, Any], settings: Settings) -> str:
    if column == "file" and row["file"] is not None:
        return f"{short_path(row['file'], settings)}:{row['line']}"
    if column == "cpu_activity":
        return ": ".join(filter(None, (cause_text(row["cause"]), _activity(row[column]))))
    if row[column] is None:
        return ""
    if column == "cause":
        return cause_text(row["cause"])
    if column == "rank":
        return f"rank {row['rank']}: {delay_cause_text(row)}"
    return "(the model itself)" if column == "module" and not row[column] else str(row[column])


def breakdown_label(row: Mapping[str, Any]) -> str:
    """Return a breakdown row's label."""
    text: str = _CATEGORIES.get(row["category"], row["category"])
    if row["scope"] == vocabulary.Scope.IDLE:
        return text
    is_reason = (
        row["level"] == vocabulary.Level.OP and row["category"] != vocabulary.BreakdownCategory.OP
    )
    prefix = "ops only: " if is_reason else ""
    return f"{vocabulary.Scope(row['scope']).label}: {prefix}{text}"


def cache_bypass_text(graphs: Sequence[GraphInstance]) -> str | None:
    """Return which graphs bypassed torch's caches, why, and the cost."""
    bypassing = [graph for graph in graphs if graph.cache_state is vocabulary.CacheState.BYPASS]
    traced = [g for g in graphs if g.autograd_bypass is not None and g not in bypassing]
    cost = time_text(sum(graph.compile_ns for graph in bypassing))
    why = [graph.cache_detail or "unknown" for graph in bypassing]
    parts = [
        f"{len(bypassing)} of {len(graphs)} compiled graphs bypassed torch's cache: every process "
        f"recompiles ({cost} here): {'; '.join(dict.fromkeys(why))}",
        f"{len(traced)} of {len(graphs)} compiled graphs bypassed AOTAutograd's cache: every "
        f"process retraces: {'; '.join(dict.fromkeys(map(_autograd_bypass, traced)))}",
    ]
    sentences = [
        part for part, bypassed in zip(parts, (bypassing, traced), strict=True) if bypassed
    ]
    return printable(". ".join(sentences)) or None


def _autograd_bypass(graph: GraphInstance) -> str:
    """Return torch's reason, explained for DDPOptimizer.

    It runs each bucket once on fake tensors: https://github.com/pytorch/pytorch/pull/120523.
    """
    reason = str(graph.autograd_bypass)
    is_bucket = "fakify_first_call" in reason
    return f"{reason}: torch's way with each bucket that DDPOptimizer cuts" if is_bucket else reason


def step_text(analysis: Analysis, step: Step) -> str:
    """Return a step's time, and how busy the device was."""
    lines = [line for line in analysis.breakdown if line.step == step.number]
    total = sum(line.duration_ns for line in lines)
    busy = sum(line.duration_ns for line in lines if line.scope != vocabulary.Scope.IDLE)
    text = f"step {step.number}: {time_text(step.wall_ns)}"
    return f"{text}, device busy {percent_text(busy, total)}" if total else text


def training_text(analysis: Analysis, steps_ns: Sequence[int]) -> str:
    """Return the step time before recording, and how busy the device is."""
    least, most = min(steps_ns), max(steps_ns)
    is_one = time_text(least) == time_text(most)
    times = time_text(least) if is_one else range_text(least, most)
    busy = busy_fraction(analysis, steps_ns)
    return f"{len(steps_ns)} steps without a profiler: {times}, device busy {busy:.1%}"


def busy_fraction(analysis: Analysis, steps_ns: Sequence[int]) -> float:
    """Return how busy a device is in the usual step before the recording, else in the recorded.

    Recording slows the CPU, not the device, so the device's busy time is the same in both.
    """
    busy_ns = sum(
        line.duration_ns for line in analysis.breakdown if line.scope != vocabulary.Scope.IDLE
    )
    if not steps_ns:
        return busy_ns / max(sum(line.duration_ns for line in analysis.breakdown), 1)
    devices = len({line.device for line in analysis.breakdown})
    return min(busy_ns / devices / len(analysis.steps) / median_low(steps_ns), 1.0)


class ActivityNames:
    """Short names of CPU activities; compiled graphs by number, not by key."""

    def __init__(self, graphs: Iterable[GraphInstance]) -> None:
        self._graphs = {graph.key: graph for graph in graphs if graph.key is not None}

    def short(self, activity: str | None) -> str:
        """Return a CPU activity's short name."""
        if activity is None:
            return PYTHON
        if is_graph_marker(activity):
            key = graph_key(activity)
            graph = self._graphs.get(key or "")
            if graph is None:
                return "a compiled graph"
            part = "backward" if graph.runs_backward else "forward"
            return f"compiled graph {graph.compile_id or '?'} {part}"
        is_long = len(activity) > _MAX_CHARS
        return f"{activity[: _MAX_CHARS - 1]}…" if is_long else activity
