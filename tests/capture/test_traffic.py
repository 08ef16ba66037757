"""What a kernel moves is told buffer by buffer, each at most once and never more than whole."""

import pytest
import torch

import profiler_ext
from profiler_ext.torch_compat.traffic import Access, Traffic, moved_bytes

OUTSIDE = frozenset({"OUTPUT"})


def _read(buffer: str, moved: int, whole: int, pattern: object = None) -> Access:
    return Access(buffer, pattern, moved, whole)


def _write(buffer: str, moved: int, users: frozenset[str] = OUTSIDE) -> Access:
    return Access(buffer, None, moved, moved, users)


def test_each_leaf_moves_its_own_buffers_only():
    first = Traffic("op0", 10, (_read("a", 40, 40), _write("buf0", 40)))
    second = Traffic("op1", 20, (_read("b", 80, 80), _write("buf1", 80)))
    assert (moved_bytes([first]), moved_bytes([second])) == (80, 160)
    assert moved_bytes([first, second]) == 240


def test_what_only_the_same_kernel_reads_stays_in_registers():
    first = Traffic("op0", 10, (_read("a", 40, 40), _write("buf0", 40, frozenset({"op1"}))))
    second = Traffic("op1", 10, (_read("buf0", 40, 40), _write("buf1", 40)))
    assert moved_bytes([first, second]) == 80
    assert moved_bytes([first]) == 80


def test_the_last_stage_of_a_split_reduction_reads_partial_values_only():
    whole, partial = 4 * 4096, 4 * 16
    first = Traffic("op0", 4096, (_read("a", whole, whole), _write("buf0", partial)))
    last = Traffic("op1", 16, (_read("buf0", partial, partial), _write("buf1", 4)))
    assert (moved_bytes([first]), moved_bytes([last])) == (whole + partial, partial + 4)


def test_a_buffer_read_twice_alike_is_read_once_and_never_more_than_whole():
    slices = (_read("a", 30, 40, "left"), _read("a", 30, 40, "right"))
    assert moved_bytes([Traffic("op0", 10, slices), Traffic("op1", 10, slices[:1])]) == 40


def test_memory_read_and_written_in_place_is_moved_twice():
    leaf = Traffic("op0", 10, (_read("arg0", 40, 40), _write("buf0", 40)))
    assert moved_bytes([leaf]) == 80


@pytest.mark.usefixtures("fresh_torch")
def test_a_compiled_foreach_kernel_moves_what_its_tensors_hold():
    profiler_ext.enable(cpu_events=True)

    @torch.compile
    def scale(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        return torch._foreach_add(torch._foreach_mul([a, b], 2.5), 1.5)  # type: ignore[return-value]

    with profiler_ext.profile(acc_events=True) as prof:
        scale(torch.randn(64, 32), torch.randn(1000))
        prof.step()
    sites = [
        s for g in prof.session.recording.graphs if g.provenance for s in g.provenance.call_sites
    ]
    assert sum(int(site.bytes_moved or 0) for site in sites) == 2 * 4 * (64 * 32 + 1000)
    assert sum(int(site.flops or 0) for site in sites) == 2 * (64 * 32 + 1000)
