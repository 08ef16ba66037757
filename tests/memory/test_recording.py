"""Memory as it is recorded here: on the CPU, with sizes that tell which line they are of."""

from __future__ import annotations

import gc
import gzip
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
import torch.distributed as dist

import profiler_ext
from profiler_ext.errors import TraceError
from profiler_ext.memory import file
from profiler_ext.memory.peak import AliveBlock, peaks_of
from profiler_ext.profiling.memory import Names
from profiler_ext.records.memory import MemoryGap, MemoryKind
from profiler_ext.sessions.session import Session, load
from profiler_ext.torch_compat import device_memory
from profiler_ext.torch_compat.other_threads import other_threads
from tests import compiling

BATCH, WIDE, NARROW = 127, 1009, 509
# Another file may have compiled, and had capture forget it; here nothing is compiled.
pytestmark = pytest.mark.filterwarnings("ignore::profiler_ext.errors.LateCaptureWarning")


def steps(count: int, **options: bool) -> Session:
    """Train a model whose sizes are prime."""
    model = torch.nn.Sequential(torch.nn.Linear(64, WIDE), torch.nn.Sigmoid())
    model.append(torch.nn.Linear(WIDE, NARROW))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=count)
    with profiler_ext.profile(schedule=schedule, strict=True, **options) as prof:
        for _ in range(count + 2):
            batch = torch.randn(BATCH, 64)
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            prof.step()
    return prof.session


assert compiling  # it imports the compiler, which warns of itself


kept: list[torch.Tensor] = []
KEPT, GRAPH, LEAF = 4 * 1511, 4 * 1523, 4 * 1531


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    leaf = torch.ones(LEAF // 4, requires_grad=True)
    leaf.sum().backward()
    kept[:] = [torch.ones(KEPT // 4), torch.ones(GRAPH // 4, requires_grad=True).exp(), leaf]
    del leaf  # Python 3.12 and newer have the name of this variable, too
    yield steps(2, memory=True)
    kept.clear()
    profiler_ext.disable()


def blocks(session: Session) -> tuple[AliveBlock, ...]:
    return peaks_of(session.analysis)[-1].blocks


def sizes(session: Session, kind: MemoryKind) -> list[int]:
    return sorted(each.size_bytes for each in blocks(session) if each.kind is kind)


WEIGHTS = (64 * WIDE * 4, WIDE * 4, WIDE * NARROW * 4, NARROW * 4)


def test_parameters_and_state_have_their_names_and_sizes(session: Session) -> None:
    # Tests that ran before in this process may have left parameters of theirs.
    assert not Counter(WEIGHTS) - Counter(sizes(session, MemoryKind.PARAMETERS))
    named = {each.name: each for each in blocks(session) if each.kind is MemoryKind.OPTIMIZER}
    assert named["exp_avg of 2.weight"].size_bytes == WIDE * NARROW * 4
    assert named["exp_avg of 2.weight"].place.module == "2"
    assert named["exp_avg of 2.weight"].place.gap == MemoryGap.HELD_BY_NAME
    assert len(named) >= 4 * 3


def test_what_the_program_kept_before_the_recording_has_its_name(session: Session) -> None:
    sizes = (KEPT, GRAPH, LEAF)
    found = {(b.size_bytes, b.kind, b.name) for b in blocks(session) if b.size_bytes in sizes}
    assert found >= {
        (KEPT, MemoryKind.HELD, f"{__name__}.kept[0]"),
        (GRAPH, MemoryKind.SAVED, "ExpBackward0.result"),
        (LEAF, MemoryKind.HELD, f"{__name__}.kept[2]"),
        (LEAF, MemoryKind.HELD, f"gradient of float32 {LEAF // 4}"),
    }


def test_every_step_has_the_same_peak_and_its_blocks_add_up(session: Session) -> None:
    first, second = peaks_of(session.analysis)
    assert first.peak_bytes == second.peak_bytes
    for peak in first, second:
        assert sum(each.size_bytes for each in peak.blocks) == peak.peak_bytes


def test_gradients_are_of_the_parameters_size(session: Session) -> None:
    # The peak is in the optimizer's step.
    assert not Counter(WEIGHTS) - Counter(sizes(session, MemoryKind.GRADIENTS))
    assert peaks_of(session.analysis)[-1].place.phase == "optimizer"


def test_without_the_option_nothing_is_recorded_or_written(tmp_path: Path) -> None:
    plain = steps(1)
    assert plain.recording.memory is None and len(plain.columns("by_memory")) == 0
    plain.save(tmp_path)
    assert not (tmp_path / file.FILE_NAME).exists()
    assert b"[memory]" not in b"".join(plain.recording.trace.raw[at] for at in range(50))


def test_a_session_is_read_with_its_memory_and_saved_without(
    session: Session, tmp_path: Path
) -> None:
    session.save(tmp_path)
    read = load(tmp_path)
    assert read.recording.memory == session.recording.memory
    assert read.columns("by_memory").records() == session.columns("by_memory").records()
    steps(1).save(tmp_path)
    assert not (tmp_path / file.FILE_NAME).exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no gzip", "is no memory record of this session"),
        (gzip.compress(b"{}"), "missing required field"),
        (gzip.compress(b'{"version": 9, "memory": {}}'), "by a newer profiler-ext"),
        (gzip.compress(b'{"version": 1, "memory": {"trace_base_ns": 1}}'), "it is of another"),
        (gzip.compress(b'{"version": 1')[:-9], "it is cut off"),
    ],
    ids=["other", "empty", "newer", "another", "cut"],  # gzip writes the time
)
def test_a_damaged_file_is_refused_in_a_sentence(
    session: Session, tmp_path: Path, content: bytes, why: str
) -> None:
    session.save(tmp_path)
    (tmp_path / file.FILE_NAME).write_bytes(content)
    with pytest.raises(TraceError, match=why):
        load(tmp_path)


def test_a_recording_that_begins_keeps_no_local_of_the_program() -> None:
    def step() -> weakref.ref[torch.Tensor]:
        local = torch.ones(3)
        other_threads()
        return weakref.ref(local)

    gc.disable()
    try:
        assert step()() is None
    finally:
        gc.enable()


def test_columns_of_different_length_are_refused(session: Session, tmp_path: Path) -> None:
    session.save(tmp_path)
    path = tmp_path / file.FILE_NAME
    plain = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    plain["memory"]["events"]["device"].pop()
    path.write_bytes(gzip.compress(msgspec.json.encode(plain)))
    with pytest.raises(TraceError, match="different lengths"):
        load(tmp_path)


def test_a_wrapper_has_the_storages_of_the_tensors_that_it_holds() -> None:
    class Wrapper(torch.Tensor):
        def __tensor_flatten__(self) -> tuple[list[str], None]:
            return ["held", "mesh"], None

    wrapper = torch.empty(0).as_subclass(Wrapper)
    wrapper.held, wrapper.mesh = torch.ones(6), object()  # type: ignore[attr-defined]
    assert [size for *_, size in device_memory.storages(wrapper)] == [24]


def test_what_lasts_is_asked_for_its_storage_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.Linear(WIDE, 3)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(2, WIDE)).sum().backward()
    optimizer.step()
    names, asked = Names(), list[torch.Tensor]()
    first, storages = names.read(), device_memory.storages

    def counted(tensor: torch.Tensor) -> tuple[device_memory.Place, ...]:
        asked.append(tensor)
        return storages(tensor)

    monkeypatch.setattr(device_memory, "storages", counted)
    own = {id(each) for each in (layer.weight, layer.bias)}
    state = {id(each) for kept in optimizer.state.values() for each in kept.values()}
    gradients = [layer.weight.grad, layer.bias.grad]
    assert names.read() == first
    assert not (own | state) & {id(each) for each in asked}
    assert {id(each) for each in gradients} <= {id(each) for each in asked}
    layer.weight.data = torch.ones(3, WIDE)
    changed = {row[3] for row in names.read()} - {row[3] for row in first}
    assert changed == {layer.weight.untyped_storage().data_ptr()}


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_has_the_storages_of_its_parts() -> None:
    places, values = torch.tensor([[0, 2, 2]]), torch.ones(3, 5)
    summed_later = torch.sparse_coo_tensor(places, values, (4, 5))
    begins, others = torch.tensor([0, 1, 3]), torch.tensor([0, 0, 1])
    rows = torch.sparse_csr_tensor(begins, others, torch.ones(3))
    columns = torch.sparse_csc_tensor(begins, others, torch.ones(3))
    for sparse, sizes in ((summed_later, [24, 60]), (rows, [24, 24, 12]), (columns, [24, 24, 12])):
        assert [size for *_, size in device_memory.storages(sparse)] == sizes


def test_gradients_of_sparse_embeddings_are_gradients() -> None:
    table = torch.nn.EmbeddingBag(WIDE, NARROW, sparse=True)
    with profiler_ext.profile(strict=True, memory=True) as prof:
        for _ in range(2):
            table(torch.arange(BATCH).view(1, -1)).square().mean().backward()
            prof.step()
            table.zero_grad()
    found = {b.name for b in blocks(prof.session) if b.size_bytes == 4 * BATCH * NARROW
             and b.kind is MemoryKind.GRADIENTS}  # fmt: skip
    assert found == {"weight"}


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.whole
@pytest.mark.parametrize(
    ("is_view", "kind"), [(False, MemoryKind.COMMUNICATION), (True, MemoryKind.GRADIENTS)]
)
def test_buckets_of_ddp_are_communication_unless_they_hold_gradients(
    is_view: bool, kind: MemoryKind, one_rank: None
) -> None:
    gc.collect()  # a model of DDP is in reference cycles: that of the test before is alive as yet
    inner = torch.nn.Linear(64, WIDE)
    model = torch.nn.parallel.DistributedDataParallel(inner, gradient_as_bucket_view=is_view)
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=1)
    with profiler_ext.profile(schedule=schedule, strict=True, memory=True) as prof:
        for _ in range(4):
            model(torch.randn(BATCH, 64)).square().mean().backward()
            prof.step()
    of_size = [b for b in blocks(prof.session) if b.size_bytes == 4 * (64 * WIDE + WIDE)]
    assert [each.kind for each in of_size] == [kind]
