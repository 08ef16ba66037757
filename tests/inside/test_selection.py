"""Which kernels a name means: all that compute a line, or those of a name."""

from __future__ import annotations

import pytest

from profiler_ext.errors import UnclearNameError, UsageError
from profiler_ext.inside.selection import ChosenKernel, chosen_kernels
from profiler_ext.records.kernel_lines import KernelSource
from tests.exporters.explained import gpt


def sources() -> list[KernelSource]:
    return [
        KernelSource(graph.output_module, site.kernel, site.writes, f"text of {site.kernel}", ())
        for graph in gpt().analysis.recording.graphs
        for site in graph.call_sites
        if site.kind == "triton"
    ]


def test_a_kernel_has_all_its_launches_at_all_its_sites() -> None:
    table = gpt().launches().dropna(subset="step")
    for name, rows in table[table["kind"] == "triton"].groupby("kernel"):
        (chosen,) = chosen_kernels(gpt().analysis, sources(), str(name), 10)
        assert chosen.kernel == name
        assert (chosen.launches, chosen.total_ns) == (len(rows), rows["duration_ns"].sum())
        assert chosen.step_ns == round(rows["duration_ns"].median())
        places = len({(each.graph, each.site.ordinal) for each in chosen.sites})
        assert places == len(chosen.sites) == len(rows.groupby(["graph", "call_site"]))


def test_a_line_means_its_generated_kernels_the_longest_first() -> None:
    parts = (
        gpt()
        .attribution()
        .merge(gpt().launches()[["launch", "step", "kernel", "kind"]], on="launch")
    )
    parts = parts.dropna(subset=["step", "file"])
    parts = parts[parts["kind"] == "triton"]
    file, line = parts.groupby(["file", "line"])["kernel"].nunique().idxmax()
    wanted = set(parts[(parts["file"] == file) & (parts["line"] == line)]["kernel"])
    assert len(wanted) > 1
    chosen = chosen_kernels(gpt().analysis, sources(), f"{file}:{line}", 100)
    assert {each.kernel for each in chosen} == wanted
    totals = [each.total_ns for each in chosen]
    assert totals == sorted(totals, reverse=True)
    assert chosen_kernels(gpt().analysis, sources(), f"{file}:{line}", 1) == chosen[:1]
    place = chosen[0].places[next(iter(chosen[0].places))]
    assert place.node in chosen[0].site.nodes


def test_what_is_no_generated_kernel_is_refused() -> None:
    with pytest.raises(UsageError, match="is in no kernel that Inductor generated"):
        chosen_kernels(gpt().analysis, [], sources()[0].kernel, 10)
    with pytest.raises(UsageError, match="no kernel that Inductor generated ran"):
        chosen_kernels(gpt().analysis, [], "", 10)
    with pytest.raises(UnclearNameError):
        chosen_kernels(gpt().analysis, sources(), "nothing_is_called_so", 10)


def test_a_module_means_the_kernels_that_compute_it_or_what_is_below() -> None:
    parts = gpt().attribution().merge(gpt().launches()[["launch", "step", "kind"]], on="launch")
    parts = parts.dropna(subset=["step", "module"])
    of_module = parts[(parts["kind"] == "triton") & parts["module"].str.match(r"blocks\.0(\.|$)")]
    wanted = set(of_module["launch"])
    chosen = chosen_kernels(gpt().analysis, sources(), "module:blocks.0", 1000)
    sites = {(at.graph, at.site.ordinal) for each in chosen for at in each.sites}
    by_launch = gpt().launches().set_index("launch").loc[sorted(wanted)]
    assert len(sites) == len(by_launch.groupby(["graph", "call_site"]))
    assert 0 < len(sites) < sum(len(each.sites) for each in every_kernel())


def every_kernel() -> list[ChosenKernel]:
    return chosen_kernels(gpt().analysis, sources(), "", 1000)


def test_without_a_name_all_generated_kernels_are_meant() -> None:
    launches = gpt().launches().dropna(subset=["step"])
    triton = launches[launches["kind"] == "triton"]
    assert sum(each.total_ns for each in every_kernel()) == triton["duration_ns"].sum()
