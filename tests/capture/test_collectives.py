"""Traced collectives are call sites of their own lines, in a bucket and where they are in place."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives

import profiler_ext


@pytest.fixture
def try_run() -> Iterator[None]:
    """One rank is enough to trace what a rank does."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def communicate(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = x @ x
    summed = collectives.all_reduce(product, "sum", dist.group.WORLD)
    scaled = torch.sin(summed) * 1.25
    first = collectives.all_gather_tensor(a, 0, dist.group.WORLD)
    second = collectives.all_gather_tensor(b, 0, dist.group.WORLD)
    third = collectives.reduce_scatter_tensor(scaled, "sum", 0, dist.group.WORLD)
    return (first @ second).relu() + third


@torch._inductor.config.patch(bucket_all_gathers_fx="all")
def test_collectives_and_what_they_take_have_their_own_lines(
    fresh_torch: Path, try_run: None
) -> None:
    profiler_ext.enable(cpu_events=True)
    x, a, b = (torch.ones(8, 8) for _ in range(3))
    compiled = torch.compile(communicate)
    compiled(x, a, b)
    with profiler_ext.profile() as prof:
        compiled(x, a, b)
        prof.step()
    prof.assert_coverage(1.0)
    parts = prof.attribution().merge(prof.launches(), on=["rank", "launch"])
    begin = communicate.__code__.co_firstlineno
    lines = parts.groupby("name").line.agg(lambda line: sorted(set(line.dropna() - begin)))
    # The sum is in the product's memory, and the product is not the sum.
    assert lines["aten::mm"] == [1, 7]
    assert lines["_c10d_functional::all_reduce_"] == [2]
    # One bucket of two.
    gathers = parts[parts.name.str.startswith("_c10d_functional::all_gather")]
    assert (set(gathers.kind), gathers.launch.nunique()) == ({"communication"}, 1)
    assert sorted(set(gathers.line - begin)) == [4, 5]
    # What makes a collective's input is no part of it.
    assert set(parts[parts.node.isin(["sin", "mul"])].line - begin) == {3}
    # What fills the bucket is both collectives' own; torch 2.11 copies, later ones concatenate.
    fills = parts[parts.node.fillna("").str.startswith(("_foreach_copy_/", "cat/"))]
    assert sorted(fills.line - begin) == [4, 5]
    assert lines["_c10d_functional::reduce_scatter_tensor"] == [6]
