"""Columns of tables: dtypes, arrays, and what each name means in every table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiler_ext.exporters.tables.table import (
    BOOL,
    FLOAT,
    INT,
    TEXT,
    AnyColumn,
    Dtype,
    Numbers,
    Table,
    gather,
    numbers,
)
from profiler_ext.records.compiles import CompilePhase
from profiler_ext.records.events import Interned, Ints, MaskedInts
from profiler_ext.records.vocabulary import Phase
from profiler_ext.rooflines.rooflines import MaskedFloats

_UNITS = (
    ("_ns", "ns"),
    ("_bytes", "bytes"),
    ("_gb_per_s", "GB/s"),
    ("_tflop_per_s", "TFLOP/s"),
    ("_flops", "operations"),
    ("fraction", "0 to 1"),
    ("share", "0 to 1"),
    ("mfu", "0 to 1"),
    ("_occupancy", "0 to 1"),
    ("_value", "0 to 1"),
)
_PHASE_NAMES = frozenset(each.value for each in Phase)
_FIRST = "0.1.0"
_OF_THE_FIRST = """
rank launch step name kernel kind device stream start_ns duration_ns phase graph compile_id
call_site kernel_source process_group correlation external_id level evidence gap est_bytes
est_flops est_gb_per_s est_tflop_per_s est_peak_fraction node aten_op seq_nr autograd_backward
forward_node file line function code user_file user_line module module_class annotation share
scope category fraction steps per_step_ns ranks key fx_nodes call_sites cache_state cache_detail
compile_ns output_module launches inclusive_ns SeqNr OrigAten SrcFn forward backward recompute
gradient_accumulation optimizer other
"""


def whole(values: Ints | MaskedInts) -> Numbers:
    """Return integers as ``Int64``; masked ones are absent."""
    return numbers(values, INT)


def real(values: MaskedFloats) -> Numbers:
    """Return floats as ``Float64``; masked ones are absent."""
    return numbers(values, FLOAT)


def text(column: Interned, absent: str | None = None) -> AnyColumn:
    """Return an interned column as ``string``."""
    return gather([None if s == absent else s for s in column.strings], column.codes, TEXT)


def repeated(value: Any, rows: int, dtype: Dtype) -> AnyColumn:
    """Return a column of one repeated value."""
    return gather([value], np.zeros(rows, np.int32), dtype)


def ratio(part: Ints, total: Ints | int) -> Numbers:
    """Return ``part / total`` as ``Float64``; absent where ``total`` is zero."""
    totals = np.broadcast_to(np.asarray(total, np.int64), part.shape)
    nothing = totals == 0
    return Numbers(part / np.where(nothing, 1, totals), nothing, FLOAT)


def frame(columns: Mapping[str, AnyColumn]) -> Table:
    """Return a table of these columns, with the schema version."""
    return Table(dict(columns))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str  # times and sizes end in their unit
    dtype: Dtype  # values may be absent
    description: str  # shown to users
    since: str = "0.2.0"  # package version

    @property
    def unit(self) -> str:
        """The unit of its numbers, by the end of its name; phase times are in ns."""
        if self.dtype not in (INT, FLOAT):
            return ""
        ends = (unit for end, unit in _UNITS if self.name.endswith(end))
        return "ns" if self.name in _PHASE_NAMES else next(ends, "")


_PHASES = (Column(each.value, INT, f"device time of the phase {each.label}") for each in Phase)
_COMPILE_PHASES = (
    Column(f"{each}_ns", INT, f"how much of the compile was {each.label}") for each in CompilePhase
)
_EVERY = (
    Column("rank", INT, "the process's number among those that train together"),
    Column("launch", INT, "the launch's number on its rank"),
    Column("step", INT, "the profiled step that enqueued it; absent outside of them"),
    Column("name", TEXT, "the name of the device's event"),
    Column("kernel", TEXT, "Inductor's name of the kernel, or the event's"),
    Column("kind", TEXT, "what the launch, or the memory, is"),
    Column("device", INT, "the device's number"),
    Column("stream", INT, "the stream that it ran on"),
    Column("start_ns", INT, "when it began on the trace's clock"),
    Column("duration_ns", INT, "how long it, or its part, took the device"),
    Column("phase", TEXT, "part of the training step; of a launch the one with most of its time"),
    Column("graph", TEXT, "key of the compiled graph that launched it"),
    Column("compile_id", TEXT, "torch's number of the compile, such as 0/0"),
    Column("call_site", TEXT, "number of the call in the generated wrapper, a path where nested"),
    Column("kernel_source", TEXT, "path of the generated module that holds the kernel"),
    Column("process_group", TEXT, "the group that a collective was called on"),
    Column("correlation", INT, "the trace's number that ties a launch to its call"),
    Column("external_id", INT, "the trace's number of the op that launched it"),
    Column("level", TEXT, "how precisely it is attributed"),
    Column("evidence", TEXT, "the rule that attributed it"),
    Column("mechanism", TEXT, "by which way the line was found; of a launch its largest part's"),
    Column("gap", TEXT, "why it is not attributed further"),
    Column("share_evidence", TEXT, "the rule that split it among the nodes of its kernel"),
    Column("grid", TEXT, "how many blocks of threads: 128x1x1; of a sum where all are alike"),
    Column("block", TEXT, "how many threads a block has; of a sum where all are alike"),
    Column("registers_per_thread", INT, "registers of one thread"),
    Column("shared_memory_bytes", INT, "shared memory of one block, static and dynamic"),
    Column("est_occupancy", FLOAT, "the trace's estimate of the achieved occupancy, 0 to 1"),
    Column("input_shapes", TEXT, "the tensors that the op was given, where shapes were recorded"),
    Column("min_ns", INT, "the shortest launch, all its lines counted"),
    Column("median_ns", INT, "the median launch, all its lines counted"),
    Column("max_ns", INT, "the longest launch, all its lines counted"),
    Column("est_bytes", INT, "estimate of the bytes that it moves, each once"),
    Column("est_flops", INT, "estimate of the floating-point operations that it does"),
    Column("est_gb_per_s", FLOAT, "the bytes over the time"),
    Column("est_tflop_per_s", FLOAT, "the operations over the time"),
    Column("est_attainable_tflop_per_s", FLOAT, "the operations over the time at its roofline"),
    Column("est_peak_fraction", FLOAT, "the part of its time that it takes at its roofline"),
    Column("unit", TEXT, "the arithmetic unit that it used; each has its own peak"),
    Column("unit_evidence", TEXT, "how that is known"),
    Column("bound", TEXT, "what keeps it from being shorter; of a sum, most of its time"),
    Column("roofline_ns", INT, "what it takes at least, by the peaks of its device and unit"),
    Column("could_save_ns", INT, "how much sooner it could be over, by the roofline model"),
    Column("wall_ns", INT, "wall time of the step, once for each device"),
    Column("busy_ns", INT, "how long devices were busy in the step, each device once"),
    Column("step_kind", TEXT, "of inference, what the step does, by the tokens of its calls"),
    Column("batch", INT, "sequences of the last call with tokens in the step, beams among them"),
    Column("length", INT, "tokens of each of these sequences, padding included"),
    Column("tokens", INT, "batch times length"),
    Column("tokens_per_s", INT, "tokens over the recorded step, with the profiler on"),
    Column("mfu", FLOAT, "the part of the step that the model's operations take at their peaks"),
    Column("known_fraction", FLOAT, "the part of these operations whose unit and peak are known"),
    Column("counted_fraction", FLOAT, "the part of the products' time whose operations are known"),
    Column("node", TEXT, "the FX node in the compiled graph"),
    Column("aten_op", TEXT, "the ATen op before decomposition"),
    Column("seq_nr", INT, "torch's sequence number of the node"),
    Column("autograd_backward", BOOL, "torch's tag of backward nodes; absent where it has none"),
    Column("forward_node", TEXT, "the forward node, or eager op, that it differentiates"),
    Column("forward_evidence", TEXT, "the rule that found that, or why there is none"),
    Column("file", TEXT, "the innermost source file outside torch"),
    Column("line", INT, "the line there"),
    Column("function", TEXT, "the function there"),
    Column("code", TEXT, "the text of the line"),
    Column("user_file", TEXT, "the innermost source file under the user's own folders"),
    Column("user_line", INT, "the line there"),
    Column("caller_file", TEXT, "source file of the call whose op runs another graph"),
    Column("caller_line", INT, "the line there"),
    Column("module", TEXT, "the module's path; empty (in CSV a word) for the model itself"),
    Column("module_class", TEXT, "the module's class"),
    Column("annotation", TEXT, "the user's own labels"),
    Column("share", FLOAT, "the part of the launch's time"),
    Column("scope", TEXT, "whether compiled graphs launched it, or what ran outside of them"),
    Column("category", TEXT, "what it was attributed to, or the gap"),
    Column("fraction", FLOAT, "the part of the table's total time"),
    Column("steps", INT, "over how many steps it sums"),
    Column("per_step_ns", FLOAT, "the mean of a step, on one rank"),
    Column("ranks", INT, "over how many ranks it sums"),
    Column("key", TEXT, "the graph's key in torch's cache"),
    Column("fx_nodes", INT, "how many FX nodes the graph has"),
    Column("call_sites", INT, "how many calls its wrapper makes"),
    Column("cache_state", TEXT, "how it came to be in the process"),
    Column("cache_detail", TEXT, "why, in torch's words"),
    Column("compile_ns", INT, "how long it took to compile"),
    Column("output_module", TEXT, "path of its generated module"),
    Column("launches", INT, "how many launches have a part in it"),
    Column("inclusive_ns", INT, "the total time of those launches"),
    Column("collective", TEXT, "what the collective does, as torch calls it"),
    Column("exposed_ns", INT, "how long the device ran nothing else at the same time"),
    Column("overlapped_ns", INT, "the rest of the time"),
    Column("waiting_ns", INT, "how long it waited for the last rank; absent where not known"),
    Column("transfer_ns", INT, "the rest of the time; absent where not known"),
    Column("cause", TEXT, "why the device ran nothing"),
    Column("cpu_activity", TEXT, "the CPU's event then; absent for Python outside of any op"),
    Column("spans", INT, "how many idle spans have a part in it"),
    Column("rule", TEXT, "the rule that found it: a section of findings.md"),
    Column("summary", TEXT, "the problem, in one sentence"),
    Column("est_saving_ns", INT, "time that the remedy can save, per `saving_per`"),
    Column("total_ns", INT, "what the fraction is of: usually the wall time of a step"),
    Column("est_saving_fraction", FLOAT, "est_saving_ns as a part of total_ns"),
    Column("saving_per", TEXT, "what the time is counted for: step, window, process, or unknown"),
    Column("confidence", TEXT, "how the time is known: measured, estimated or upper_bound"),
    Column("evidence", TEXT, "the figures that it rests on, as JSON"),
    Column("remedy", TEXT, "what to try"),
    Column("overlaps_with", TEXT, "rules of larger findings that count most of the same time"),
    Column("compilation", INT, "the compilation's number in its process"),
    Column("compile_kind", TEXT, "what torch was at when it compiled"),
    Column("resumed", BOOL, "the function goes on there after a graph break"),
    *_COMPILE_PHASES,
    Column("profiled_ns", INT, "how much of it lies in profiled steps"),
    Column("recompile_reason", TEXT, "the guard that failed, of the newest code for it"),
    Column("recompiles", TEXT, "compile id of that code; absent of a first compile"),
    Column("graph_breaks", INT, "how often Dynamo could not go on in it"),
    Column("break_reason", TEXT, "why, for the first time, in torch's words"),
    Column("break_file", TEXT, "the program's file there"),
    Column("break_line", INT, "the program's line there"),
    Column("failure", TEXT, "why it gave nothing, in torch's words"),
    Column("graphs", INT, "how many compiled graphs became ready in it"),
    Column("as_steps", FLOAT, "its time over that of a step of the graphs that it made"),
    Column("owner", TEXT, "the name of what holds the memory: a parameter, a gradient, a state"),
    Column("blocks", INT, "how many blocks of the allocator are alive at the peak"),
    Column("peak_bytes", INT, "how many bytes are alive at the peak of the step"),
    Column("allocated_bytes", INT, "how many bytes the step allocates, freed again or not"),
    Column("allocations", INT, "how many blocks the step allocates"),
    Column("lifetime_ns", INT, "how long the longest lives; absent if it is older or outlives all"),
    Column(
        "life_reason", TEXT, "why it is still allocated at the peak; absent if that is not known"
    ),
    Column("needed_by", TEXT, "what has still to read it: nodes of the backward, or kernels"),
    Column("needed_file", TEXT, "the file of the line of the first of these"),
    Column("needed_line", INT, "the line of the first of these"),
    Column("held_by", TEXT, "its owners, or the variable, attribute or container that holds it"),
    Column("life_evidence", TEXT, "how the reason is known"),
    Column("at_phase", TEXT, "the phase of the allocation with which memory is at its peak"),
    Column("at_file", TEXT, "the source file of that allocation"),
    Column("at_line", INT, "the line there"),
    Column("at_rounding_bytes", INT, "by how much the blocks there are larger than asked for"),
    Column("at_reserved_bytes", INT, "how many bytes the allocator has reserved at the peak"),
    Column("at_fragments_bytes", INT, "of these: free in segments that have blocks in use"),
    Column("at_cached_bytes", INT, "of these: in segments without a block in use"),
    Column("at_pools_bytes", INT, "of these: free in the pools of CUDA graphs"),
    Column("at_awaiting_bytes", INT, "of these: freed, and still in use by a stream"),
    Column("at_outside_bytes", INT, "in use on the device outside the allocator, by the driver"),
    Column("buffer", TEXT, "Inductor's name of a buffer that passes from kernel to kernel"),
    Column("read_bytes", INT, "what the kernel that loads it loads of it"),
    Column("written_bytes", INT, "what the kernel that stores it stores of it"),
    Column("barrier", TEXT, "why the two kernels were not fused"),
    Column("reason", TEXT, "the same in the words of torch's scheduler, where it gave some"),
    Column("passes", INT, "how often it was stored and loaded in the profiled steps"),
    Column("could_save_per_step_ns", FLOAT, "what it takes in a step to store and load it"),
    Column("reader_kernel", TEXT, "the kernel that loads it"),
    Column("reader_call_site", TEXT, "the call site of the kernel that loads it"),
    Column("reader_file", TEXT, "the source file of the kernel that loads it"),
    Column("reader_line", INT, "the line there"),
    Column("reader_code", TEXT, "the text of that line"),
    Column("reader_module", TEXT, "the module of the kernel that loads it"),
    Column("reader_duration_ns", INT, "how long the kernel that loads it took"),
    Column("SeqNr", INT, "torch's sequence number, counted from the graph's first node"),
    Column("OrigAten", TEXT, "the ATen op before decomposition"),
    Column("SrcFn", TEXT, "the innermost function of the model"),
    *_PHASES,
)
_DATED = (
    replace(column, since=_FIRST) if column.name in _OF_THE_FIRST.split() else column
    for column in _EVERY
)
COLUMNS = {column.name: column for column in _DATED}
