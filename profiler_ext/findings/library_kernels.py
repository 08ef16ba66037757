"""What library kernels take in the shape, dtype or mask next to theirs: a table, measured once.

``data/library_kernels.json`` names the GPU and how it was measured. Only ratios of two times of the
table are used, so that they hold for other sizes, and roughly for other GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from statistics import median, median_low
from typing import Any, Final

import msgspec

_FILE: Final = "library_kernels.json"
HEAD_DIM_MULTIPLE: Final = 8  # every backend takes such a head dim
_WELL_ALIGNED: Final = 64  # elements; a size that is a multiple of it fills the tiles of kernels
# Of the rows of an operand: less is copied by other instructions, in older kernels
ALIGNMENT_BYTES: Final = 16
BYTES: Final = {"bfloat16": 2, "float16": 2, "tf32": 4}
ALL_BACKENDS: Final = ("flash", "cudnn", "efficient")  # of attention, those that fuse it
_NEWER: Final = ("H100", "H200", "H800", "H20", "GH200", "B100", "B200", "B300", "GB200", "GB300")


@dataclass(frozen=True, slots=True)
class Layer:
    """The sizes of a linear layer; ``rows`` are its tokens."""

    rows: int
    inputs: int
    outputs: int

    def at(self, inputs: int, outputs: int) -> Layer:
        """Return the layer with another number of inputs and outputs."""
        return Layer(self.rows, inputs, outputs)

    @property
    def volume(self) -> int:
        """The number of products of two elements."""
        return self.rows * self.inputs * self.outputs

    def distance(self, other: Layer) -> float:
        """Return how unlike the sizes of two layers are."""
        pairs = (
            (self.rows, other.rows),
            (self.inputs, other.inputs),
            (self.outputs, other.outputs),
        )
        return sum(abs(math.log(own / its)) for own, its in pairs)


@dataclass(frozen=True, slots=True)
class Attention:
    """A call of attention, as far as its kernel depends on it.

    Attributes:
        dtype: ``bfloat16`` or ``float32``; float16 takes what bfloat16 does.
        mask: ``causal`` (by ``is_causal``), ``none``, ``bool``, ``float``, ``padding``, ``bias`` or
            ``dropout``.
        head_dim, length: ``None`` where unknown.
        has_backward: whether the time is that of forward and backward.
    """

    dtype: str
    mask: str
    head_dim: int | None
    length: int | None
    has_backward: bool


def alignment(size: int) -> int:
    """Return the largest power of two that divides a size, up to 64."""
    return math.gcd(size, _WELL_ALIGNED)


def is_newer(device: str) -> bool:
    """Tell whether a GPU is of the generation that the table was measured on, or a later one."""
    return any(name in device for name in _NEWER)


class LibraryTable:
    """The table; ``table()`` returns it."""

    def __init__(self, decoded: Mapping[str, Any]) -> None:
        self.device = str(decoded["device"])  # name of the GPU that it was measured on
        self.torch = str(decoded["torch"])  # version of torch
        self._layers: dict[tuple[str, str], dict[Layer, int]] = {}
        for dtype, product, rows, inputs, outputs, ns in decoded["products"]["rows"]:
            own = self._layers.setdefault((dtype, product), {})
            own[Layer(rows, inputs, outputs)] = ns
        self._attention: dict[tuple[str, str, tuple[int, ...]], dict[str, tuple[int, int]]] = {}
        for dtype, backend, _, mask, *rest in decoded["attention"]["rows"]:
            *shape, forward_ns, backward_ns = rest
            calls = self._attention.setdefault((dtype, mask, tuple(shape)), {})
            calls[backend] = (forward_ns, backward_ns)

    def typical_fraction(self, dtype: str, product: str, aligned: int) -> float | None:
        """Return which part of its time a product of this alignment takes in common sizes."""
        times = self._layers.get((dtype, product), {})
        parts = [
            times[base] / times[odd]
            for base in filter(_is_well_aligned, times)
            for odd in _variants(base, aligned)
            if odd in times
        ]
        return median(parts) if parts else None

    def dtype_fraction(self, now: str, then: str, product: str | None) -> float:
        """Return which part of its time a product takes in another dtype, in common sizes."""
        parts = [
            then_ns / times[layer]
            for (dtype, kind), times in self._layers.items()
            if dtype == now and product in (None, kind)
            for layer, then_ns in self._layers.get((then, kind), {}).items()
            if layer in times and _is_well_aligned(layer)
        ]
        return median(parts) if parts else 1.0

    def padded(self, dtype: str, product: str, layer: Layer) -> tuple[Layer, float] | None:
        """Return the padded layer that takes least, and which part of the time now that is."""
        times = self._layers.get((dtype, product), {})
        bases = [each for each in times if _is_well_aligned(each)]
        if not bases:
            return None
        base = min(bases, key=layer.distance)
        size = ALIGNMENT_BYTES // BYTES[dtype]
        now = times.get(_like(base, layer, size))
        if now is None:
            return None
        choices = []
        for multiple in (size, _WELL_ALIGNED):
            padded = layer.at(*(_up(n, size, multiple) for n in (layer.inputs, layer.outputs)))
            then = times.get(_like(base, padded, _WELL_ALIGNED))
            if then is not None:
                extra = padded.volume / layer.volume
                choices.append((padded, extra * then / now))
        return min(choices, key=lambda each: each[1], default=None)

    def attention_fraction(
        self,
        now: tuple[str, Attention],
        then: Attention,
        *,
        device: str,
        backends: Collection[str] = ALL_BACKENDS,
    ) -> float | None:
        """Return which part of its time a call takes as another one, by the best backend for it."""
        backend, call = now
        allowed = [each for each in backends if each != "cudnn" or is_newer(device)]
        parts = {}
        for dtype, mask, shape in self._attention:
            if (dtype, mask) != (call.dtype, call.mask) or not _fits(shape, call):
                continue
            took = self._attention_ns(call, shape, (backend,))
            best = self._best_ns(then, shape, allowed)
            if took and best:
                parts[shape] = best / took
        distance = _distance_from(call)
        least = min(map(distance, parts), default=0.0)
        nearest = [part for shape, part in parts.items() if distance(shape) == least]
        return median_low(nearest) if nearest else None

    def _best_ns(
        self, call: Attention, shape: tuple[int, ...], allowed: Collection[str]
    ) -> float | None:
        """Return the time of the best backend; with the next head dim that all backends take."""
        wanted = _up(shape[-1], HEAD_DIM_MULTIPLE, HEAD_DIM_MULTIPLE)
        measured = {
            each[-1]: took
            for _, _, each in self._attention
            if each[:-1] == shape[:-1] and each[-1] % HEAD_DIM_MULTIPLE == 0
            if (took := self._attention_ns(call, each, allowed)) is not None
        }
        if wanted in measured:
            return measured[wanted]
        below = max((dim for dim in measured if dim < wanted), default=None)
        above = min((dim for dim in measured if dim > wanted), default=None)
        if below is None or above is None:
            return None
        part = (wanted - below) / (above - below)
        return measured[below] + part * (measured[above] - measured[below])

    def _attention_ns(
        self, call: Attention, shape: tuple[int, ...], backends: Collection[str]
    ) -> int | None:
        calls = self._attention.get((call.dtype, call.mask, shape), {})
        times = [
            forward_ns + (backward_ns if call.has_backward else 0)
            for backend, (forward_ns, backward_ns) in calls.items()
            if backend in backends
        ]
        return min(times, default=None)


@lru_cache(maxsize=1)
def table() -> LibraryTable:
    """Return the table of this package."""
    text = resources.files("profiler_ext.findings").joinpath("data", _FILE).read_bytes()
    return LibraryTable(msgspec.json.decode(text))


def _is_well_aligned(layer: Layer) -> bool:
    sizes = (layer.rows, layer.inputs, layer.outputs)
    return all(size % _WELL_ALIGNED == 0 for size in sizes)


def _variants(base: Layer, more: int) -> Iterable[Layer]:
    yield base.at(base.inputs + more, base.outputs)
    yield base.at(base.inputs, base.outputs + more)
    yield base.at(base.inputs + more, base.outputs + more)


def _like(base: Layer, layer: Layer, well: int) -> Layer:
    """Return the variant of a measured layer whose sizes are aligned like those of another."""
    # As the table has it: both sizes by the same, the worse of both
    least = min(alignment(layer.inputs), alignment(layer.outputs))
    more = 0 if least >= well else min(least, 8)
    odd = (alignment(layer.inputs) < well, alignment(layer.outputs) < well)
    return base.at(base.inputs + odd[0] * more, base.outputs + odd[1] * more)


def _up(size: int, aligned: int, multiple: int) -> int:
    """Return a size as it is where it is aligned, else the next multiple."""
    return size if size % aligned == 0 else -(-size // multiple) * multiple


def _is_odd(head_dim: int) -> bool:
    return head_dim % HEAD_DIM_MULTIPLE != 0


def _fits(shape: tuple[int, ...], call: Attention) -> bool:
    return call.head_dim is None or _is_odd(shape[-1]) == _is_odd(call.head_dim)


def _distance_from(call: Attention) -> Callable[[Sequence[int]], float]:
    """Return how unlike a shape is in what is known of a call."""
    sizes = {-2: call.length, -1: call.head_dim}
    known = {at: math.log(size) for at, size in sizes.items() if size}
    return lambda shape: math.hypot(*(math.log(shape[at]) - own for at, own in known.items()))
