"""The running of a model under capture: its graphs, and which node bears which constant."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch._dynamo

import profiler_ext
from profiler_ext.capture.graphs.fx_nodes import nested_nodes
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.profiling import switch
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.torch_compat import inductor, points
from profiler_ext.torch_compat.patches import installed
from verification.oracle.draft import Model
from verification.oracle.stubs import stubbed

Borne = Mapping[str, frozenset[str]]


class TimeLimitError(BaseException):
    """A model took longer than it may; nothing that torch catches on its way."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came of a model.

    Attributes:
        file: the model's source file.
        graphs: its graph instances.
        borne: of each output module, the constants that each FX node has as arguments.
        gaps: what capture said it could not see.
        error: why the model ended early, if it did.
        refused: torch alone, without capture, fails in it too.
    """

    file: Path
    graphs: tuple[GraphInstance, ...]
    borne: Mapping[str, Borne]
    gaps: tuple[Gap, ...]
    error: str | None
    refused: bool


def compile_model(model: Model, folder: Path, device: str, limit_s: int) -> Compiled:
    """Compile a model and run it forward and backward once, with capture on.

    Args:
        model: the model.
        folder: where its source file is written.
        device: ``cpu`` compiles no C++: kernels do nothing, and all they yield is zero;
            ``triton`` is the CPU with Triton code, which is written and not compiled.
        limit_s: seconds after which it is given up.
    """
    file = folder / f"model_{model.seed}.py"
    file.write_text(model.text)
    torch._dynamo.reset()
    profiler_ext.disable()
    borne: dict[str, Borne] = {}
    try:
        with _time_limit(limit_s), stubbed(device), _recording(borne):
            error = _failure(lambda: _train(_loaded(file), device))
        capture = switch.current()
        assert capture is not None
        refused = error is not None and _fails_without_capture(file, device, limit_s)
        return Compiled(file, capture.graphs, borne, capture.gaps, error, refused)
    finally:
        profiler_ext.disable()


def _failure(run: Callable[[], None]) -> str | None:
    try:
        run()
    except (Exception, TimeLimitError) as error:
        return f"{type(error).__name__}: {error}"[:2000]
    return None


def _fails_without_capture(file: Path, device: str, limit_s: int) -> bool:
    profiler_ext.disable()
    torch._dynamo.reset()
    with _time_limit(limit_s), stubbed(device):
        return _failure(lambda: _train(_loaded(file), device)) is not None


def _train(module: ModuleType, device: str) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = getattr(module, "OPTIONS", {})
    inputs = module.inputs("cuda" if device == "cuda" else "cpu")
    out = torch.compile(module.model, **options)(*inputs)
    out.backward(torch.ones_like(out))


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _recording(borne: dict[str, Borne]) -> Iterator[None]:
    """Capture, and note the constants of each graph's nodes when its artifact is made."""

    def made(call: Observed) -> Observation:
        yield
        module, gm = inductor.output_module(call["self"]), call["gm"]
        if module is not None:
            nodes = {node.name: node for node in gm.graph.nodes}
            nodes |= {name: nested.node for name, nested in nested_nodes(gm).items()}
            borne[module] = {name: _literals((n.args, n.kwargs)) for name, n in nodes.items()}

    profiler_ext.enable(cpu_events=False)
    with installed([(points.ARTIFACT_INIT, made)], Guard(strict=True)):
        yield


def _literals(value: Any) -> frozenset[str]:
    if isinstance(value, float):
        return frozenset({repr(abs(value))})
    if isinstance(value, dict):
        return _literals(tuple(value.values()))
    if isinstance(value, list | tuple):
        return frozenset().union(*(_literals(item) for item in value))
    return frozenset()


@contextlib.contextmanager
def _time_limit(limit_s: int) -> Iterator[None]:
    def expire(*_: object) -> None:
        raise TimeLimitError(f"more than {limit_s} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
