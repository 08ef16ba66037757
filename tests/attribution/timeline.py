"""How a test writes a trace as the CPU lives it: ranges within ranges, launches in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from profiler_ext.records.events import Thread, Trace
from profiler_ext.records.recording import Recording, Settings
from tests.handmade import Mark, trace

MAIN = Thread(100, 100)
AUTOGRAD = Thread(100, 101)
SETTINGS = Settings(user_roots=("/home/me",), library_roots=("/lib/site-packages",))
KERNEL_NS = 100
TICK_NS = 10


class Timeline:
    """Every range and call takes a tick to enter and to leave; every kernel 100 ns."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.thread = MAIN
        self._now_ns = 1000
        self._free_ns = 0
        self._ids = 0
        self._correlations = 0
        self._operators: list[int] = []

    @contextmanager
    def range(self, name: str, category: str = "cpu_op", **args: Any) -> Iterator[None]:
        """Write a range around what the block writes."""
        at, start_ns = len(self.marks), self._tick()
        self._ids += 1
        args = {"External id": self._ids, **args}
        self.marks.append(Mark(name, category, self.thread, start_ns, 0, args))
        if category == "cpu_op":
            self._operators.append(self._ids)
        yield
        if category == "cpu_op":
            self._operators.pop()
        duration_ns = self._tick() - start_ns
        self.marks[at] = Mark(name, category, self.thread, start_ns, duration_ns, args)

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """Write a named range."""
        with self.range(name, "user_annotation"):
            yield

    @contextmanager
    def on(self, thread: Thread) -> Iterator[None]:
        """Write what the block writes on another thread."""
        before, self.thread = self.thread, thread
        yield
        self.thread = before

    @contextmanager
    def forward(self, key: str | None, region: str = "0/0", sequence: int = 7) -> Iterator[None]:
        """Write the call of a compiled forward."""
        with (
            self.range(f"Torch-Compiled Region: {region}"),
            self.range("CompiledFunction", **{"Sequence number": sequence, "Fwd thread id": 0}),
            self.annotation(f"## Call CompiledFxGraph {key} ##"),
        ):
            yield

    @contextmanager
    def backward(self, key: str | None, sequence: int = 7) -> Iterator[None]:
        """Write the call of a compiled backward on autograd's thread."""
        args = {"Sequence number": sequence, "Fwd thread id": 1}
        name = "CompiledFunctionBackward"
        with (
            self.on(AUTOGRAD),
            self.range(f"autograd::engine::evaluate_function: {name}", **args),
            self.range(name, **args),
            self.annotation(f"## Call CompiledFxGraph {key} ##"),
        ):
            yield

    def op(self, name: str, *kernels: str, category: str = "kernel", **args: Any) -> None:
        """Write an operator that launches kernels, each by its own call."""
        with self.range(name, **args):
            for kernel in kernels:
                self.launch(kernel, category=category)

    def triton(self, name: str) -> None:
        """Write the launch of a generated kernel."""
        self.op(name, name)

    def launch(self, kernel: str, *, category: str = "kernel", stream: int = 7) -> None:
        """Write one call into the driver and the device event that it launches."""
        self._call("cuLaunchKernel", "cuda_driver")
        self._device_event(kernel, category, stream)

    def wait(self) -> None:
        """Write a call that waits until the device has run all that it was given."""
        start_ns = self._tick()
        self._now_ns = max(self._free_ns, start_ns) + TICK_NS
        took_ns = self._now_ns - start_ns
        name = "cudaStreamSynchronize"
        self.marks.append(Mark(name, "cuda_runtime", self.thread, start_ns, took_ns, {}))

    def noted_call(self, name: str = "cuLaunchKernel") -> None:
        """Write one call into the driver while a CUDA graph is recorded: it runs nothing."""
        self._call(name, "cuda_driver" if name.startswith("cuL") else "cuda_runtime")

    def replay(self, *kernels: str) -> None:
        """Write one replay of a CUDA graph; names that begin with ``Memset`` are memsets."""
        self._call("cudaGraphLaunch", "cuda_runtime")
        for kernel in kernels:
            memset = kernel.startswith("Memset")
            self._device_event(kernel, "gpu_memset" if memset else "kernel", 7)

    def recording(self, *graphs: Any) -> Recording:
        """Return the recording of what was written."""
        return Recording(self.trace(), tuple(graphs), SETTINGS)

    def trace(self) -> Trace:
        """Return the trace of what was written."""
        return trace(self.marks)

    def _tick(self) -> int:
        self._now_ns += TICK_NS
        return self._now_ns

    def _call(self, name: str, category: str) -> None:
        self._correlations += 1
        args = {"correlation": self._correlations, **self._operator()}
        self.marks.append(Mark(name, category, self.thread, self._tick(), TICK_NS // 2, args))

    def _device_event(self, name: str, category: str, stream: int) -> None:
        start_ns = max(self._free_ns, self._now_ns + TICK_NS)
        self._free_ns = start_ns + KERNEL_NS
        args = {"device": 0, "stream": stream, "correlation": self._correlations}
        args |= self._operator()
        self.marks.append(Mark(name, category, Thread(0, stream), start_ns, KERNEL_NS, args))

    def _operator(self) -> dict[str, int]:
        return {"External id": self._operators[-1]} if self._operators else {}


def without(recorded: Recording, marks: Sequence[Mark]) -> Recording:
    """Return the recording with another trace."""
    return Recording(trace(marks), recorded.graphs, recorded.settings)
