"""Reports where memory runs out, with an allocator made by hand: this machine has no GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from profiler_ext import cli
from profiler_ext.errors import CaptureWarning, TraceError
from profiler_ext.memory import out_of_memory
from profiler_ext.profiling import MEMORY_VARIABLE, switch
from profiler_ext.profiling import out_of_memory as reports_of_process
from profiler_ext.profiling.out_of_memory import MAX_REPORTS, Reports, is_requested
from profiler_ext.records.memory import MemoryKind, OutOfMemory, UnusedKind
from profiler_ext.torch_compat import device_memory

KIB, MIB = 1 << 10, 1 << 20
ASKED = 7 * MIB
WORKSPACE = 32 * MIB
HERE = Path(__file__).name
Observer = Callable[[int, int, int, int], None]


def block(address: int, size: int, *frames: tuple[str, int, str], state: str = "active_allocated"):
    named = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
    requested = size - 100 if state == "active_allocated" and size != WORKSPACE else size
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": named,
    }


def segment(address: int, *blocks: dict[str, object], pool: int = 0):
    return {
        "device": 0,
        "address": address,
        "total_size": sum(each["size"] for each in blocks),
        "stream": 0,
        "segment_pool_id": (pool, 0),
        "blocks": list(blocks),
    }


FSDP = "/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param.py"
ENGINE = ("/site-packages/torch/autograd/graph.py", 800, "_engine_run_backward")
LINE = (__file__, 12, "forward")


def snapshot(model: torch.nn.Module) -> dict[str, object]:
    """Of a weight, its gradient, what the forward saved, and what is not in use."""
    weight, gradient = (each.untyped_storage() for each in (model.weight, model.weight.grad))
    first = 1 << 60
    return {
        "segments": [
            segment(weight.data_ptr(), block(weight.data_ptr(), 512 * KIB)),
            segment(gradient.data_ptr(), block(gradient.data_ptr(), 512 * KIB)),
            segment(
                first,
                block(first, 3 * MIB, LINE),
                block(first + 3 * MIB, MIB, LINE, ENGINE),
                block(first + 4 * MIB, 2 * MIB, (FSDP, 1, "alloc_all_gather_outputs"), LINE),
                block(first + 6 * MIB, MIB, state="active_awaiting_free"),
                block(first + 7 * MIB, 5 * MIB, state="inactive"),
                block(first + 12 * MIB, WORKSPACE, LINE),
            ),
            segment(first + 100 * MIB, block(first + 100 * MIB, 20 * MIB, state="inactive")),
            segment(
                first + 200 * MIB,
                block(first + 200 * MIB, 4 * MIB),
                block(first + 204 * MIB, 6 * MIB, state="inactive"),
                pool=1,
            ),
        ]
    }


ALLOCATED = MIB + 6 * MIB + WORKSPACE + 4 * MIB
RESERVED = ALLOCATED + 6 * MIB + 20 * MIB + 6 * MIB


@pytest.fixture
def observers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Observer]]:
    """Stand in for the allocator; yields what it calls where an allocation fails."""
    model, found = torch.nn.Linear(256, 512), list[Observer]()
    model.weight.grad = torch.zeros_like(model.weight)
    storages = device_memory.storages
    on_device = lambda tensor: ((0, *place[1:]) for place in storages(tensor))  # noqa: E731
    counts = (0, ALLOCATED, ALLOCATED, RESERVED, RESERVED + 700 * MIB, 1 << 30)
    for name, stand_in in {
        "when_cuda_begins": lambda callback: callback(),
        "why_no_blocks": lambda: None,
        "begin_stacks": lambda: True,
        "has_stacks": lambda: True,
        "observe_out_of_memory": found.append,
        "snapshot": lambda: snapshot(model),
        "counts": lambda: [counts],
        "use_of_other_processes": lambda _: 200 * MIB,
        "major_capability": lambda _: "9",
        "storages": on_device,
    }.items():
        monkeypatch.setattr(device_memory, name, stand_in)
    yield found


def watch(folder: Path) -> None:
    reports = Reports(folder=folder)
    reports.guard.strict = True
    reports.watch(tuple, stacks=True)


@pytest.fixture
def report(observers: list[Observer], tmp_path: Path) -> OutOfMemory:
    watch(tmp_path)
    observers[0](0, ASKED, 0, 0)
    (path,) = out_of_memory.reports_in(tmp_path)
    return out_of_memory.read(path)


def test_the_rows_add_up_to_what_is_allocated_and_reserved(report: OutOfMemory) -> None:
    assert sum(each.size_bytes for each in report.alive) == report.state.allocated_bytes
    outside = (UnusedKind.OUTSIDE, UnusedKind.OTHER_PROCESSES)
    unused = sum(each.size_bytes for each in report.unused if each.kind not in outside)
    assert ALLOCATED + unused == report.state.reserved_bytes


def test_each_block_has_its_kind(report: OutOfMemory) -> None:
    kinds = {(each.kind, each.owner): each.size_bytes for each in report.alive}
    assert kinds == {
        (MemoryKind.PARAMETERS, "weight"): 512 * KIB,
        (MemoryKind.GRADIENTS, "weight"): 512 * KIB,
        (MemoryKind.SAVED, None): 3 * MIB,
        (MemoryKind.TEMPORARIES, None): MIB,
        (MemoryKind.UNSHARDED, "FSDP's unsharded parameters"): 2 * MIB,
        (MemoryKind.WORKSPACES, "cuBLAS"): WORKSPACE,
        (MemoryKind.GRAPH_POOLS, "torch.cuda.graph"): 4 * MIB,
    }
    saved = next(each for each in report.alive if each.kind is MemoryKind.SAVED)
    assert (saved.file, saved.line, saved.requested_bytes) == (__file__, 12, 3 * MIB - 100)


def test_what_autograd_holds_is_saved_and_names_its_node(
    observers: list[Observer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = torch.nn.Linear(8, 1024)(torch.ones(128, 8)).sigmoid()
    (_, address, _) = next(device_memory.storages(saved))
    of_saved = segment(address, block(address, 512 * KIB, LINE))
    monkeypatch.setattr(device_memory, "snapshot", lambda: {"segments": [of_saved]})
    watch(tmp_path)
    observers[0](0, ASKED, 0, 0)
    (path,) = out_of_memory.reports_in(tmp_path)
    (row,) = out_of_memory.read(path).alive
    assert (row.kind, row.owner, row.line) == (MemoryKind.SAVED, "SigmoidBackward0.result", 12)


def test_what_is_reserved_and_not_in_use_has_its_kind(report: OutOfMemory) -> None:
    assert {each.kind: each.size_bytes for each in report.unused} == {
        UnusedKind.CACHED: 20 * MIB,
        UnusedKind.GRAPH_POOLS: 6 * MIB,
        UnusedKind.FRAGMENTS: 5 * MIB,
        UnusedKind.AWAITING: MIB,
        UnusedKind.OTHER_PROCESSES: 200 * MIB,
        UnusedKind.OUTSIDE: 500 * MIB,
    }
    assert report.failed.largest_free_bytes == 20 * MIB


def test_the_report_says_what_was_asked_for_and_where(report: OutOfMemory) -> None:
    failed = report.failed
    assert (failed.device, failed.requested_bytes, failed.file) == (0, ASKED, __file__)
    assert failed.code == "observers[0](0, ASKED, 0, 0)"


def test_one_line_names_the_file_and_the_largest_rows(
    observers: list[Observer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watch(tmp_path)
    observers[0](0, ASKED, 0, 0)
    (line,) = capfd.readouterr().err.splitlines()
    assert re.fullmatch(
        r"profiler-ext: out of memory on device 0: 7 MiB asked for at test_out_of_memory.py:\d+, "
        r"43 MiB allocated: 32 MiB workspaces test_out_of_memory.py:12, "
        r"4 MiB CUDA graph pools \(torch.cuda.graph\), "
        r"3 MiB saved activations test_out_of_memory.py:12; profiler-ext report --memory \S+",
        line,
    )


@pytest.mark.whole
def test_a_program_that_tries_again_leaves_few_reports(
    observers: list[Observer], tmp_path: Path
) -> None:
    watch(tmp_path)
    for _ in range(MAX_REPORTS + 2):
        observers[0](0, ASKED, 0, 0)
    assert len(out_of_memory.reports_in(tmp_path)) == MAX_REPORTS


def test_a_failure_of_ours_is_a_warning_and_nothing_else(
    observers: list[Observer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = Reports(folder=tmp_path)
    reports.watch(tuple)
    monkeypatch.setattr(device_memory, "snapshot", lambda: 1 / 0)
    with pytest.warns(CaptureWarning, match="division by zero"):
        observers[0](0, ASKED, 0, 0)
    assert out_of_memory.reports_in(tmp_path) == []


def test_another_allocator_leaves_none_and_says_so(
    observers: list[Observer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the CUDA allocator is pluggable, which keeps no history"
    monkeypatch.setattr(device_memory, "why_no_blocks", lambda: why)
    with pytest.warns(CaptureWarning, match=f"leaves no report: {why}"):
        watch(tmp_path)
    assert observers == []


def test_blocks_without_stacks_are_said_to_have_none(
    observers: list[Observer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "has_stacks", lambda: False)
    watch(tmp_path)
    observers[0](0, ASKED, 0, 0)
    (path,) = out_of_memory.reports_in(tmp_path)
    (missing,) = out_of_memory.read(path).missing
    assert "set PROFILER_EXT_MEMORY=oom" in missing


@pytest.mark.parametrize("width", [80, 120])
def test_report_prints_it(
    report: OutOfMemory,
    tmp_path: Path,
    width: int,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    capfd.readouterr()
    assert cli.main(["report", "--memory", str(tmp_path)]) == 0
    text = capfd.readouterr().out
    assert all(len(line) <= width for line in text.splitlines())
    words = " ".join(text.split())
    assert words.startswith(f"Out of memory on device 0: 7 MiB ({ASKED:,} bytes) asked for")
    assert "43 MiB allocated (45,088,768 bytes), 75 MiB reserved, of 1 GiB" in words
    assert "workspaces 32 MiB 74.4% 1" in words
    assert "20 MiB cached segments, 6 MiB free in CUDA graph pools, 5 MiB fragments" in words
    assert f"{HERE}:" in words


def test_report_gives_json(
    report: OutOfMemory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert cli.main(["report", "--memory", "--format", "json", str(tmp_path)]) == 0
    (read,) = json.loads(capfd.readouterr().out)
    assert read["failed"]["requested_bytes"] == ASKED
    assert sum(row["size_bytes"] for row in read["alive"]) == ALLOCATED


def test_a_damaged_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out_of_memory_1_1.json.gz"
    path.write_bytes(b"nothing")
    with pytest.raises(TraceError, match="is no report of out of memory"):
        out_of_memory.read(path)


@pytest.mark.parametrize(("value", "expected"), [("oom", True), ("", False), ("0", False)])
def test_the_environment_asks_for_it(
    value: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, value)
    assert is_requested() is expected


def test_another_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "yes")
    with pytest.warns(CaptureWarning, match="PROFILER_EXT_MEMORY is 'yes', expected oom"):
        assert not is_requested()


@pytest.mark.parametrize(("value", "count"), [("oom", 2), ("", 0)])
def test_memory_is_watched_where_the_environment_asks_for_it(
    value: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(device_memory, "when_cuda_begins", waiting.append)
    monkeypatch.setattr(reports_of_process, "REPORTS", Reports())
    monkeypatch.setenv(MEMORY_VARIABLE, value)
    switch.watch_memory()
    assert len(waiting) == count  # stacks, and the observer


RECORDED = Path(__file__).parents[1] / "fixtures" / "h200" / "memory"


@pytest.mark.parametrize(("name", "saved_part"), [("eager", 0.89), ("compiled", 0.59)])
def test_a_report_of_an_h100_adds_up(name: str, saved_part: float) -> None:
    report = out_of_memory.read(RECORDED / f"out_of_memory_{name}.json.gz")
    total = report.state.allocated_bytes
    assert sum(each.size_bytes for each in report.alive) == total
    outside = (UnusedKind.OUTSIDE, UnusedKind.OTHER_PROCESSES)
    unused = sum(each.size_bytes for each in report.unused if each.kind not in outside)
    assert total + unused == report.state.reserved_bytes
    saved = sum(each.size_bytes for each in report.alive if each.kind is MemoryKind.SAVED)
    assert int(100 * saved / total) == int(100 * saved_part)


def test_a_compiled_graphs_allocation_has_its_kernel_line_and_module() -> None:
    failed = out_of_memory.read(RECORDED / "out_of_memory_compiled.json.gz").failed
    # The kernel stores gelu of 4 x 384 columns, in float32.
    batch, time = 1024, 251
    assert failed.requested_bytes == 4 * batch * time * 4 * 384
    assert (failed.line, failed.module) == (18, "blocks.0")
    assert failed.kernel == "triton_poi_fused_gelu_view_2"
