"""The order of trials, their verdicts and edits, on measurements made by hand."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from profiler_ext import cli
from profiler_ext.cli import try_
from profiler_ext.errors import UsageError
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.exporters.json_output.documents import BreakdownChange
from profiler_ext.exporters.views.trials import change_text, row_text, trial_text
from profiler_ext.run.program import Program
from profiler_ext.sessions.merging import load
from profiler_ext.sessions.session import Session
from profiler_ext.trials import BY_NAME, REMEDIES, trying
from profiler_ext.trials.child import Measured, Patched
from profiler_ext.trials.edits import edits_of
from profiler_ext.trials.measuring import (
    Children,
    Gain,
    Script,
    Side,
    StoppedError,
    gain,
    loss_difference,
)
from profiler_ext.trials.remedy import Site
from profiler_ext.trials.trying import Trials, keep, named, proposed
from tests.analyses import gpu_step

MS = 1_000_000


class Scripted(Children):
    """Children that measure what a function says of their remedies."""

    ran: list[tuple[str, ...]]
    unpatched: tuple[str, ...] = ()

    def applicable(self, remedies):
        self.count += 1
        counts = {each: int(each not in self.unpatched) for each in remedies}
        return Measured(
            patched={
                name: Patched(count=count, sites=[], reason="") for name, count in counts.items()
            }
        )

    def record(self, output, remedies=(), *, memory=False):
        self.count += 1
        recorded = "data_loader.remedied" if remedies else "data_loader"
        shutil.copy(FINDINGS / f"{recorded}.session.pt.trace.json.gz", output / FILE_NAME)

    def measure(self, remedies):
        self.count += 1
        self.ran.append(tuple(remedies))
        return self.script_of(tuple(remedies))


def scripted(step_ms, losses=None, unpatched=(), broken=(), pairs=2) -> Trials:
    made = Scripted(Script(Program("train.py")), Path("logs"), lambda _: None)
    made.ran, made.unpatched = [], unpatched

    def measured(remedies: tuple[str, ...]) -> Measured:
        if set(remedies) & set(broken):
            return Measured(error="RuntimeError: no such kernel")
        noise = 1000 * len(made.ran)
        return Measured(
            took_ns=[round(step_ms(remedies) * MS) + noise] * 3,
            losses=[1.0, (losses or {}).get(remedies[-1:], 0.5)],
            loss_dtype="float32",
            patched={
                each: Patched(count=int(each not in unpatched), sites=[], reason="")
                for each in remedies
            },
        )

    made.script_of = measured
    return Trials(made, pairs=pairs)


SAVED = {"compile": 4, "fused_optimizer": 2, "tf32": 1}


def step_ms(remedies):
    return 20 - sum(SAVED.get(each, 0) for each in remedies)


def rows_of(trials):
    return {row.remedies[0]: row.verdict for row in trials.rows}


def test_remedies_take_turns_and_what_wins_is_added_up():
    trials = scripted(step_ms, unpatched=("workers",), broken=("channels_last",))
    names = ("fused_optimizer", "workers", "channels_last", "set_to_none", "compile")
    trials.run([BY_NAME[each] for each in names])
    assert rows_of(trials) == {
        "fused_optimizer": "wins",
        "workers": "not applicable",
        "channels_last": "breaks the script",
        "set_to_none": "gains less than 1%",
        "compile": "wins",
    }
    best = ("compile", "fused_optimizer")
    assert trials.children.ran == [
        *((), ("fused_optimizer",), ("channels_last",), ("set_to_none",)),
        *((), ("fused_optimizer",), ("set_to_none",)),
        *((), ("compile",), (), ("compile",)),
        *(("compile",), best, ("compile",), best),
        *((), best, (), best),
    ]
    assert [row.on_top_of for row in trials.rows] == [[], [], [], [], [], ["compile"]]
    assert trials.total.remedies == list(best)
    assert trials.total.gain == pytest.approx(0.3, abs=0.001)


def test_a_remedy_of_memory_is_judged_by_bytes_where_no_time_is_won():
    trials = scripted(lambda remedies: 22 if remedies else 20)
    as_scripted = trials.children.script_of

    def measured(remedies):
        made = as_scripted(remedies)
        made.peak_bytes = 600 if "checkpoint_blocks" in remedies else 1000
        made.reserved_bytes = 2000 if "expandable_segments" not in remedies else 1500
        return made

    trials.children.script_of = measured
    trials.claims = {"checkpoint_blocks": 390}
    names = ("checkpoint_blocks", "single_tensor_optimizer", "expandable_segments")
    trials.run([BY_NAME[each] for each in names])
    assert rows_of(trials) == {
        "checkpoint_blocks": "saves memory",
        "single_tensor_optimizer": "slower",
        "expandable_segments": "saves memory",
    }
    first = trials.rows[0]
    assert (first.base_peak_bytes, first.peak_bytes, first.claimed_bytes) == (1000, 600, 390)
    assert trials.rows[1].claimed_bytes is None
    assert not trials.best  # only what is faster is added up


def test_claims_are_those_of_the_sessions_recommendations():
    session = MEMORY / "gpt_eager.session.pt.trace.json.gz"
    claimed = trying.claims(session)
    found = {each.rule: each for each in load(session).memory_recommendations.ranked}
    assert claimed["checkpoint_blocks"] == found["kept_activations"].saved_bytes
    assert claimed["bf16_weights"] == found["weight_copies"].saved_bytes
    assert {"checkpoint_blocks", "chunked_loss"} <= {each.name for each in proposed(session)}


def test_what_wins_alone_and_nothing_on_top_is_not_kept():
    trials = scripted(lambda remedies: 18 if remedies else 20)
    trials.run([BY_NAME["compile"], BY_NAME["fused_optimizer"]])
    verdicts = [(row.verdict, row.on_top_of) for row in trials.rows]
    assert verdicts == [("wins", []), ("wins", []), ("gains less than 1%", ["compile"])]
    assert ([each.name for each in trials.best], trials.total) == (["compile"], None)


NUMBERS = itertools.count()


def varying(remedies):
    """A step that varies by 10%, and takes 10 ms less, or less of 2 ms, with a remedy."""
    saved = {"compile": 10, "tf32": 2}
    every = (1.0, 0.9, 1.1, 0.95, 1.05)
    return (20 - sum(saved.get(each, 0) for each in remedies)) * every[next(NUMBERS) % 5]


def test_a_small_gain_takes_more_pairs_than_a_large_one():
    trials = scripted(varying, pairs=6)
    trials.run([BY_NAME["tf32"], BY_NAME["compile"]])
    small, large = trials.rows
    assert (large.verdict, small.verdict) == ("wins", "undecided")
    assert 2 <= large.children < small.children == 6
    assert small.gain_low < small.gain < small.gain_high


def test_time_that_runs_out_leaves_what_was_measured():
    trials = scripted(step_ms)
    measure = trials.children.script_of

    def until(remedies):
        if len(trials.children.ran) > 5:
            raise StoppedError("the time of --limit is over")
        return measure(remedies)

    trials.children.script_of = until
    names = ("compile", "fused_optimizer", "set_to_none", "tf32")
    with pytest.raises(StoppedError) as stop:
        trials.run([BY_NAME[each] for each in names])
    trials.stop(str(stop.value))
    rows = [(row.remedies[0], row.verdict, row.base_children, row.children) for row in trials.rows]
    assert rows == [
        ("compile", "undecided", 2, 1),
        ("fused_optimizer", "undecided", 2, 1),
        ("set_to_none", "undecided", 2, 1),
        ("tf32", "undecided", 0, 0),
    ]
    first, *_, last = trials.rows
    assert (first.gain, first.gain_low) == (pytest.approx(0.2, abs=0.001), None)
    assert (first.reason, last.reason) == (
        "the time of --limit is over",
        "not run: the time of --limit is over",
    )
    answer = trials.answer()
    assert answer.stopped_by == "the time of --limit is over"
    assert trial_text(answer).startswith(
        "nothing won so far; undecided: compile, fused_optimizer, set_to_none, tf32 ("
    )


def test_time_that_runs_out_between_the_winner_and_the_next_keeps_the_winner():
    trials = scripted(step_ms)
    measure = trials.children.script_of

    def until(remedies):
        if len(remedies) > 1:
            raise StoppedError("the time of --limit is over")
        return measure(remedies)

    trials.children.script_of = until
    with pytest.raises(StoppedError):
        trials.run([BY_NAME["tf32"], BY_NAME["compile"]])
    trials.stop("the time of --limit is over")
    assert [each.name for each in trials.best] == ["compile"]
    assert (trials.rows[-1].on_top_of, trials.rows[-1].verdict) == (["compile"], "undecided")


def test_what_wins_is_recorded_and_says_what_changed(tmp_path):
    trials = scripted(step_ms)
    trials.run([BY_NAME["workers"], BY_NAME["compile"]])
    trials.record_changes(tmp_path, None)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["as_it_is", "compile"]
    row = trials.rows[1]
    assert trials.rows[0].changes == []
    assert [each.name for each in row.changes][:1] == ["(idle: data loader)"]
    assert row.changes[0].base_ns > row.changes[0].head_ns
    assert change_text(row.changes[0]).startswith("(idle: data loader) 1")


def verdicts_without_a_gain(base, head, tries=400):
    """Verdicts of trials of what gains nothing, whose children vary by these parts."""
    random = np.random.default_rng(0)
    for _ in range(tries):
        sides = Side(()), Side(())
        for pair in range(6):
            for side, part in zip(sides, (base, head), strict=True):
                step_ns = round(20 * MS * math.exp(random.normal(0, part)))
                side.runs.append(Measured(took_ns=[step_ns]))
            verdict = trying._verdict(gain(*sides, 5), "identical")
            if verdict != "undecided" or pair == 5:
                yield verdict
                break


@pytest.mark.parametrize(("base", "head"), [(0.03, 0.03), (0.002, 0.04)])
def test_looking_after_each_pair_is_wrong_in_five_percent_at_most(base, head):
    verdicts = list(verdicts_without_a_gain(base, head))
    wrong = verdicts.count("wins") + verdicts.count("slower")
    assert 0 < wrong <= 0.05 * len(verdicts) + 2 * (0.05 * 0.95 * len(verdicts)) ** 0.5


def test_what_is_faster_and_changes_the_losses_is_not_kept():
    trials = scripted(step_ms, losses={("compile",): 0.6})
    trials.run([BY_NAME["compile"]])
    assert rows_of(trials) == {"compile": "changes the losses"}
    assert (trials.best, trials.rows[0].losses) == ([], "different")


def test_what_is_slower_says_so():
    trials = scripted(lambda remedies: 20 + 5 * len(remedies))
    trials.run([BY_NAME["workers"]])
    assert rows_of(trials) == {"workers": "slower"}


def test_the_screen_has_a_row_for_each_remedy_and_the_edit(capsys):
    trials = scripted(step_ms, unpatched=("workers",), broken=("channels_last",))
    trials.run([BY_NAME[each] for each in ("compile", "workers", "channels_last", "tf32")])
    changed = BreakdownChange(name="forward", base_ns=7.5 * MS, head_ns=4.25 * MS)
    trials.rows[0] = msgspec.structs.replace(trials.rows[0], changes=[changed])
    answer = msgspec.structs.replace(trials.answer([BY_NAME["no_sync"]]), duration_ns=90 * 10**9)
    try_._print(answer)
    assert capsys.readouterr().out == SCREEN


SCREEN = """\
remedy                         without       with    gain  95% interval      verdict
compile                       20.00 ms   16.00 ms   20.0%  19.5% to 20.5%    wins
    2 and 2 runs, losses identical, start-up 0.0 s (+0.0)
    recorded step: forward 7.50 ms to 4.25 ms
tf32                          20.00 ms   19.01 ms    5.0%  4.4% to 5.6%      wins
    2 and 2 runs, losses identical, start-up 0.0 s (+0.0)
+ tf32                        16.01 ms   15.01 ms    6.2%  5.6% to 6.8%      wins
    2 and 2 runs, losses identical, start-up 0.0 s (+0.0)
workers: not applicable: the script makes no DataLoader
channels_last: breaks the script: RuntimeError: no such kernel

95% interval: Welch's, of the runs' median steps
best set: compile, tf32: 20.01 ms to 15.01 ms a step, 25.0% less (saves 24.5% to 25.5%), \
losses identical: wins (16 runs in 90 s)
edit by hand: model.compile(), once the model is made: compile
edit by hand: torch.set_float32_matmul_precision("high"): tf32
edit by hand: with model.no_sync(): around all micro-batches but the last: no_sync, which \
cannot be tried from outside
"""


def test_a_report_says_first_what_was_measured(tmp_path, capsys):
    session = Session(gpu_step().recording).save(tmp_path)
    trials = scripted(step_ms)
    trials.run([BY_NAME["compile"]])
    answer = msgspec.structs.replace(trials.answer(), duration_ns=40 * 10**9)
    written = keep(answer, tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "Measured by profiler-ext try: best set: compile: 20.00 ms to 16.00 ms a step, 20.0% less "
        "(saves 19.5% to 20.5%), losses identical: wins (4 runs in 40 s)",
        "  compile (for uncompiled, python_loop, launch_bound): 20.00 ms to 16.00 ms a "
        "step, 20.0% less (saves 19.5% to 20.5%): wins",
    ]
    for words in ([], ["--findings"]):
        assert cli.main(["report", str(tmp_path), "--format", "json", *words]) == 0
        measured = json.loads(capsys.readouterr().out)["measured"]
        assert [(row["remedies"], row["verdict"]) for row in measured["rows"]] == [
            (["compile"], "wins")
        ]
    os.utime(written, ns=(0, session.stat().st_mtime_ns - 1))
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "Measured by" not in capsys.readouterr().out


def test_a_report_says_nothing_of_trials_without_a_remedy(tmp_path, capsys):
    Session(gpu_step().recording).save(tmp_path)
    answer = scripted(step_ms).answer()
    keep(answer, tmp_path)
    assert trial_text(answer).startswith("nothing was tried (0 runs")
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "Measured by" not in capsys.readouterr().out


def test_what_is_slower_takes_more():
    trials = scripted(lambda remedies: 20 + 5 * len(remedies))
    trials.run([BY_NAME["workers"]])
    assert row_text(trials.rows[0]) == (
        "workers (for data_loader): 20.00 ms to 25.00 ms a step, 25.0% more (saves -25.8% to "
        "-24.2%): slower"
    )


def test_a_file_beside_a_session_that_is_no_answer_is_refused(tmp_path, capsys):
    Session(gpu_step().recording).save(tmp_path)
    (tmp_path / "try.json").write_text("[]")
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "try.json is no answer of profiler-ext try" in capsys.readouterr().err


def test_a_script_that_cannot_be_timed_ends_the_trials():
    trials = scripted(step_ms, broken=("",))
    trials.children.script_of = lambda _: Measured(error="ValueError: no data")
    with pytest.raises(UsageError, match="the script as it is cannot be timed: ValueError"):
        trials.run([BY_NAME["compile"]])


def side(*medians_ms: float, losses=(1.0,), dtype="float32") -> Side:
    runs = [
        Measured(took_ns=[round(each * MS)], losses=list(losses), loss_dtype=dtype)
        for each in medians_ms
    ]
    return Side((), runs)


def test_the_interval_is_welchs_of_the_logarithms_of_the_childrens_medians():
    saved = gain(side(10.0, 10.2), side(8.0, 8.1), 1)
    # Variances of the means 9.80e-5 and 3.86e-5, 1.68 degrees of freedom, t of 5.15
    assert saved.value == pytest.approx(1 - math.sqrt(8.0 * 8.1 / (10.0 * 10.2)))
    assert math.log((1 - saved.low) / (1 - saved.value)) == pytest.approx(0.0603, abs=0.0005)
    assert math.log((1 - saved.value) / (1 - saved.high)) == pytest.approx(0.0603, abs=0.0005)


def test_each_of_several_looks_has_a_wider_interval():
    sides = side(10.0, 10.2), side(8.0, 8.1)
    assert gain(*sides, 5).low < gain(*sides, 1).low
    assert gain(side(10.0), side(8.0), 5) == Gain(pytest.approx(0.2))


def test_steps_that_vary_within_a_child_widen_the_interval():
    steady, varying = side(10.0, 10.0), side(10.0, 10.0)
    for each in varying.runs:
        each.took_ns = [round(ms * MS) for ms in (8.0, 9.0, 10.0, 11.0, 12.0)]
    assert gain(varying, varying, 1).high > 10 * gain(steady, steady, 1).high


def test_children_that_agree_by_chance_have_the_least_deviation():
    saved = gain(side(10.0, 10.0), side(10.0, 10.0), 1)
    assert saved.high == pytest.approx(4.303 * 0.0015, rel=1e-2)


@pytest.mark.parametrize(
    ("base", "head", "precision", "expected"),
    [
        ((1.0, 0.5), (1.0, 0.5), "float32", ("identical", 0.0)),
        (
            (1.0, 0.5),
            (1.0, 0.50001),
            "float32",
            ("within tolerance", pytest.approx(2e-5, rel=0.01)),
        ),
        ((1.0, 0.5), (1.0, 0.51), "float32", ("different", pytest.approx(0.02, rel=0.05))),
        ((1.0, 0.5), (1.0, 0.505), "bfloat16", ("within tolerance", pytest.approx(0.01, rel=0.05))),
        ((1.0, 0.5), (1.0, math.nan), "bfloat16", ("different", math.inf)),
        ((), (), "float32", ("unknown", None)),
    ],
)
def test_losses_are_compared_in_the_precision_of_the_remedy(base, head, precision, expected):
    assert loss_difference(side(1, losses=base), side(1, losses=head), precision) == expected


def test_losses_of_a_script_without_a_seed_say_nothing():
    unlike = side(1, losses=(1.0,))
    unlike.runs += side(1, losses=(2.0,)).runs
    assert loss_difference(unlike, side(1, losses=(1.0,)), "float32") == ("unknown", None)


SOURCE = b"""\
\"\"\"Trains.\"\"\"

import torch
import sys

stra\xc3\x9fe = 1; model = torch.compile(net, fullgraph=True)
optimizer = AdamW(
    parameters,
    lr=1,
)
loader = DataLoader(**options)
"""


def sites_of(file: Path, text: str, end_line: int = 0) -> list[Site]:
    """Return the place of a call, as the running script gives it."""
    source = SOURCE.decode()
    at = source.index(text)
    line = source[:at].count("\n") + 1
    column = len(source[source.rfind("\n", 0, at) + 1 : at].encode())
    last = text.rpartition("\n")[2]
    lines = text.count("\n")
    return [Site(str(file), line, line + lines, column, len(last) + (0 if lines else column))]


def test_edits_add_arguments_and_statements_and_leave_the_rest_by_hand(tmp_path):
    file = tmp_path / "train.py"
    file.write_bytes(SOURCE)
    calls = {
        "combo_kernels": "torch.compile(net, fullgraph=True)",
        "coordinate_descent_tuning": "torch.compile(net, fullgraph=True)",
        "fused_optimizer": "AdamW(\n    parameters,\n    lr=1,\n)",
        "workers": "DataLoader(**options)",
    }
    remedies = [(BY_NAME[name], sites_of(file, text)) for name, text in calls.items()]
    edits = edits_of([*remedies, (BY_NAME["tf32"], [])], file, tmp_path)
    assert edits.by_hand == ("workers",)
    assert [line for line in edits.diff.splitlines() if line[:1] in "+-"][2:] == [
        '+torch.set_float32_matmul_precision("high")',
        "-straße = 1; model = torch.compile(net, fullgraph=True)",
        "+straße = 1; model = torch.compile(net, fullgraph=True, "
        'options={"combo_kernels": True, "coordinate_descent_tuning": True})',
        "-    lr=1,",
        "+    lr=1, fused=True,",
    ]


FINDINGS = Path(__file__).parents[1] / "fixtures/h200/findings"
MEMORY = FINDINGS.parent / "memory"


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("uncompiled", ["compile"]),
        ("layout_conversion", ["cudnn_benchmark", "channels_last"]),
        ("data_loader", ["workers", "prefetch_factor", "persistent_workers", "pin_memory"]),
    ],
)
def test_findings_of_a_session_propose_what_remedies_them(name, first):
    proposals = [each.name for each in proposed(FINDINGS / f"{name}.session.pt.trace.json.gz")]
    at = proposals.index(first[0])
    assert proposals[at : at + len(first)] == first
    assert len(set(proposals)) == len(proposals)


def test_without_names_what_the_findings_propose_is_tried(tmp_path, monkeypatch, capsys):
    def recorded(self, output, remedies=(), *, memory=False):
        self.count += 1
        shutil.copy(FINDINGS / "data_loader.session.pt.trace.json.gz", output / FILE_NAME)

    trials = scripted(step_ms, unpatched=("pin_memory",))
    monkeypatch.setattr(Children, "record", recorded)
    for name in ("measure", "applicable"):
        as_scripted = getattr(trials.children, name)
        monkeypatch.setattr(Children, name, lambda self, names, run=as_scripted: run(names))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    assert cli.main(["try", "--pairs", "2", "--", "train.py", "--lr", "1"]) == 0
    printed = capsys.readouterr()
    proposals = [each.name for each in proposed(tmp_path / "profile_out")]
    tried = [each for each in proposals if BY_NAME[each].apply]
    assert "workers" in tried
    run = [name for name in tried if name != "pin_memory"]
    assert sorted(names for names in trials.children.ran if names) == sorted(
        (name,) for name in run for _ in range(2)
    )
    assert printed.err.splitlines() == [
        "profiler-ext: records train.py --lr 1 once, to see what to try; each run has "
        "PROFILER_EXT_TRY=1 in its environment",
        f"profiler-ext: runs train.py --lr 1 at most {1 + 12 + 16 + 5} times, fewer once it is "
        "decided, in its own folder: what it writes is written each time (--copy), each until its "
        f"steps are steady and for 10 more or 2 s, with and without: {', '.join(tried)}",
    ]
    assert "pin_memory: not applicable: the script makes no DataLoader" in printed.out
    assert "nothing won: leave the script as it is" in printed.out


def test_unknown_names_and_those_that_cannot_be_tried_are_refused():
    with pytest.raises(UsageError, match="no remedy fused_optimiser; did you mean fused_optimizer"):
        named(["fused_optimiser"])
    with pytest.raises(UsageError, match="no_sync cannot be patched in; edit it: with model"):
        named(["no_sync"])


def test_a_script_is_named_after_two_dashes(capsys):
    assert cli.main(["try", "tf32", "train.py"]) == 2
    assert "name the script after --: profiler-ext try tf32 -- train.py" in capsys.readouterr().err


def test_the_list_has_every_remedy(capsys):
    assert cli.main(["try", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {each.name} " in printed for each in REMEDIES)
