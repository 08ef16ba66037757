"""A kernel that was chosen for another size is told by its grid, its tile and its estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest

import profiler_ext
from profiler_ext.findings import SavingPer
from profiler_ext.findings.facts import Facts
from profiler_ext.findings.rules import autotuning
from profiler_ext.findings.rules.autotuning import tuned_templates
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.provenance import GraphInstance
from tests.attribution.recordings import FIXTURES
from tests.findings.stepping import is_silent, only

TUNED = FIXTURES / "findings" / "autotuning.session.pt.trace.json.gz"
STATIC = FIXTURES / "cases" / "max_autotune.session.pt.trace.json.gz"


@pytest.fixture(scope="module")
def made() -> Analysis:
    """Five steps of 16,384 rows, on kernels that were chosen for 16."""
    analysis: Analysis = profiler_ext.load(TUNED).analysis
    return analysis


def compiled_with(made: Analysis, times: int) -> Analysis:
    """The analysis, as if its graphs had been compiled with so many times the rows."""

    def of_graph(graph: GraphInstance) -> GraphInstance:
        sites = tuple(
            replace(site, flops=str(int(site.flops or 0) * times)) for site in graph.call_sites
        )
        return replace(graph, provenance=replace(graph.provenance, call_sites=sites))

    graphs = tuple(map(of_graph, made.recording.graphs))
    return replace(made, recording=replace(made.recording, graphs=graphs))


def test_both_sizes_of_each_template_are_found(made: Analysis) -> None:
    found = list(tuned_templates(Facts(made)))
    assert [each.tuned_size for each in found] == [16, 16, 16]
    assert [each.tile for each in found] == [(16, 32)] * 3
    assert {size for each in found for size in each.run_size.tolist()} == {16_384}


def test_what_was_chosen_for_few_rows_and_runs_on_many_is_reported_without_a_claim(
    made: Analysis,
) -> None:
    found = only(autotuning.RULE, made)
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)
    assert [each.value for each in found.evidence] == [
        3,
        2_477_297,
        16,
        16_384,
        "16 by 32",
        3_816_381,
    ]


@pytest.mark.parametrize(("times", "silent"), [(1024, True), (300, True), (200, False)])
def test_a_size_near_the_one_that_was_tuned_for_is_none(
    made: Analysis, times: int, silent: bool
) -> None:
    assert is_silent(autotuning.RULE, compiled_with(made, times)) == silent


def test_a_size_far_below_the_one_that_was_tuned_for_is_reported(made: Analysis) -> None:
    assert only(autotuning.RULE, compiled_with(made, 5000)).evidence[2].value == 80_000


def test_templates_of_fixed_sizes_run_with_those_that_were_tuned_for() -> None:
    assert is_silent(autotuning.RULE, profiler_ext.load(STATIC).analysis)


def test_code_that_is_not_kept_tells_no_tile(made: Analysis) -> None:
    without = replace(made, recording=replace(made.recording, generated=()))
    assert is_silent(autotuning.RULE, without)
