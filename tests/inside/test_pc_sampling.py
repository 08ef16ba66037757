"""Samples are counted by function, binary, instruction and reason, from CUPTI's own records."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profiler_ext.inside import pc_sampling, sampling
from profiler_ext.inside.pc_sampling import (
    PERIOD_LOG2,
    BufferFullError,
    PcSampler,
    Samples,
    SamplingError,
)

_REASONS = {
    3: "smsp__pcsamp_sample_count",
    8: "smsp__pcsamp_warps_issue_stalled_long_scoreboard",
    9: "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    12: "smsp__pcsamp_warps_issue_stalled_selected",
}
_Record = tuple[bytes, int, int, Mapping[int, int]]  # function, binary, offset, samples by reason


class _Stall(ctypes.Structure):
    _fields_ = (("reason", ctypes.c_uint32), ("samples", ctypes.c_uint32))


class _Pc(ctypes.Structure):
    """A record as ``cupti_pcsampling.h`` has it."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("cubin_crc", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("function_index", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("function", ctypes.c_char_p),
        ("stall_count", ctypes.c_size_t),
        ("stalls", ctypes.POINTER(_Stall)),
        ("correlation", ctypes.c_uint32),
    )


class _FakeCupti:
    """Hands out batches of records; each time the device is drained, the next ones."""

    batches: Sequence[Sequence[_Record]] = ()
    refuses: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._left = [list(batch) for batch in self.batches]
        self.called: list[str] = []

    def reasons(self) -> Mapping[int, str]:
        return _REASONS

    def synchronize(self) -> None:
        self.called.append("synchronize")

    def call(self, name: str, _: object = None, **fields: Any) -> None:
        self.called.append(name)
        if name in self.refuses:
            raise SamplingError(self.refuses[name])
        if name == "cuptiPCSamplingGetData":
            self._hand_out(fields["data"].contents)

    def _hand_out(self, data: Any) -> None:
        batch = self._left.pop(0) if self._left else []
        assert data.room >= len(batch)
        records = ctypes.cast(data.pcs, ctypes.POINTER(_Pc))
        for at, (function, crc, offset, samples) in enumerate(batch):
            record = records[at]
            assert record.size == ctypes.sizeof(_Pc)
            assert record.stall_count == len(_REASONS)
            record.function, record.cubin_crc, record.offset = function, crc, offset
            record.stall_count = len(samples)
            for stall, (reason, count) in enumerate(samples.items()):
                record.stalls[stall] = _Stall(reason, count)
        data.count, data.remaining = len(batch), 1 if len(self._left) % 2 else 0
        data.total, data.dropped, data.unknown = 100, 1, 2


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pc_sampling, "Cupti", _FakeCupti)


def test_samples_of_all_steps_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    step = [(b"triton_0", 7, 0x10, {8: 5, 9: 4, 3: 9}), (b"triton_0", 7, 0x20, {12: 1})]
    monkeypatch.setattr(_FakeCupti, "batches", [step, [], step, []])
    with PcSampler() as sampler:
        sampler.drain()
    (function,) = sampler.samples().functions
    assert (function.name, function.cubin_crc) == ("triton_0", 7)
    assert function.at == {0x10: {"long_scoreboard": 10}, 0x20: {"selected": 2}}
    assert function.count == 12


def test_the_samples_in_cycles_without_an_issue_are_no_samples_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_FakeCupti, "batches", [[(b"triton_0", 7, 0x10, {8: 5, 9: 5})], []])
    with PcSampler() as sampler:
        pass
    assert sampler.samples().count == 5


def test_functions_of_one_name_in_two_binaries_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [(b"triton_0", 7, 0, {8: 5}), (b"triton_0", 9, 0, {8: 50})]
    monkeypatch.setattr(_FakeCupti, "batches", [batch, []])
    with PcSampler() as sampler:
        pass
    assert [(each.cubin_crc, each.count) for each in sampler.samples().functions] == [
        (9, 50),
        (7, 5),
    ]


def test_what_was_not_seen_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_FakeCupti, "batches", [[(b"triton_0", 7, 0, {8: 5})], []])
    with PcSampler() as sampler:
        pass
    samples = sampler.samples()
    assert (samples.total, samples.dropped, samples.unknown) == (200, 2, 4)


def test_nothing_sampled_is_no_error() -> None:
    with PcSampler() as sampler:
        pass
    assert sampler.samples().functions == ()


def test_sampling_is_off_again_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_FakeCupti, "refuses", {"cuptiPCSamplingStart": "no room"})
    sampler = PcSampler()
    with pytest.raises(SamplingError, match="no room"), sampler:
        pass
    assert sampler._cupti.called[-1] == "cuptiPCSamplingDisable"  # type: ignore[attr-defined]


def test_the_device_is_waited_for_before_its_samples_are_taken() -> None:
    with PcSampler() as sampler:
        sampler.drain()
    called = sampler._cupti.called  # type: ignore[attr-defined]
    taken = [at for at, name in enumerate(called) if name == "cuptiPCSamplingStop"]
    assert taken and all(called[at - 1] == "synchronize" for at in taken)


class _SmallCupti(_FakeCupti):
    """Its buffer is full where more than one sample in 8,192 cycles is taken."""

    def call(self, name: str, _: object = None, **fields: Any) -> None:
        if name == "cuptiPCSamplingSetConfigurationAttribute":
            self.period_log2 = fields["settings"][1].value[0]
        if name == "cuptiPCSamplingGetData" and self.period_log2 < 13:
            raise BufferFullError("full")
        super().call(name, _, **fields)


class _EndingCupti(_FakeCupti):
    """Hands out nothing any more, and cannot be turned off, after seven stops."""

    def call(self, name: str, _: object = None, **fields: Any) -> None:
        if self.called.count("cuptiPCSamplingStop") >= 7 and name != "cuptiPCSamplingStart":
            raise SamplingError(f"{name} failed")
        super().call(name, _, **fields)


class _Ends:
    may_train = False


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sampling._Child:
    """A child whose steps are steady; its result has no kernels."""
    monkeypatch.setattr(sampling, "sampled_result", lambda task, samples: sampling.SamplingResult())
    task = sampling.SamplingTask(
        words=["train.py"],
        is_module=False,
        step_on="",
        kernels=[],
        binaries="",
        result=str(tmp_path / "result"),
    )
    made = sampling._Child(task)
    made._ends = _Ends()
    return made


def test_where_the_buffer_is_full_all_steps_are_sampled_again_at_twice_the_period(
    monkeypatch: pytest.MonkeyPatch, child: sampling._Child
) -> None:
    monkeypatch.setattr(pc_sampling, "Cupti", _SmallCupti)
    child._sample(PERIOD_LOG2)
    ended = [child._is_enough() for _ in range(2 + sampling._STEPS)]
    assert ended == [False] * (1 + sampling._STEPS) + [True]
    assert child._sampler is not None
    assert child._sampler.samples().period_cycles == 1 << 13


def test_what_was_sampled_before_cupti_fails_counts_and_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch, child: sampling._Child, tmp_path: Path
) -> None:
    monkeypatch.setattr(pc_sampling, "Cupti", _EndingCupti)
    child._sample(PERIOD_LOG2)
    assert [child._is_enough() for _ in range(7)] == [False] * 6 + [True]
    result = msgspec.json.decode((tmp_path / "result").read_bytes(), type=sampling.SamplingResult)
    assert result.notes == ["6 of 20 steps are sampled: cuptiPCSamplingGetData failed"]
    assert not result.error


@pytest.mark.parametrize("error", [35, 40])
def test_missing_rights_name_the_driver_option(error: int) -> None:
    message = pc_sampling._message("cuptiPCSamplingEnable", error, "CUPTI_ERROR")
    assert "NVreg_RestrictProfilingToAdminUsers" in message
    assert "--route knock-out" in message


def test_a_coarser_interval_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pc_sampling, "Cupti", _FakeCupti)
    task = sampling.SamplingTask(
        words=["train.py"], is_module=False, step_on="", kernels=[], binaries="", result=""
    )
    for period_log2, notes in ((PERIOD_LOG2, 0), (PERIOD_LOG2 + 3, 1)):
        samples = Samples((), total=7, dropped=0, unknown=0, period_cycles=1 << period_log2)
        noted = sampling.sampled_result(task, samples).notes
        assert len(noted) == notes
        assert all(each.startswith("a sample every 16,384 cycles, not 2,048") for each in noted)
