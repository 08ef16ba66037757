"""Where a program stands while it runs."""

from __future__ import annotations

import torch
from torch import nn

from verification.truth.standing import Standing


class _Failing(nn.Module):
    def forward(self, _: torch.Tensor) -> torch.Tensor:
        raise ValueError


def test_a_program_does_not_stand_in_a_module_that_an_error_left() -> None:
    """A checkpoint leaves what it runs again so, when it has all that it asked for."""
    model = nn.Sequential(_Failing())
    standing = Standing(model)
    with standing.followed():
        try:
            model(torch.ones(2))
        except ValueError:
            place = standing.place()
    assert place is not None
    assert place.module == ""


def test_a_forward_hook_runs_in_its_module() -> None:
    model = nn.Sequential(nn.Identity())
    standing = Standing(model)
    places = []
    model[0].register_forward_hook(lambda *_: places.append(standing.place()))
    with standing.followed():
        model(torch.ones(2))
    assert [place is not None and place.module for place in places] == ["0"]
