"""Samples of the program counter, by CUPTI: at which instructions the warps of a device stall.

Source: CUPTI, ``cupti_pcsampling.h``. Kernels run as they are, side by side and at their own speed
(``CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS``). After a recording of Kineto's in the same
process CUPTI knows no kernel any more, so samples come first.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from profiler_ext.errors import ProfilerExtError

_CONTINUOUS = 1
_MODE, _PERIOD, _REASONS, _SCRATCH, _HARDWARE, _START_STOP, _FORMAT, _BUFFER = (
    5,
    1,
    2,
    3,
    4,
    6,
    7,
    8,
)
_SCRATCH_BYTES, _HARDWARE_BYTES = 64 << 20, 512 << 20
_NO_RIGHTS = (35, 40)  # CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, and that of virtual devices
_OUT_OF_MEMORY = 8  # CUPTI_ERROR_OUT_OF_MEMORY: the hardware's buffer is full
PERIOD_LOG2 = 11
"""A sample of each multiprocessor every so many cycles, as power of two.

Kernels of 40 us have some 20,000 samples in twenty steps at 2,048. At 4,096 their lines are up to 5
points off: what a kernel does in that time falls on the same cycles in each launch.
"""
_PCS = 20_000
"""As many program counters are read at once."""
_NAME_BYTES = 128  # CUPTI_STALL_REASON_STRING_SIZE
_STALLED = "smsp__pcsamp_warps_issue_stalled_"
_SUBSET = "_not_issued"
"""Of a reason's samples, those in cycles in which no warp issued; they are counted there, too."""


class SamplingError(ProfilerExtError):
    """The program counter of this device cannot be sampled."""

    slug = "pc_sampling"
    page_name = "inside.md"


class BufferFullError(SamplingError):
    """There were more samples between two drains than the device keeps; all of them are lost."""


@dataclass(frozen=True, slots=True)
class SampledFunction:
    """The samples of one kernel function."""

    name: str  # as the linker has it
    cubin_crc: int  # tells the binary: functions of several may have one name
    # By the instruction's offset in the function, in bytes, then by the reason why the warp did
    # not issue it in that cycle (``selected``: it did)
    at: Mapping[int, Mapping[str, int]]

    @property
    def count(self) -> int:
        """All its samples."""
        return sum(sum(reasons.values()) for reasons in self.at.values())


@dataclass(frozen=True, slots=True)
class Samples:
    """What was sampled between start and stop."""

    functions: tuple[SampledFunction, ...]
    total: int  # as CUPTI counts them, with those below
    dropped: int  # the hardware had no room for them
    unknown: int  # of kernels that CUPTI does not know
    period_cycles: int

    @property
    def count(self) -> int:
        """All samples of kernels that are known."""
        return sum(function.count for function in self.functions)


_Fields = tuple[tuple[str, Any], ...]


_STALL = np.dtype([("reason", "<u4"), ("samples", "<u4")])
_PC = np.dtype(
    [
        ("size", "<u8"),
        ("cubin_crc", "<u8"),
        ("offset", "<u8"),
        ("function_index", "<u4"),
        ("pad", "<u4"),
        ("function", "<u8"),  # address of its name
        ("stall_count", "<u8"),
        ("stalls", "<u8"),  # their address
        ("correlation", "<u8"),
    ]
)
_COLUMNS = ("function", "cubin_crc", "offset")


class _Data(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("room", c_size_t),
        ("total", c_uint64),
        ("dropped", c_uint64),
        ("count", c_size_t),
        ("remaining", c_size_t),
        ("range", c_uint64),
        ("pcs", c_void_p),
        ("unknown", c_uint64),
        ("is_full", c_uint8),
    )


class _Setting(ctypes.Structure):
    _fields_ = (("kind", c_uint32), ("status", c_uint32), ("value", c_uint64 * 3))


class _OfContext(ctypes.Structure):
    """The begin of all parameters: their size, and the context."""

    _fields_: ClassVar[_Fields] = (("size", c_size_t), ("private", c_void_p), ("context", c_void_p))


class _Settings(_OfContext):
    _fields_: ClassVar[_Fields] = (("count", c_size_t), ("settings", POINTER(_Setting)))


class _GetData(_OfContext):
    _fields_: ClassVar[_Fields] = (("data", POINTER(_Data)),)


class _CountReasons(_OfContext):
    _fields_: ClassVar[_Fields] = (("count", POINTER(c_size_t)),)


class _Reasons(_OfContext):
    _fields_: ClassVar[_Fields] = (
        ("count", c_size_t),
        ("indices", POINTER(c_uint32)),
        ("names", POINTER(c_void_p)),
    )


class _Crc(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("cubin_bytes", c_size_t),
        ("cubin", c_char_p),
        ("crc", c_uint64),
    )


class Cupti:
    """CUPTI as this process has loaded it, for the current context of its device."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_loaded("libcupti.so"))
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._context = c_void_p()
        self._driver.cuCtxGetCurrent(ctypes.byref(self._context))
        if not self._context:
            raise SamplingError("no CUDA context: run something on the device first")

    def call(self, name: str, parameters: type[_OfContext] = _OfContext, **fields: Any) -> None:
        """Call a function with the context and these fields.

        Raises:
            SamplingError: CUPTI answers with an error.
        """
        given = parameters(size=_size(parameters), context=self._context, **fields)
        if error := getattr(self._library, name)(ctypes.byref(given)):
            text = c_char_p()
            self._library.cuptiGetResultString(error, ctypes.byref(text))
            kind = BufferFullError if error == _OUT_OF_MEMORY else SamplingError
            raise kind(_message(name, error, (text.value or b"").decode()))

    def synchronize(self) -> None:
        """Wait for the device."""
        self._driver.cuCtxSynchronize()

    def crc(self, cubin: bytes) -> int:
        """Return the number by which samples name a binary."""
        given = _Crc(size=_size(_Crc), cubin_bytes=len(cubin), cubin=cubin)
        self._library.cuptiGetCubinCrc(ctypes.byref(given))
        return int(given.crc)

    def reasons(self) -> Mapping[int, str]:
        """Return the names of the reasons why a warp issues nothing, by their index."""
        found = c_size_t()
        self.call("cuptiPCSamplingGetNumStallReasons", _CountReasons, count=ctypes.pointer(found))
        count = found.value
        indices, texts = (c_uint32 * count)(), (ctypes.c_char * _NAME_BYTES * count)()
        names = (c_void_p * count)(*(ctypes.addressof(text) for text in texts))
        self.call(
            "cuptiPCSamplingGetStallReasons", _Reasons, count=count, indices=indices, names=names
        )
        return {index: text.value.decode() for index, text in zip(indices, texts, strict=True)}


class _Buffer:
    """Room for what CUPTI hands out at once."""

    def __init__(self, reasons: int) -> None:
        self._reasons = reasons
        self._stalls = np.zeros((_PCS, reasons), _STALL)
        self._pcs = np.zeros(_PCS, _PC)
        self.data = _Data(size=ctypes.sizeof(_Data), pcs=self._pcs.ctypes.data)
        self.clear()

    def clear(self) -> None:
        """Make room."""
        self._stalls.fill(0)
        self._pcs["size"], self._pcs["stall_count"] = _PC.itemsize, self._reasons
        rows = np.arange(_PCS, dtype="<u8") * (self._reasons * _STALL.itemsize)
        self._pcs["stalls"] = self._stalls.ctypes.data + rows
        self.data.room = _PCS

    def counted(self) -> pd.DataFrame:
        """Return the samples by function (the address of its name), binary, offset and reason."""
        pcs, stalls = self._pcs[: self.data.count], self._stalls[: self.data.count]
        is_given = np.arange(self._reasons) < pcs["stall_count"][:, None].astype("i8")
        rows, columns = np.nonzero(is_given & (stalls["samples"] > 0))
        stalled = stalls[rows, columns]
        of = {name: pcs[name][rows] for name in _COLUMNS}
        return pd.DataFrame({**of, "reason": stalled["reason"], "samples": stalled["samples"]})


@dataclass(slots=True)
class PcSampler:
    """Samples while it is entered; :meth:`drain` after each step.

    Raises:
        SamplingError: this process may not sample, or there is no device.
    """

    period_log2: int = PERIOD_LOG2
    _cupti: Cupti = field(init=False)
    _reasons: Mapping[int, str] = field(init=False)
    _indices: ctypes.Array[c_uint32] = field(init=False)  # CUPTI has only its address
    _buffer: _Buffer = field(init=False)
    _configured: _Buffer = field(init=False)
    _parts: list[pd.DataFrame] = field(default_factory=list)
    _total: int = 0
    _dropped: int = 0
    _unknown: int = 0

    def __enter__(self) -> PcSampler:
        """Start to sample."""
        self._cupti = Cupti()
        self._cupti.call("cuptiPCSamplingEnable")
        try:
            self._reasons = self._cupti.reasons()
            self._buffer, self._configured = (_Buffer(len(self._reasons)) for _ in range(2))
            self._configure()
            self._cupti.call("cuptiPCSamplingStart")
        except BaseException:
            self._turn_off()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and keep what is there."""
        try:
            self._take()
        finally:
            self._turn_off()

    def drain(self) -> None:
        """Wait for the device, and take what was sampled: the hardware's buffer is small.

        Raises:
            BufferFullError: it was too small.
            SamplingError: CUPTI answers with another error. After either, sampling is off, and
                what was taken before is still there.
        """
        try:
            self._take()
            self._cupti.call("cuptiPCSamplingStart")
        except BaseException:
            self._turn_off()
            raise

    def _turn_off(self) -> None:
        # After an error in between CUPTI may refuse this, too; the process is about to end
        with suppress(SamplingError):
            self._cupti.call("cuptiPCSamplingDisable")

    def samples(self) -> Samples:
        """Return what was sampled."""
        known = {index: _reason(name) for index, name in self._reasons.items()}
        rows = (
            pd.concat(self._parts)
            if self._parts
            else pd.DataFrame(columns=[*_COLUMNS, "reason", "samples"])
        )
        rows["reason"] = rows["reason"].map(known)
        rows = rows.dropna(subset="reason")
        rows["function"] = rows["function"].map(_names(rows["function"]))
        keys = [*_COLUMNS, "reason"]
        sums = rows.groupby(keys, sort=False)["samples"].sum().reset_index()
        at: dict[tuple[str, int], dict[int, dict[str, int]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        columns = (sums[name].tolist() for name in (*keys, "samples"))
        for function, crc, offset, reason, count in zip(*columns, strict=True):
            at[function, crc][offset][reason] = count
        functions = (SampledFunction(name, crc, dict(of)) for (name, crc), of in at.items())
        return Samples(
            tuple(sorted(functions, key=lambda function: -function.count)),
            self._total,
            self._dropped,
            self._unknown,
            1 << self.period_log2,
        )

    def _take(self) -> None:
        self._cupti.synchronize()
        self._cupti.call("cuptiPCSamplingStop")
        data = self._buffer.data
        while True:
            self._buffer.clear()
            self._cupti.call("cuptiPCSamplingGetData", _GetData, data=ctypes.pointer(data))
            self._total += data.total
            self._dropped += data.dropped
            self._unknown += data.unknown
            self._parts.append(self._buffer.counted())
            if not data.remaining:
                return

    def _configure(self) -> None:
        self._indices = indices = (c_uint32 * len(self._reasons))(*self._reasons)
        values = (
            (_MODE, _CONTINUOUS),
            (_PERIOD, self.period_log2),
            (_REASONS, len(indices), ctypes.addressof(indices)),
            (_SCRATCH, _SCRATCH_BYTES),
            (_HARDWARE, _HARDWARE_BYTES),
            (_START_STOP, 1),
            (_FORMAT, 1),
            (_BUFFER, ctypes.addressof(self._configured.data)),
        )
        settings = (_Setting * len(values))()
        for setting, (kind, *value) in zip(settings, values, strict=True):
            setting.kind, setting.value = kind, (c_uint64 * 3)(*value)
        self._cupti.call(
            "cuptiPCSamplingSetConfigurationAttribute",
            _Settings,
            count=len(values),
            settings=settings,
        )


def _reason(name: str) -> str | None:
    """The short name of a stall reason, ``long_scoreboard``; ``None`` of what counts others."""
    if not name.startswith(_STALLED) or name.endswith(_SUBSET):
        return None
    return name.removeprefix(_STALLED)


def _names(addresses: pd.Series[int]) -> Mapping[int, str]:
    """The texts at addresses; CUPTI hands out a new one each time."""
    return {
        at: ctypes.string_at(at).decode(errors="replace")
        for at in addresses.unique().tolist()
        if at
    }


def _size(parameters: type[ctypes.Structure]) -> int:
    """The size up to the end of the last field, as CUPTI tells its versions apart."""
    last = getattr(parameters, parameters._fields_[-1][0])
    return int(last.offset + last.size)


def _message(name: str, error: int, text: str) -> str:
    if error in _NO_RIGHTS:
        return (
            "the driver does not let this user sample (NVreg_RestrictProfilingToAdminUsers=1): "
            "let the administrator set it to 0, or measure by --route knock-out"
        )
    return f"{name} failed: {text or error}; measure by --route knock-out"


def _loaded(name: str) -> str:
    """The path of a library that this process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if name in (path := line.rpartition(" ")[2]):
            return path
    raise SamplingError(f"{name} is not loaded: torch was built without CUDA")
