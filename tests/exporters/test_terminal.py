"""The terminal shows the breakdown first, fits its width, and takes names as they are."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from profiler_ext.errors import UsageError
from profiler_ext.exporters.terminal.report import print_session
from profiler_ext.exporters.views.formatting import percent_text, short_path, time_text
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis, BreakdownRow, Step
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.sessions.session import Session
from tests.analyses import GPU_PLACES, cpu_step, gpu_step, report, session_of
from tests.handmade import launches, shares, trace

REPORT = """\
Step time breakdown                       time/step  % step  of the step
compiled: attributed to source               130 us   13.0%  █▍
compiled: library ca…th an open boundary    20.0 us    2.0%  ▏
eager: attributed to ATen ops only          74.5 us    7.5%  ▊
device idle                                  775 us   77.5%  ████████▌
  launch latency                             278 us   27.8%
  end of the step                            240 us   24.0%
  CPU launch overhead                        142 us   14.2%
  Python between ops                        66.0 us    6.6%
  inter-kernel gap                          50.0 us    5.0%
total                                       1.00 ms  100.0%
Attributed to source: compiled 86.7%.
Backward matched to forward: 77.8%.
Unattributed, of busy time: ambiguous_extern_run 8.9%.
idle 240 us: end of the step, the CPU in Python outside of any op
idle 147 us: launch latency, the CPU in Optimizer.step#AdamW.step
idle 93.5 us: CPU launch overhead, the CPU in aten::_fused_adamw_
idle 295 us: 12 more
"""
FIRST = """\
train.py · torch 2.11.0 · NVIDIA H200 · 1 step · 9 launches
Top recommendations: step 1.00 ms
 148 us   14.8%  GPU idle: the CPU is launch-bound
                 launch_bound · estimated · launches a step: 9 · idle in
                 the recorded step: 725 us · the step without recording,
                 estimated: 690 us · median launch: 20.0 us · compiled:
                 55.6% · replayed by CUDA graphs: 0.0%
                 try: torch.compile(model, mode='reduce-overhead'),
                 which replays CUDA graphs; or a larger batch
"""
LINES = """\
line              code            time/step  % busy  forward  backward     rest
model.py:12       h = self.up(x)     100 us   42.6%  50.0 us   50.0 us
(no source line)                    74.5 us   31.8%                     74.5 us
model.py:13       h = F.gelu(h)     33.3 us   14.2%  13.3 us   20.0 us
(2 more)                            26.7 us   11.4%  6.67 us   20.0 us
"""


EACH_PHASE = {"forward", "backward", "grad. acc.", "optimizer", "other"}


def renamed(**change):
    """The GPU step, with one of its places changed."""
    first, second, *others = GPU_PLACES
    return replace(gpu_step(), places=(first, replace(second, **change), *others))


def nothing():
    recording = Recording(trace=trace(()))
    return Analysis(recording, (), launches((), ()), (), shares(()), notes=("capture was off",))


def table_of(text):
    return text.split("\n\n")[-1]


def printed(analysis, **settings):
    file = io.StringIO()
    print_session(session_of(analysis), Console(file=file, **settings), verbose=True)
    return file.getvalue()


def test_what_to_do_stands_first_and_then_the_step_time_breakdown():
    first, breakdown, _ = report(gpu_step(), width=72).split("\n\n")
    assert (first + "\n", breakdown + "\n") == (FIRST, REPORT)


def test_links_are_rules_and_what_has_none_says_what_it_is():
    head, *found = table_of(report(gpu_step(), by="link", width=72)).splitlines()
    assert [line[: head.index("time/step") - 1].rstrip() for line in found] == [
        "(no source line)",
        "(not backward)",
        "seq_nr",
        "(library cal…en boundary)",
    ]


def test_the_top_lines_have_forward_and_backward_time():
    assert table_of(report(gpu_step(), width=80, top=3)) == LINES


def test_a_wide_terminal_shows_every_phase():
    head, _, second, *_ = table_of(report(gpu_step(), width=132, top=3)).splitlines()
    first = head.index("forward")
    assert head[first:] == "forward  backward  grad. acc.  optimizer    other  of the step"
    assert second[first:] == f"{' ' * 22}4.00 us    60.5 us  10.0 us  █▏"


def microseconds(text):
    number, unit = text.split()
    return float(number) * {"ns": 0.001, "us": 1, "ms": 1000}[unit]


@pytest.mark.parametrize("by", ["line", "module", "op", "link"])
@pytest.mark.parametrize("width", [60, 72, 80, 90, 100, 120, 150, 200])
def test_the_phases_that_a_table_shows_add_up_to_each_row_s_time_at_every_width(by, width):
    head, *rows = table_of(report(gpu_step(), by=by, width=width, top=2)).splitlines()
    names = "time/step|forward|backward|rest|grad. acc.|optimizer|other"
    columns = re.compile(names).finditer(head, head.index("time/step"))
    ends = {column[0]: column.end() for column in columns}
    assert ends.keys() - {"time/step"} in (set(), {"forward", "backward", "rest"}, EACH_PHASE)
    for row in rows if len(ends) > 1 else ():
        cells = {
            name: re.search(r"[\d.]+ \ws$", row.ljust(end)[:end]) for name, end in ends.items()
        }
        known = {name: microseconds(cell[0]) for name, cell in cells.items() if cell}
        assert sum(known.values()) == pytest.approx(2 * known["time/step"], abs=0.6)


@pytest.mark.parametrize("width", [80, 100, 120, 145])
def test_the_code_of_a_line_stands_next_to_it_at_every_width(width):
    head, first, *_ = table_of(report(gpu_step(), width=width)).splitlines()
    assert first[head.index("code") :].startswith("h = self.up(x)")
    assert first.startswith("model.py:12")


@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
@pytest.mark.parametrize("by", ["line", "module", "op", "kernel", "phase", "link", "mechanism"])
def test_no_line_is_wider_than_the_terminal(width, by):
    text = report(gpu_step(), by=by, width=width)
    assert max(map(len, text.splitlines())) <= width
    _, *rest = text.split("\n\n")  # what to do is wrapped
    _, *wide = report(gpu_step(), by=by, width=300).split("\n\n")
    assert [len(part.splitlines()) for part in rest] == [len(part.splitlines()) for part in wide]


def test_a_long_path_keeps_its_end():
    text = report(renamed(file="/home/ann/gpt/" + "deep/" * 30 + "model.py"), width=80)
    shown = [line.split()[0] for line in table_of(text).splitlines()[1:]]
    assert "…eep/model.py:12" in shown


def test_phases_are_named_once():
    assert table_of(report(cpu_step(), by="phase", width=60)) == (
        "phase      time/step  % busy  of the step\n"
        "forward       160 us   76.2%  ███▌\n"
        "optimizer    50.0 us   23.8%  █\n"
    )


def test_names_are_no_markup():
    text = printed(renamed(file="/[bold]a[/bold]/[/].py", code="[red]x[/red]"), width=200)
    assert "/[bold]a[/bold]/[/].py:12" in text
    assert "[red]x[/red]" in text


def test_names_do_not_steer_the_terminal():
    text = printed(renamed(file="/a\x1b]0;owned\x07\n.py"), width=132)
    assert "/a\ufffd]0;owned\ufffd\ufffd.py:12" in text
    assert "\x1b" not in text


def test_a_terminal_without_unicode_gets_plain_bars():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    print_session(session_of(cpu_step()), Console(file=file, width=80), verbose=True)
    file.seek(0)
    assert "compiled: attributed to source         160 us   32.0%  ####       " in file.read()


def test_several_steps_are_listed_with_their_busy_part():
    steps = tuple(
        Step.on_cpu(number, number * 100, number * 100 + 100 + 4 * (number == 9))
        for number in range(10)
    )
    breakdown = (
        BreakdownRow(0, 0, "eager", "op", "op", 25),
        BreakdownRow(0, 0, "idle", None, "idle", 75),
    )
    text = report(replace(gpu_step(), steps=steps, breakdown=breakdown), width=80)
    assert "step 0: 100 ns, device busy 25.0%\nstep 1: 100 ns\n" in text
    assert "step 7: 100 ns\nand 2 more: 100 - 104 ns\n" in text


def test_nothing_recorded_says_so_and_keeps_the_notes():
    assert report(nothing()) == (
        "profile · 0 steps · 0 launches\n"
        "No step was profiled, so there is nothing to sum.\n"
        "note: capture was off\n"
    )


def test_a_notebook_gets_text_and_no_display(monkeypatch):
    expected = report(gpu_step(), width=72)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert report(gpu_step(), width=72) == expected


def test_a_notebooks_own_command_line_is_not_shown():
    step = gpu_step()
    settings = replace(step.recording.settings, command=("/x/ipykernel_launcher.py", "-f", "k"))
    analysis = replace(step, recording=replace(step.recording, settings=settings))
    assert report(analysis).startswith("notebook · torch 2.11.0 ·")


def test_csv_holds_raw_nanoseconds():
    lines = list(csv.DictReader(io.StringIO(report(gpu_step(), by="op", top=2, format="csv"))))
    assert [(line["aten_op"], line["duration_ns"]) for line in lines] == [
        ("aten::_fused_adamw_", "60000"),
        ("aten.addmm.default", "50000"),
    ]


def test_json_holds_raw_nanoseconds():
    session = Session(gpu_step().recording)
    session.analysis = gpu_step()
    rows = json.loads(session.report(by="phase", top=None, format="json"))["rows"]
    assert [(row["phase"], row["duration_ns"]) for row in rows] == [
        ("backward", 90_000),
        ("forward", 70_001),
        ("optimizer", 60_500),
        ("other", 10_000),
        ("gradient_accumulation", 4_000),
    ]


def test_markdown_is_a_table():
    lines = report(gpu_step(), by="kernel", top=1, format="md").splitlines()
    assert lines[0].startswith("| kernel | name | kind | launches | duration\\_ns |")
    assert len(lines) == 3


def test_a_report_is_narrowed_and_says_to_what():
    narrowed = report(gpu_step(), phase="backward", scope="compiled", step=3, width=132)
    breakdown, reported, rows = narrowed.partition(
        "\nfilter: phase backward, scope compiled, step 3 (leaves out 145 us of 235 us, 61.6%; "
        "what stands above is not filtered)\n"
    )
    assert reported and breakdown == report(gpu_step(), width=132).rpartition("\n\n")[0] + "\n"
    assert [line.split("us")[0].split()[-1] for line in rows.splitlines()[1:]] == [
        "50.0",
        "20.0",
        "20.0",
    ]


def test_a_table_without_rows_says_so():
    *_, rows = report(gpu_step(), by="compile", width=100).split("\n\n")
    assert rows == "no rows by compile (what compiling took, and why it was done)\n"


def test_only_what_is_of_work_has_a_phase_and_a_scope():
    with pytest.raises(UsageError, match="idle_by_line is of no work and has no phase and scope"):
        report(gpu_step(), by="idle", phase="backward", scope="eager")
    assert "filter: step 3 (" in report(gpu_step(), by="idle", step=3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"step": 4}, "step 4 was not profiled"),
        ({"by": "file"}, "there is no report by 'file'"),
        ({"format": "xml"}, "there is no format 'xml'"),
        ({"top": 0}, "cannot show the top 0 rows"),
        ({"top": -1, "format": "csv"}, "cannot show the top -1 rows"),
    ],
)
def test_what_is_not_there_cannot_be_asked_for(asked, message):
    with pytest.raises(UsageError, match=message):
        report(gpu_step(), **asked)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (9_994, "9.99 us"),
        (9_996, "10.0 us"),
        (99_960, "100 us"),
        (999_400, "999 us"),
        (999_600, "1.00 ms"),
        (1_000_000, "1.00 ms"),
        (59_000_000_000, "59.0 s"),
        (3_600_000_000_000, "3600 s"),
    ],
)
def test_times_have_three_digits(duration_ns, text):
    assert time_text(duration_ns) == text


def test_a_percentage_of_nothing_is_nothing():
    assert percent_text(0, 0) == ""


def test_paths_lose_the_longest_root_they_lie_under():
    settings = Settings(user_roots=("/home/ann", "/home/ann/gpt/"), library_roots=("/lib/site",))
    assert [
        short_path(path, settings)
        for path in ("/home/ann/gpt/a.py", "/home/ann/b.py", "/lib/site/c.py", "/lib/sites/d.py")
    ] == ["a.py", "b.py", "c.py", "/lib/sites/d.py"]


def test_printable_keeps_letters_of_every_script():
    assert printable("é 模 \t\x7f") == "é 模 \ufffd\ufffd"
