"""The first screen: 25 lines of 80 columns with the verdict, what to do, and where the time is."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from profiler_ext.exporters.terminal.first_screen import LINES, next_steps, print_first_screen
from profiler_ext.exporters.views.findings import short_remedy
from profiler_ext.exporters.views.formatting import time_text
from profiler_ext.records.vocabulary import Scope
from profiler_ext.sessions.merging import MergedSession, load, merge
from profiler_ext.sessions.session import Session

FIXTURES = Path(__file__).parents[1] / "fixtures" / "h200"
RECORDED = sorted(FIXTURES.rglob("*.session.pt.trace.json.gz"))
WORKED = FIXTURES / "worked"
every_recording = pytest.mark.parametrize(
    "path", RECORDED, ids=lambda path: path.name.split(".session")[0]
)


def screen(session: Session | MergedSession, width: int = 80, folder: str = "profile_out") -> str:
    file = io.StringIO()
    steps = next_steps(session, Path(folder))
    print_first_screen(session, Console(file=file, width=width), steps)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def worked(name: str) -> Session | MergedSession:
    return load(WORKED / f"{name}.session.pt.trace.json.gz")


@pytest.mark.sweep
@every_recording
@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_a_terminal(path: Path, width: int) -> None:
    session = load(path)
    lines = screen(session, width).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= width
    tried = [line.partition(" try: ")[2] for line in lines if " try: " in line]
    remedies = [each.remedy for each in session.recommendations.ranked[: len(tried)]]
    for text, remedy in zip(tried, remedies, strict=True):  # whole, or up to the end of a clause
        rest = remedy.removeprefix(text.removesuffix("…"))
        assert rest != remedy and rest.startswith(("; ", ", ", ": ", " (")) == bool(rest)


@pytest.mark.sweep
@every_recording
def test_its_breakdown_adds_up_to_the_recorded_step(path: Path) -> None:
    session = load(path)
    coverage = session.coverage()
    text = screen(session, 120)
    for scope in Scope:
        own = coverage[coverage["scope"] == scope]
        if own["duration_ns"].sum():
            shown = re.search(rf"^{scope.label} +(\S+ \S+) ", text, re.MULTILINE)
            assert shown is not None and shown[1] == time_text(own["per_step_ns"].sum())
    if len(coverage):
        total = re.search(r"^((?:mean )?step.*?) +(\S+ \S+) +100.0%", text, re.MULTILINE)
        assert total is not None and total[2] == time_text(coverage["per_step_ns"].sum())
        if total[1] == "step":  # the title's: one name, one number
            assert re.match(rf"Step {re.escape(total[2])}\b", text)


def test_the_largest_cause_stands_in_its_first_line() -> None:
    first, *_ = screen(worked("gpt_compiled")).splitlines()
    assert first == ("Step 16.7 ms (26.8 ms while profiling), GPU busy 80.9%: CPU launch overhead")
    first, *_ = screen(worked("gpt_graphs")).splitlines()
    assert first == "Step 13.5 ms (14.3 ms while profiling): GPU-bound, busy 100.0%"


def test_a_job_that_waits_for_its_collectives_says_so() -> None:
    ranks = [load(WORKED / f"fsdp2.rank_{rank}.session.pt.trace.json.gz") for rank in (0, 1)]
    assert screen(ranks[0]).startswith("Step 131 ms, exposed communication 82.8%\n")


def test_of_several_ranks_it_names_the_one_that_the_others_wait_for() -> None:
    ranks = [load(WORKED / f"fsdp2.rank_{rank}.session.pt.trace.json.gz") for rank in (0, 1)]
    merged = merge([each for each in ranks if isinstance(each, Session)])
    first, second, *_ = screen(merged, 120).splitlines()
    assert first == "2 ranks: Step 131 ms, GPU busy 56.3%: CPU launch overhead"
    assert second.startswith("rank 1 came last ")


def test_a_recommendation_has_two_lines() -> None:
    _, what, remedy, *_ = screen(worked("gpt_compiled"), 120).splitlines()
    assert what == " 2.29 ms  13.7%  GPU idle: the CPU is launch-bound (estimated)"
    assert remedy.strip().startswith("try: torch.compile(model, mode='reduce-overhead'), ")


def test_modules_come_where_one_line_has_most_of_the_time() -> None:
    text = screen(worked("infer_default"))
    (lines, modules) = (text.index("\nline "), text.index("\nmodule "))
    assert lines < modules and "  blocks.* x12 " in text[modules:]
    assert "\nmodule " not in screen(worked("gpt_compiled"))


def test_its_last_line_says_what_to_do_next() -> None:
    *_, last = screen(worked("gpt_compiled"), 200).splitlines()
    assert last == (
        "next: profiler-ext open | explain gpt.py:36 | report --by module | report --verbose"
    )
    *_, last = screen(worked("gpt_compiled"), 200, "a b").splitlines()
    assert "profiler-ext open 'a b' | explain 'a b' gpt.py:36 |" in last


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [
        ("AdamW(..., fused=True)", "AdamW(..., fused=True)"),
        (
            "torch.compile(model, mode='reduce-overhead'), which replays CUDA graphs; or a batch",
            "torch.compile(model, mode='reduce-overhead')…",
        ),
        (
            "pad (to 8, or 64) what the last layer takes, then measure it all again",
            "pad (to 8, or 64) what the last layer takes…",
        ),
        (
            "one function that calls the model and computes the whole loss in one go",
            "one function that calls the model and computes the whole loss in one go",
        ),
    ],
)
def test_a_remedy_ends_with_a_clause_that_fits(remedy: str, shown: str) -> None:
    assert short_remedy(remedy, 58) == shown
