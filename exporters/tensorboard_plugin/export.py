"""The TensorBoard log folder: a copy of the trace for torch-tb-profiler, and our view's file.

The view's file has a name that torch-tb-profiler does not look for.

That plugin gives a kernel's time to the operator whose ``External id`` its launch call carries, and
knows launch calls only by an old category. So the copy renames the category and splits each call in
one part per launch, wrapped in its modules and an operator named after the fused source ops and
line. No other reader should get this copy. The plugin was removed upstream:
https://github.com/pytorch/kineto/issues/1340.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from profiler_ext.exporters import launch_parts
from profiler_ext.exporters.extras import TENSORBOARD
from profiler_ext.exporters.tensorboard_plugin.writing import write_attribution
from profiler_ext.exporters.views.modules import parents
from profiler_ext.kineto.names import CALL_CATEGORIES, Arg, Category
from profiler_ext.kineto.raw_events import edited, microseconds
from profiler_ext.kineto.recording import write_trace
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.vocabulary import Level, Phase

SUFFIX = ".pt.trace.json.gz"
_PLUGIN_CALL = "Runtime"
# The plugin counts a step's range on the GPU as a second step, and cannot load an event without
# category.
_RENAMED: dict[str, str] = {
    **dict.fromkeys(CALL_CATEGORIES, _PLUGIN_CALL),
    Category.GPU_USER_ANNOTATION: "gpu_annotation",
    "": "other",
}
_FIRST_FREE_ID = 1 << 40
_OPS_SHOWN = 3
# The plugin adds times as doubles, so parts that touch would seem to overlap.
_APART_NS = 4


def how_to_view(log_dir: Path) -> tuple[str, ...]:
    """Return the commands that install TensorBoard, if needed, and show the folder."""
    see = f"see it with: tensorboard --logdir {shlex.quote(str(log_dir))}"
    if TENSORBOARD.is_there:
        return (see,)
    get = f"TensorBoard is not installed into this Python; get it with: {TENSORBOARD.install}"
    return get, see


def export_tensorboard(analysis: Analysis, log_dir: Path, roots: Iterable[str | Path] = ()) -> Path:
    """Write a trace copy for torch-tb-profiler, and our view's data, to a log folder."""
    worker = f"rank{analysis.recording.settings.rank}"
    path = log_dir / f"{worker}{SUFFIX}"
    write_trace(path, analysis.recording.trace.header, _events(analysis))
    write_attribution(analysis, log_dir, worker, roots)
    return path


def export_ranks(
    analyses: Sequence[Analysis], log_dir: Path, roots: Iterable[str | Path] = ()
) -> Path:
    """Write several ranks to a log folder."""
    for analysis in analyses:
        export_tensorboard(analysis, log_dir, roots)
    return log_dir


def _events(analysis: Analysis) -> Iterator[bytes]:
    copy, raw = _StockTrace(analysis), analysis.recording.trace.raw
    for position, event in enumerate(raw.at(np.arange(len(raw)))):
        if copy.is_changed[position]:
            yield from copy.of(position, event)
        else:
            yield event


class _Slot(NamedTuple):
    """The place of a launch on its CPU thread."""

    pid: int | str
    tid: int | str
    start_ns: int
    duration_ns: int

    def members(self) -> bytes:
        """Return the JSON members of an event in the slot."""
        times = {"ts": microseconds(self.start_ns), "dur": microseconds(self.duration_ns)}
        return msgspec.json.encode({"pid": self.pid, "tid": self.tid, **times})[1:-1]


class _StockTrace:
    """Rewrites the trace's events for torch-tb-profiler."""

    def __init__(self, analysis: Analysis) -> None:
        trace, launches = analysis.recording.trace, analysis.launches
        self._columns, self._launches = trace.events, launches
        self._labels = _Labels(analysis)
        self._calls = _relabelled_calls(analysis)
        self._in_calls = {row: len(rows) for rows in self._calls.values() for row in rows}
        self._launch_at = {row: launch for launch, row in enumerate(launches.event.tolist())}
        self._renamed = [_RENAMED.get(name) for name in trace.events.category.strings]
        self._row_at = np.full(len(trace.raw), -1)
        self._row_at[trace.events.position] = np.arange(len(trace.events))
        changed = trace.events.category.where(*_RENAMED)
        changed[launches.event] = True
        self.is_changed = bytearray(len(trace.raw))  # by position
        for position in trace.events.position[changed].tolist():
            self.is_changed[position] = True

    def of(self, position: int, raw: bytes) -> Iterator[bytes]:
        """Yield the copy's events for one event."""
        event = int(self._row_at[position])
        launch = self._launch_at.get(event)
        category = self._renamed[self._columns.category.codes[event]]
        if event in self._calls:
            yield from self._call(raw, event)
        elif launch in self._in_calls:
            yield edited(raw, {}, self._ids(launch))
        elif launch is not None and self._runs_on_cpu(launch):
            yield from self._labels.wrapped(launch, self._slot(event, 0, 1))
            yield raw
        else:
            yield raw if category is None else edited(raw, {"cat": category})

    def _call(self, raw: bytes, event: int) -> Iterator[bytes]:
        rows = self._calls[event]
        for number, row in enumerate(rows):
            slot = self._slot(event, number, len(rows))
            yield from self._labels.wrapped(row, slot)
            times = {"ts": microseconds(slot.start_ns), "dur": microseconds(slot.duration_ns)}
            yield edited(raw, {"cat": _PLUGIN_CALL, **times}, self._ids(row))

    def _ids(self, row: int) -> dict[str, object]:
        """Return the ids that link a part of a call to its device event."""
        ids: dict[str, object] = {Arg.EXTERNAL_ID: _FIRST_FREE_ID + row}
        if self._in_calls[row] > 1:
            ids[Arg.CORRELATION] = _FIRST_FREE_ID + row
        return ids

    def _slot(self, event: int, number: int, of: int) -> _Slot:
        columns = self._columns
        thread = columns.threads[columns.thread[event]]
        start, duration = int(columns.start_ns[event]), int(columns.duration_ns[event])
        begin, end = (start + duration * part // of for part in (number, number + 1))
        apart = _APART_NS if of > 1 else 0
        return _Slot(thread.pid, thread.tid, begin, max(0, end - begin - apart))

    def _runs_on_cpu(self, row: int) -> bool:
        category = self._columns.category[int(self._launches.event[row])]
        return category == Category.CPU_OP and self._launches.level[row] == Level.LINE


class _Label(NamedTuple):
    """An event around a launch without its slot: what precedes that, and its arguments."""

    before: bytes
    args: bytes


class _Labels:
    """Makes the events around a launch: modules, and an operator that names its source."""

    def __init__(self, analysis: Analysis) -> None:
        self._launches = analysis.launches
        self._places = analysis.places
        self._models = analysis.recording.settings.models
        self._parts = launch_parts.PartColumns(analysis)
        self._keys = self._parts.keys()
        self._module_ids: dict[str, int] = {}
        self._known: dict[tuple[object, ...], tuple[list[_Label], _Label]] = {}

    def wrapped(self, row: int, slot: _Slot) -> Iterator[bytes]:
        """Yield the events around one launch, outermost first.

        All have the same times; the plugin nests them in file order.
        """
        launches = self._launches
        codes = (column.codes[row] for column in (launches.phase, launches.gap, launches.name))
        key = (self._keys[row], *codes)
        if key not in self._known:
            self._known[key] = self._make_labels(row)
        modules, operator = self._known[key]
        members = slot.members()
        for label in modules:
            yield b"".join((label.before, members, b',"args":{', label.args))
        external_id = str(_FIRST_FREE_ID + row).encode()
        yield b"".join(
            (operator.before, members, b',"args":{"External id":', external_id, operator.args)
        )

    def _make_labels(self, row: int) -> tuple[list[_Label], _Label]:
        places = [self._places[place] for place in self._parts.of(row)]
        phase = self._launches.phase[row]
        modules = list(self._modules(places[0] if places else Place(), phase))
        stack = {Arg.CALL_STACK: _call_stack(places[0])} if places and places[0].stack else {}
        stack_json = b"," + msgspec.json.encode(stack)[1:] if stack else b"}"
        ops = launch_parts.distinct(places, launch_parts.op_text) or [
            self._launches.gap[row] or self._launches.name[row]
        ]
        more = [f"{len(ops) - _OPS_SHOWN} more"] if len(ops) > _OPS_SHOWN else []
        lines = launch_parts.distinct(places[:1], launch_parts.position_text)
        name = " @ ".join([f"[{phase}] " + " + ".join(ops[:_OPS_SHOWN] + more), *lines])
        return modules, _Label(_before(Category.CPU_OP, name), stack_json + b"}")

    def _modules(self, place: Place, phase: str) -> Iterator[_Label]:
        if place.module is None:
            return
        parent: int | None = None
        top = [] if self._models else [launch_parts.THE_MODEL]
        for path in (*top, *parents(place.module)[1:]):
            name = f"nn.Module: {path}" + ("" if phase == Phase.FORWARD else f".{phase}")
            # One id for every call, or the plugin's tree would repeat the module per call.
            number = self._module_ids.setdefault(name, len(self._module_ids))
            args: dict[str, object] = {
                Arg.PYTHON_ID: _FIRST_FREE_ID + number,
                Arg.PYTHON_PARENT_ID: parent,
                Arg.PYTHON_MODULE_ID: number,
            }
            before = _before(Category.PYTHON_FUNCTION, name)
            yield _Label(before, msgspec.json.encode(args)[1:] + b"}")
            parent = _FIRST_FREE_ID + number


def _before(category: str, name: str) -> bytes:
    return msgspec.json.encode({"ph": "X", "cat": category, "name": name})[:-1] + b","


def _call_stack(place: Place) -> str:
    frames = (f"{frame.file}({frame.line}): {frame.function}" for frame in reversed(place.stack))
    return ";".join(frames)


def _relabelled_calls(analysis: Analysis) -> dict[int, list[int]]:
    """Return the launches of each call with a known line, by the call's row."""
    events, launches = analysis.recording.trace.events, analysis.launches
    calls = np.flatnonzero(events.category.where(*CALL_CATEGORIES))
    row_of = dict(zip(events.correlation[calls].tolist(), calls.tolist(), strict=True))
    on_cpu = events.category.where(Category.CPU_OP)[launches.event].tolist()
    launches_by_call: dict[int, list[int]] = {}
    for row, correlation in enumerate(launches.correlation.tolist()):
        if correlation in row_of and not on_cpu[row]:
            launches_by_call.setdefault(row_of[correlation], []).append(row)
    has_line = launches.level.where(Level.LINE).tolist()
    return {
        call: rows for call, rows in launches_by_call.items() if any(has_line[row] for row in rows)
    }
