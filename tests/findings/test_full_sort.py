"""Sorts of which only a few values are read: a step with one, and one without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from profiler_ext.findings.code_of_lines import first_values_of
from profiler_ext.findings.rules import full_sort
from tests.findings.stepping import US, Script, at, forward, is_silent, made, only, placed

if TYPE_CHECKING:
    from profiler_ext.records.analysis import Analysis


def ordered(code: str, following: str) -> Analysis:
    own = at(3, "sort", code=code)
    return made(forward("sort"), forward("mul"), sort=own, mul=at(4, "mul", code=following))


@pytest.mark.parametrize(
    ("code", "following"),
    [
        ("nearest = distance.argsort()[:, :, :k]", "y = x * 2"),
        ("order = distance.sort(-1)", "y = x * order[1][..., :k]"),
        ("values, order = scores.sort(descending=True)", "y = x.gather(1, order[:, :64]) * 2"),
        ("order = scores.argsort(-1)", "y = x.gather(1, order[:, -k:])"),
        ("best = scores.sort(-1, descending=True)[0][:, 0]", "y = x * best"),
    ],
)
def test_a_sort_of_which_the_first_are_read_could_be_a_selection(code: str, following: str):
    found = only(full_sort.RULE, ordered(code, following))
    assert found.est_saving_ns == int(2 / 3 * 300 * US)
    assert (found.location.line, found.remedy[:10]) == (3, "torch.topk")


def test_a_sort_that_is_read_as_a_whole_is_none():
    assert is_silent(full_sort.RULE, ordered("order = x.sort(-1)[1]", "y = x.gather(1, order)"))
    assert first_values_of({1: "x = y.sort()[1:]", 2: "z = x[:-1]"}, frozenset({"sort"})) == set()


def test_a_sort_that_is_read_as_a_whole_as_well_is_none():
    shuffled = {1: "to = noise.argsort(1)", 2: "back = to.argsort(1)", 3: "x = x[to[:, :k]]"}
    assert first_values_of(shuffled, frozenset({"argsort"})) == set()


def test_a_permutation_of_which_the_first_are_read_could_be_a_few_random_numbers():
    step = made(
        forward("randperm"),
        forward("index"),
        randperm=at(3, code="at = torch.randperm(n, device=x.device)[:k]"),
        index=at(4, code="x = x[at]"),
    )
    found = only(full_sort.RULE, step)
    assert (found.location.line, found.remedy[:13]) == (3, "torch.randint")


@pytest.mark.parametrize(("read_blocks", "is_found"), [(1, True), (64, False), (None, False)])
def test_quantiles_that_sort_all_values_and_read_few_could_select(read_blocks, is_found):
    script = Script()
    for _ in range(3):
        script.launch("radix_sort", 300 * US, op="aten::sort", grid=[200, 1, 1])
        shape = {} if read_blocks is None else {"grid": [read_blocks, 1, 1]}
        script.launch("gather", 30 * US, op="aten::gather", **shape)
        script.launch("elementwise", 300 * US, op="aten::mul")
        script.wait()
        script.end_step()
    line = at(3, "quantile")
    step = placed(script.analysis(), sort=line, gather=line, mul=at(4))
    if not is_found:
        assert is_silent(full_sort.RULE, step)
        return
    found = only(full_sort.RULE, step)
    assert (found.location.line, found.remedy[:10]) == (3, "torch.topk")
    assert found.est_saving_ns == pytest.approx(2 / 3 * 330 * US, rel=0.05)


def ranked(following: str, selections: int = 2) -> Analysis:
    """Steps that copy all values for ``topk``, and then select in so many launches."""
    code = "best = scores.topk(3, 1).indices"
    launches = [forward("copy_"), *[forward("topk")] * selections, forward("eq")]
    of_topk = at(5, "topk", code=code)
    return made(*launches, copy_=of_topk, topk=of_topk, eq=at(6, "eq", code=following))


@pytest.mark.parametrize(
    "following", ["right = (best == labels[:, None]).any(1)", "right = labels.eq(best)"]
)
def test_what_is_selected_to_be_compared_with_labels_could_be_counted(following: str):
    found = only(full_sort.RULE, ranked(following))
    assert (found.location.line, found.est_saving_ns) == (5, 2 * 300 * US)
    assert found.summary == "topk selects values only to compare them with labels"


def test_a_selection_that_is_used_or_takes_no_longer_than_a_copy_is_none():
    assert is_silent(full_sort.RULE, ranked("weights = best.softmax(1)"))
    assert is_silent(full_sort.RULE, ranked("right = best == labels", selections=1))
