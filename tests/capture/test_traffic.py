"""What a kernel moves is told buffer by buffer, each at most once and never more than whole."""

from collections.abc import Iterable

import pytest
import torch

import profiler_ext
from profiler_ext.capture.graphs import call_sites
from profiler_ext.isolation.hook_protocols import TryRun
from profiler_ext.torch_compat.traffic import Access, Traffic, moved_bytes, storing

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


def test_a_leaf_stores_what_another_kernel_reads():
    inner = Traffic("op0", 10, (_read("a", 40, 40), _write("buf0", 40, frozenset({"op1"}))))
    outer = Traffic("op1", 10, (_write("buf1", 40, frozenset({"op0", "op7"})),))
    reader = Traffic("op2", 10, (_read("buf1", 40, 40),))
    assert storing([inner, outer]) == (False, True)
    assert storing([inner]) == (True,)
    assert storing([inner, reader]) is None  # it must write something
    assert storing([inner, None]) is None


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


@pytest.mark.usefixtures("fresh_torch")
def test_a_compiled_optimizer_stores_each_tensor_once_and_nothing_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What only has to run before another kernel's write is not read by it."""
    sites: list[call_sites.PendingSite] = []
    plain = call_sites.generated_site

    def generated_site(
        schedule: Iterable[object], kernel: str, try_run: TryRun
    ) -> call_sites.PendingSite:
        sites.append(plain(schedule, kernel, try_run))
        return sites[-1]

    monkeypatch.setattr(call_sites, "generated_site", generated_site)
    profiler_ext.enable()
    weight = torch.nn.Parameter(torch.ones(64, 32))
    weight.grad = torch.ones(64, 32)
    optimizer = torch.optim.AdamW([weight])
    torch.compile(optimizer.step)()
    (update,) = [site for site in sites if any("sqrt" in n.name for n in site.nodes)]
    assert update.stored is not None
    stored = [n for n in update.stored if n.meta["val"].numel() > 1]
    assert [n.target for n in stored] == [torch.ops.aten.copy_.default] * 3
    assert update.moved_bytes is not None
    assert 0 <= update.moved_bytes - 7 * 4 * 64 * 32 < 32  # four read, three written; the step
