"""What a condition says, and where one that is none goes wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.comparison.conditions import Condition, Kind, Limit, Unit, parse
from profiler_ext.errors import UsageError
from profiler_ext.records.vocabulary import Phase

FIVE = Limit(1, 0.05, Unit.PART)


@pytest.mark.parametrize(
    ("text", "kind", "limits", "more"),
    [
        ("total > +5%", Kind.TOTAL, (FIVE,), {}),
        ("total>+5%", Kind.TOTAL, (FIVE,), {}),
        ("device < -5%", Kind.DEVICE, (Limit(-1, 0.05, Unit.PART),), {}),
        ("idle > +0.2ms", Kind.IDLE, (Limit(1, 0.2e6, Unit.NS),), {}),
        (
            "idle data_loader > +.5us",
            Kind.IDLE,
            (Limit(1, 500.0, Unit.NS),),
            {"name": "data_loader"},
        ),
        ("phase backward > +1s", Kind.PHASE, (Limit(1, 1e9, Unit.NS),), {"phase": Phase.BACKWARD}),
        (
            "module layers.*.mlp backward > +5%",
            Kind.MODULE,
            (FIVE,),
            {"name": "layers.*.mlp", "phase": Phase.BACKWARD},
        ),
        (
            "line src/gpt.py:30-40 > +5% and > +20ns",
            Kind.LINE,
            (FIVE, Limit(1, 20.0, Unit.NS)),
            {"name": "src/gpt.py", "lines": (30, 40)},
        ),
        ("line gpt.py:7 > +5%", Kind.LINE, (FIVE,), {"name": "gpt.py", "lines": (7, 7)}),
        ("each line *.py > +5%", Kind.LINE, (FIVE,), {"name": "*.py", "is_each": True}),
        ("op addmm > +5%", Kind.OP, (FIVE,), {"name": "addmm"}),
        (
            'kernel "void gemm<float, 4>*" > +5%',
            Kind.KERNEL,
            (FIVE,),
            {"name": "void gemm<float, 4>*"},
        ),
        ("compile > +20%", Kind.COMPILE, (Limit(1, 0.2, Unit.PART),), {}),
        ("session_size > +2MB", Kind.SESSION_SIZE, (Limit(1, 2e6, Unit.BYTES),), {}),
    ],
)
def test_a_condition_says_what_it_is_of_and_its_limits(text, kind, limits, more) -> None:
    found = parse(text)
    assert [limit.amount for limit in found.limits] == pytest.approx([x.amount for x in limits])
    assert [(x.sign, x.unit) for x in found.limits] == [(x.sign, x.unit) for x in limits]
    assert found == Condition(text, kind, found.limits, **more)


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("", "at its end (character 1)", "what it is of (total, device, "),
        ("modul x > +5%", "at 'modul' (character 1)", "what it is of (total, device, "),
        ("module > +5%", "at '>' (character 8)", "the module that is meant, such as layers.*.mlp"),
        ("module x backwrd > +5%", "at 'backwrd' (character 10)", "a phase (forward, backward, "),
        ("total", "at its end (character 6)", "> or <"),
        ("total > 5%", "at '5%' (character 9)", "+NUMBER with %, ns, us, ms, s, such as +5%"),
        ("total > -5%", "at '-5%' (character 9)", "+NUMBER with"),
        ("total < +5%", "at '+5%' (character 9)", "-NUMBER with %, ns, us, ms, s, such as -5%"),
        ("total > +5", "at '+5' (character 9)", "+NUMBER with"),
        ("total > +5MB", "at '+5MB' (character 9)", "+NUMBER with %, ns, us, ms, s"),
        ("session_size > +5ms", "at '+5ms' (character 16)", "+NUMBER with %, B, KB, MB, GB"),
        ("total > +5% or > +1ms", "at 'or' (character 13)", "and, or the end"),
        ("total > +5% and < -1ms", "at '<' (character 17)", "> as in the first limit"),
        ("each total > +5%", "at 'total' (character 6)", "one of line, module, op, kernel after"),
        ("phase sideways > +5%", "at 'sideways' (character 7)", "a phase (forward, backward, "),
        ("line x.py:40-30 > +5%", "at 'x.py:40-30' (character 6)", "lines in order"),
        ("line x.py:0 > +5%", "at 'x.py:0' (character 6)", "lines in order, counted from 1"),
        ('kernel "x > +5%', "at '\"' (character 8)", "the kernel that is meant"),
    ],
)
def test_what_is_no_condition_is_refused_in_a_sentence_that_shows_where(
    text, where, expected
) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    reported = str(raised.value)
    assert reported.startswith(
        f"the condition {text!r} is not understood {where}: expected {expected}"
    )


@given(
    st.lists(
        st.sampled_from(
            (
                "each",
                "total",
                "line",
                "module",
                "x.py:3",
                "*",
                "backward",
                ">",
                "<",
                "+5%",
                "-1ms",
                "and",
                '"',
                "é",
            )
        ),
        max_size=9,
    ).map(" ".join)
)
def test_any_words_are_a_condition_or_one_error(text: str) -> None:
    try:
        assert parse(text).text == text
    except UsageError as error:
        assert "expected" in str(error)
