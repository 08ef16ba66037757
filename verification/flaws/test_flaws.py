"""The list of flaws is whole, its programs run, and its judge is right about rows made by hand."""

import gc
import math
import random
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from verification.flaws import measuring, programs, split
from verification.flaws.catalogue import FIRST, FLAWS, LATER
from verification.flaws.cores import cores_of, cores_to_wait_on
from verification.flaws.judging import accepted_rules, judged, table, tuned_table
from verification.flaws.measuring import (
    compare,
    found_again,
    measure,
    measure_remedied,
    measure_tuned,
    sizes_of,
)
from verification.flaws.programs.control import captured

COUNTS = (3, 2, 2, *[1] * (len(LATER) - 2))  # of the first collection, of the next, ...
SAMPLE = [
    name
    for names, count in zip((FIRST, *LATER), COUNTS, strict=True)
    for name in random.Random(38).sample(sorted(names), count)
]
# Without AVX-512 oneDNN has no LSTM in bfloat16
HAS_LSTM = "AVX512" in torch.backends.cpu.get_cpu_capability()
OF_LSTMS = {"context_projected_each_step", "lstm_cudnn", "packed_lengths"}


def runnable(names: Iterable[str]) -> list:
    """Programs, of which those are skipped that this CPU cannot run."""
    skipped = pytest.mark.skipif(not HAS_LSTM, reason="a bfloat16 LSTM on a CPU without AVX-512")
    return [pytest.param(each, marks=skipped if each in OF_LSTMS else ()) for each in names]


def test_the_split_is_drawn_from_the_seed_and_covers_all_flaws() -> None:
    assert split.read() == split.drawn()
    assert sorted(name for half in split.read().values() for name in half) == sorted(FLAWS)


def test_each_flaw_has_a_program_and_lines_unless_it_is_a_setting() -> None:
    for name, flaw in FLAWS.items():
        assert callable(programs.builder(name))
        assert flaw.anywhere or programs.marked_lines(name), name


def test_the_half_that_rules_are_written_on_is_mapped_to_rules() -> None:
    assert set(split.read()["developing"]) <= set(accepted_rules()) <= set(FLAWS)


def replayed_sum() -> tuple[Callable[[], torch.Tensor], weakref.ref[torch.Tensor]]:
    """A captured sum, and its input without a hold on it."""
    views = torch.ones(3)
    return captured(lambda: views.sum()), weakref.ref(views)


def test_a_captured_step_holds_the_inputs_that_its_graph_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("Stream", "stream", "current_stream", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    replay, views = replayed_sum()
    gc.collect()
    assert views() is not None
    assert replay() == 3


def test_there_are_twenty_tuned_steps() -> None:
    assert len(programs.TUNED) == 20


@pytest.mark.parametrize("name", runnable(SAMPLE))
def test_both_variants_of_a_flaw_run_and_compute_the_same(name: str, tmp_path: Path) -> None:
    row = measure(name, sizes_of(is_tiny=True), tmp_path)
    assert row["flawed_ms"] > 0 < row["remedied_ms"]
    assert row["gain_ms"] == row["flawed_ms"] - row["remedied_ms"]
    assert found_again(row, tmp_path) == row


def test_a_step_is_timed_and_recorded_again_until_both_take_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The third attempt is the last; what differs least stays, and nothing of the others."""
    times = iter([(56.0, 30.0), (30.0, 36.0), (20.0, 30.0), (1.0, 1.0)])

    def attempt(_make: object, _sizes: object, folder: Path) -> dict[str, float]:
        flawed_ms, recorded_step_ms = next(times)
        folder.mkdir(parents=True)
        (folder / "findings.json").write_text(str(flawed_ms))
        return {"flawed_ms": flawed_ms, "recorded_step_ms": recorded_step_ms}

    monkeypatch.setattr(measuring, "_attempt", attempt)
    monkeypatch.setattr(measuring, "_alone", lambda _: nullcontext())
    row = compare("flaw", MagicMock(), sizes_of(is_tiny=False), tmp_path)
    assert row["flawed_ms"] == 30
    assert row["apart_in_attempts"] == [1.867, 1.2, 1.5]
    assert [path.name for path in (tmp_path / "flaw").iterdir()] == ["findings.json"]
    assert (tmp_path / "flaw" / "findings.json").read_text() == "30.0"


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's, of activations
@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")  # the flaw
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list:UserWarning")  # the flaw
@pytest.mark.parametrize("name", runnable(sorted(FLAWS.keys() - FIRST.keys())))
def test_both_variants_of_the_later_collections_compute_the_same(name: str) -> None:
    losses = []
    for flawed in (True, False):
        step = programs.builder(name)(flawed, sizes_of(is_tiny=True))
        with step.within():
            losses.append([float(step.run()) for _ in range(2)])
    assert all(math.isfinite(loss) for each in losses for loss in each)
    assert FLAWS[name].differs or losses[0] == pytest.approx(losses[1], rel=1e-2, abs=1e-3)


def test_collections_until_the_twelfth_have_thirty_flaws_with_sources_of_their_own() -> None:
    """Later ones were drawn from all that a page or a search has, common or not."""
    thirties, drawn = LATER[:11], LATER[11:]
    urls = [flaw.source.url for each in thirties for flaw in each.values()]
    assert {len(each) for each in thirties} == {30}
    assert [len(each) for each in drawn] == [40, 20]
    assert len(set(urls)) == 330 and not set(urls) & {flaw.source.url for flaw in FIRST.values()}


def test_no_name_is_in_two_collections() -> None:
    assert len(FLAWS) == sum(map(len, (FIRST, *LATER)))


def test_a_tuned_step_runs(tmp_path: Path) -> None:
    row = measure_tuned("dlrm_compiled", sizes_of(is_tiny=True), tmp_path)
    assert row["step_ms"] > 0


@pytest.mark.parametrize("name", runnable(["dlrm_compiled", "lstm_cudnn"]))
def test_a_tuned_step_and_its_remedy_run(name: str, tmp_path: Path) -> None:
    row = measure_remedied(name, sizes_of(is_tiny=True), tmp_path)
    assert row["step_ms"] == row["flawed_ms"] > 0 < row["remedied_ms"]


def test_what_waits_for_a_gpu_has_other_cores_than_what_measures() -> None:
    cores = range(32)
    assert [*cores_of("0", cores)] == [*range(12)] and [*cores_of("1", cores)] == [*range(12, 24)]
    assert [*cores_to_wait_on(2, cores)] == [*range(24, 32)]
    assert cores_of("0", range(12)) == cores_to_wait_on(1, range(12)) == range(12)
    assert cores_of("", cores) == cores


def finding(rule: str, line: int | None, saving_ms: float, file: str = "attention.py") -> dict:
    return {
        "rule": rule,
        "file": file,
        "line": line,
        "saving_ms": saving_ms,
        "saving_per": "step",
        "summary": "",
    }


def row_of(*findings: dict, gain_ms: float = 4.0) -> dict:
    return {
        "name": "naive_attention",
        "lines": [["attention.py", LINE]],
        "flawed_ms": 20.0,
        "remedied_ms": 20.0 - gain_ms,
        "gain_ms": gain_ms,
        "gain_interval_ms": [gain_ms - 0.1, gain_ms + 0.1],
        "findings": list(findings),
        "took_s": 1.0,
    }


ACCEPTED = {"naive_attention": ["unfused_attention"]}
LINE = min(programs.marked_lines("naive_attention"))[1]


def test_an_accepted_rule_at_the_line_names_the_flaw() -> None:
    row = judged(row_of(finding("unfused_attention", LINE, 5.0)), ACCEPTED)
    assert (row["named"], row["factor"], row["claims"]) == (True, 1.25, [])


def test_another_rule_or_another_line_is_a_claim() -> None:
    others = finding("launch_bound", LINE, 5.0), finding("unfused_attention", 1, 0.7)
    small = finding("unfused_attention", 2, 0.5)
    row = judged(row_of(*others, small), ACCEPTED)
    assert (row["named"], row["factor"], row["claims"]) == (False, None, list(others))


def test_only_the_first_five_recommendations_count() -> None:
    first = [finding("launch_bound", None, 0.1)] * 5
    row = judged(row_of(*first, finding("unfused_attention", LINE, 0.1)), ACCEPTED)
    assert row["named"] is False


def test_a_flaw_that_is_not_mapped_is_not_judged() -> None:
    assert judged(row_of(), {})["named"] is None


def test_a_flaw_without_a_gain_has_no_cost() -> None:
    row = judged(row_of(gain_ms=0.05), ACCEPTED)
    assert row["costs"] is False


def test_the_table_has_a_row_for_each_flaw_and_sums_them_up() -> None:
    rows = [
        judged(row_of(finding("unfused_attention", LINE, 5.0)), ACCEPTED),
        {"name": "no_tf32", "failure": "RuntimeError: a | b"},
    ]
    assert table(rows).splitlines()[2:] == [
        "| naive_attention | 20.00 | 16.00 | 4.00 [3.90, 4.10] | yes | 5.00 | 1.25 |  |",
        "| no_tf32 | | | | failed: RuntimeError: a \\| b | | | |",
        "",
        "Flaws that cost time: 1 of 2. Named with their line: 1. "
        "Within a factor of 1.5: 1. Failed: 1.",
    ]


def test_the_table_of_tuned_steps_has_their_claims_and_what_remedies_gain() -> None:
    row = {"name": "gpt", "step_ms": 10.0, "findings": [finding("uncompiled", 7, 0.4)]}
    tried = row | {"remedied_ms": 9.5, "gain_ms": 0.5, "gain_interval_ms": [0.4, 0.6]}
    assert tuned_table([row, tried]).splitlines()[2:] == [
        "| gpt | 10.00 | uncompiled 0.40 attention.py:7 |  |  |",
        "| gpt | 10.00 | uncompiled 0.40 attention.py:7 | 9.50 | 0.50 [0.40, 0.60] |",
    ]
