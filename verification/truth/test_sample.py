"""A sample of the oracle of graph nodes: in these models no claim is contradicted by what ran.

``python -m verification.truth`` has more models made by hand, and those of transformers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from verification.truth.judging import Score, judge
from verification.truth.models import BY_HAND
from verification.truth.random_programs import running
from verification.truth.settings import SETTINGS

JUDGED = {
    "mutating_layers": (155, 77),
    "mutated_views": (61, 35),
    "cells": (218, 180),
    "tied_head": (60, 39),
    "yielded": (45, 26),
    "rounded": (13, 8),
    "summed_gradients": (63, 31),
    "own_backward": (23, 10),
    "asking": (7, 4),
    "parts": (13, 11),
    "pulled_back": (45, 36),
    "gradient_by_row": (36, 29),
    "branches": (237, 177),
    "regions": (192, 108),
    "regions_of_functions": (276, 129),
    "regions_within": (138, 105),
}
"""How many nodes are right, and how many links agree: those that the eager run tells."""


@pytest.mark.parametrize("name", JUDGED)
def test_a_node_has_the_line_and_the_module_at_which_its_op_ran_eagerly(
    name: str, fresh_torch: Path
) -> None:
    score = Score()
    torch.manual_seed(0)
    judge(score, name, *BY_HAND[name]())
    assert (score.wrong, score.failed) == ([], [])
    assert (score.right, score.linked) == JUDGED[name]


def test_random_programs_claim_nothing_that_what_ran_contradicts(
    tmp_path: Path, fresh_torch: Path
) -> None:
    score = Score()
    for name, make in running(range(12), tmp_path).items():
        judge(score, name, *make())
    assert (score.models, score.wrong, score.failed, score.without) == (12, [], [], 0)
    assert score.right > 300


UNDER = {
    ("padded", "attention"): (194, 337),
    ("padded", "regions"): (174, 138),
    ("padded", "regions_within"): (126, 93),
    ("padded", "tied_head"): (59, 43),
    ("as_on_a_gpu", "regions_of_functions"): (252, 135),
    ("all_sizes_dynamic", "read_later"): (8, 37),
}
"""The same under settings that people train with."""


@pytest.mark.parametrize(("settings", "name"), UNDER)
def test_so_it_has_under_other_settings(settings: str, name: str, fresh_torch: Path) -> None:
    score = Score()
    torch.manual_seed(0)
    with SETTINGS[settings]():
        judge(score, name, *BY_HAND[name]())
    assert (score.wrong, score.failed) == ([], [])
    assert (score.right, score.linked) == UNDER[settings, name]
