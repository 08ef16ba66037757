"""AOTInductor's packages carry the records of their graphs, and their calls are attributed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import profiler_ext
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.store.packages import package_records

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("fresh_torch"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles C++"),
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return torch.sin(y) * 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x).cumsum(0)
        return x


def test_a_package_made_with_capture_has_lines_wherever_it_is_loaded(tmp_path: Path) -> None:
    profiler_ext.enable()
    net, x, path = Net().eval(), torch.randn(4, 8), tmp_path / "net.pt2"
    # Otherwise the C++ wrapper calls kernels without an event.
    options = {"cpp.enable_kernel_profile": True}
    with torch.no_grad():
        program = torch.export.export(net, (x,))
        made = torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs=options
        )
        assert list(package_records(path)) == ["model"]
        moved = shutil.move(made, tmp_path / "moved.pt2")
        run = torch._inductor.aoti_load_package(str(moved))
        with profiler_ext.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            for _ in range(2):
                run(x)
                prof.step()
    assert torch.allclose(run(x), net(x), atol=1e-5)
    (graph,) = prof.session.recording.graphs
    assert graph.cache_state is CacheState.PACKAGE
    assert not graph.record.gaps
    launches, places = prof.launches(), prof.attribution()
    kernels = launches[launches.call_site.notna()].launch
    own = places[places.launch.isin(kernels)]
    assert set(own.file.map(lambda file: Path(file).name)) == {Path(__file__).name}
    assert {"blocks.0", "blocks.1"} <= set(own.module.map(lambda path: path[:8]))
    assert {"y = self.norm(x)", "return torch.sin(y) * 3"} <= set(own.code)
