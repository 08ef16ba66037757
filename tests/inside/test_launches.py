"""A launch is kept with its arguments, and they are made again as they were."""

from __future__ import annotations

import types
from pathlib import Path

import torch

from profiler_ext.inside import launches
from profiler_ext.inside.launches import FirstLaunches
from profiler_ext.isolation.hook_protocols import Observed


def kept(*given: object) -> launches.Launch:
    return launches._launch(None, given)


def test_arguments_are_made_again_with_their_shapes_strides_and_values() -> None:
    values = torch.randn(8, 3, 64)
    indices = torch.arange(100)[10:50]
    launch = kept(values[:, 2], indices, 7, torch.empty(0), torch.tensor([True, False]))
    again = launch.made_arguments()
    assert torch.equal(again[0], values[:, 2])
    assert again[0].stride() == values[:, 2].stride()
    assert torch.equal(again[1], indices)
    assert (again[2], again[3].shape) == (7, (0,))
    assert again[4].tolist() == [True, False]
    assert launch.ranges == {1: (10, 49)}


def test_views_of_one_storage_stay_views_of_one() -> None:
    values = torch.randn(4, 3, 8)
    first, second = kept(values[:, 0], values[:, 2]).made_arguments()
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    first.zero_()
    assert torch.equal(second, values[:, 2])


def test_large_values_repeat_and_integers_are_whole() -> None:
    values, indices = torch.randn(3 << 20), torch.arange(2 << 20)
    again = kept(values, indices).made_arguments()
    sample = (8 << 20) // 4
    assert torch.equal(again[0][:sample], values[:sample])
    assert torch.equal(again[0][sample:], values[: len(values) - sample])
    assert torch.equal(again[1], indices)


def test_the_first_launch_of_each_kernel_is_found_by_its_text(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("\nthe text\n")
    kernel = types.SimpleNamespace(filename=str(path))
    first = FirstLaunches()
    for value in (1, 2):
        call = Observed(lambda args, kwargs: kwargs, (), {"self": kernel, "args": (value,)})
        assert list(first.observe(call)) == [None]
    gone = types.SimpleNamespace(filename=str(tmp_path / "gone.py"))
    call = Observed(lambda args, kwargs: kwargs, (), {"self": gone, "args": (3,)})
    assert list(first.observe(call)) == [None]
    (launch,) = [first.by_text()[each] for each in first.by_text()]
    assert list(first.by_text()) == ["the text"]
    assert launch.made_arguments() == [1]
