"""Steps of inference are of kinds by their tokens, and a mean is of one kind alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.errors import UsageError
from profiler_ext.exporters.table_kinds import table_named
from profiler_ext.exporters.views.steps import kind_texts, usual_kind_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import StepCall, StepCalls
from profiler_ext.records.step_kinds import kind_of, kinds_of_steps, of_usual_kind
from profiler_ext.records.vocabulary import StepKind
from tests.findings.stepping import MS, US, Script

TARGET, DRAFT = "the module `T`", "the module `D`"


def calls(*lengths: int, batch: int = 2, context: int | None = None) -> tuple[StepCall, ...]:
    return tuple(StepCall(TARGET, batch, length, context) for length in lengths)


@pytest.mark.parametrize(
    ("lengths", "kind"),
    [
        ((), StepKind.BETWEEN),
        ((1,), StepKind.DECODE),
        ((512,), StepKind.PREFILL),
        ((2,), StepKind.PREFILL),  # a prompt of two tokens
        ((1, 1, 1, 1, 5), StepKind.SPECULATIVE),
        ((2, 1, 1, 1, 5), StepKind.SPECULATIVE),  # after tokens that were all accepted
        ((1, 1, 1, 21), StepKind.PREFILL),  # the first round of a prompt
    ],
)
def test_the_kind_of_a_step_is_by_its_tokens(lengths: tuple[int, ...], kind: StepKind) -> None:
    assert kind_of(calls(*lengths)) is kind


def generation() -> Analysis:
    """A prefill of 10 ms, two tokens of 1 ms, and two more before the recording of 0.8 ms."""
    script = Script()
    for launch_ns in (10 * MS, MS, MS):
        script.launch("kernel", launch_ns, op="aten::mm", cost_ns=20 * US)
        script.wait()
        script.end_step()
    analysis = script.analysis()
    steps = (
        *(StepCalls(None, calls(1, context=at), 800 * US) for at in (40, 41, 42)),
        StepCalls(0, calls(64, context=64)),
        StepCalls(1, calls(1, context=65)),
        StepCalls(2, calls(1, context=66)),
        StepCalls(9, calls(1)),  # recorded, and no step
    )
    recording = analysis.recording
    settings = replace(
        recording.settings,
        step_calls=steps,
        unprofiled_steps_ns=(800 * US,) * 3,
        unprofiled_steps_on_device=True,
    )
    return replace(analysis, recording=replace(recording, settings=settings))


def test_kinds_have_their_steps_batch_tokens_and_times() -> None:
    decode, prefill = kinds_of_steps(generation())
    assert (decode.kind, [each.number for each in decode.steps]) == (StepKind.DECODE, [1, 2])
    assert (decode.batch, decode.length, decode.context) == ((2, 2), (1, 1), (40, 66))
    assert decode.unprofiled_ns == (800 * US,) * 3
    assert (prefill.kind, prefill.tokens) == (StepKind.PREFILL, 128)
    assert prefill.unprofiled_ns == ()


def test_each_kind_has_a_line_with_its_own_rate() -> None:
    decode, prefill = kind_texts(generation())
    assert decode.startswith("decode: 2 steps, 2 x 1 tokens of 40-66, 800 us a token, 2,500")
    assert prefill.startswith("prefill: 1 step, 2 x 64 tokens, 10.0 ms a step while profiling, 12,")
    assert "--step-kind prefill" in usual_kind_text(generation())


def test_sums_are_of_the_usual_kind_unless_another_is_asked_for() -> None:
    analysis = generation()
    coverage = table_named("coverage")

    def mean_ns(**filters: object) -> float:
        return float(coverage.make(analysis, **filters)["per_step_ns"].data.sum())

    decode = [step.wall_ns for step in analysis.steps[1:]]
    assert mean_ns() == sum(decode) / 2 == mean_ns(step_kind="decode")
    assert mean_ns(step_kind="prefill") == analysis.steps[0].wall_ns == mean_ns(step=0)
    assert mean_ns(step_kind="all") == sum(step.wall_ns for step in analysis.steps) / 3
    with pytest.raises(UsageError, match="ask for one of decode, prefill"):
        mean_ns(step_kind="speculative")
    with pytest.raises(UsageError, match="no kind of steps 'tokens'"):
        mean_ns(step_kind="tokens")


def test_of_one_kind_it_is_the_analysis_itself() -> None:
    usual = of_usual_kind(generation())
    assert [step.number for step in usual.steps] == [1, 2]
    assert sorted(set(usual.launches.step.compressed().tolist())) == [1, 2]
    assert of_usual_kind(usual) is usual
    assert usual_kind_text(usual) == ""


def test_each_step_has_a_row_with_its_tokens() -> None:
    table = table_named("by_step").make(generation())
    rows = [(row["step"], row["step_kind"], row["tokens"]) for row in table.records()]
    assert rows == [(0, "prefill", 128), (1, "decode", 2), (2, "decode", 2)]
    wall_ns = table["wall_ns"].tolist()
    assert table["tokens_per_s"].tolist()[1] == round(2e9 / wall_ns[1])


def test_a_program_that_decodes_nothing_runs_over_whole_sequences() -> None:
    analysis = generation()
    recording = analysis.recording
    steps = tuple(StepCalls(number, calls(256)) for number in range(3))
    settings = replace(recording.settings, step_calls=steps, unprofiled_steps_ns=())
    scored = replace(analysis, recording=replace(recording, settings=settings))
    (only,) = kinds_of_steps(scored)
    assert (only.kind, len(only.steps)) == (StepKind.SEQUENCES, 3)
    assert of_usual_kind(scored) is scored


def test_times_of_other_kinds_are_none_of_its_own() -> None:
    """Where prefills alone were recorded, the steps before are no measure of them."""
    analysis = generation()
    recording, prefill = analysis.recording, analysis.steps[:1]
    only = replace(analysis, recording=recording, steps=prefill)
    assert of_usual_kind(only).recording.settings.unprofiled_steps_ns == ()


def test_accepted_tokens_are_what_the_mask_grew_by() -> None:
    analysis = generation()
    rounds = (1, 1, 1, 4)
    steps = tuple(
        StepCalls(number, calls(*rounds, batch=1, context=context))
        for number, context in enumerate((40, 43, 44))
    )
    settings = replace(analysis.recording.settings, step_calls=steps, unprofiled_steps_ns=())
    analysis = replace(analysis, recording=replace(analysis.recording, settings=settings))
    (only,) = kinds_of_steps(analysis)
    assert (only.kind, only.accepted) == (StepKind.SPECULATIVE, 2.0)
    (text,) = kind_texts(analysis)
    assert "at most" not in text
