"""A notebook shows a session as its breakdown and its top lines; no name becomes markup."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.exporters.notebook import session_html
from profiler_ext.exporters.views.formatting import PHASE_STYLES
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Phase
from tests.analyses import GPU_PLACES, gpu_step
from tests.exporters.estimated import estimated
from tests.exporters.reported import Page, evil
from tests.handmade import launches, shares, trace

HEADS = ("roofline", "max saving")


def tables_of(analysis):
    return [[tuple(row) for row in table] for table in Page(session_html([analysis])).tables]


def test_the_lines_stand_first_then_at_most_three_lines_and_the_rest_is_collapsed():
    page = session_html([gpu_step()])
    shown, *collapsed = page.split("<details>")
    assert shown.index("<table>") < shown.index("Top recommendation: <b>")
    assert shown.count("<table>") == 1
    assert shown.rpartition("</table>")[2].count("<p>") == 2
    titles = [each.partition("<summary>")[2].partition("</summary>")[0] for each in collapsed]
    assert titles[0].startswith("Top recommendations: step 1.00 ms")
    assert titles[-3:] == ["Step time breakdown", "Modules", "Kernels"]


def test_one_sentence_says_where_the_time_of_a_step_goes():
    assert (
        "<p>Recorded step 1.00 ms: device idle 77.5%; compiled: attributed to source 13.0%; "
        "eager: attributed to ATen ops only 7.5%; "
        "compiled: library calls with an open boundary 2.0%</p>"
    ) in session_html([gpu_step()])


def test_the_breakdown_has_every_account_and_what_the_device_waits_for():
    assert tables_of(gpu_step())[1] == [
        ("account", "time/step", "% wall"),
        ("compiled: attributed to source", "130 us", "13.0%"),
        ("compiled: library calls with an open boundary", "20.0 us", "2.0%"),
        ("eager: attributed to ATen ops only", "74.5 us", "7.5%"),
        ("device idle", "775 us", "77.5%"),
        ("launch latency", "278 us", "27.8%"),
        ("end of the step", "240 us", "24.0%"),
        ("CPU launch overhead", "142 us", "14.2%"),
        ("Python between ops", "66.0 us", "6.6%"),
        ("inter-kernel gap", "50.0 us", "5.0%"),
        ("total", "1.00 ms", "100.0%"),
    ]


def test_the_top_lines_have_their_name_first_and_the_time_of_a_step_by_phase():
    heads, first, *_ = tables_of(gpu_step())[0]
    assert heads == (
        *("line", "time/step", "% busy"),
        *("forward", "backward", "other", "roofline", "max saving"),
    )
    assert first == (
        "model.py:12h = self.up(x)",
        *("100 us", "42.6%", "50.0 us", "50.0 us", "", "bf16", ""),
    )


def test_a_bar_is_as_long_as_its_part_of_the_device_time():
    page = session_html([gpu_step()])
    forward, backward = (f"background:{PHASE_STYLES[p]}" for p in list(Phase)[:2])
    assert f'<div style="width:21.3%;{forward}"></div><div style="width:21.3%;{backward}">' in page


def test_the_modules_are_a_tree():
    assert tables_of(gpu_step())[2] == [
        ("module", "time/step", "% modules", "roofline", "max saving"),
        ("(the model itself)", "140 us", "100.0%", "", ""),
        ("mlp MLP", "140 us", "100.0%", "", ""),
        ("mlp.up Linear", "100 us", "71.4%", "", ""),
        ("mlp.down Linear", "6.67 us", "4.8%", "", ""),
    ]


def test_lines_modules_and_kernels_say_what_they_could_save():
    addmm = {(0, 0): ("50000000", "10000000000"), (0, 1): ("2000001", "300")}
    lines, _, modules, kernels = tables_of(estimated(addmm))
    near = ("21% memory", "37.0 us")
    assert [row[-2:] for row in lines if row[-1]] == [HEADS, near]
    assert [(row[0], row[-2:]) for row in modules[1:4]] == [
        ("(the model itself)", ("", near[1])),
        ("mlp MLP", ("", near[1])),
        ("mlp.up Linear", near),
    ]
    assert kernels[0] == ("kernel", "time/step", "% busy", "launches", *HEADS)
    assert [(row[0], row[-2:]) for row in kernels[1:] if row[-1]] == [
        ("addmm: nvjet_tst_64x8_64x16_1x4_h_bz_TNT", near)
    ]


def test_ranks_are_shown_together_and_their_times_are_of_a_step_of_one():
    one = gpu_step()
    settings = replace(one.recording.settings, rank=1, world_size=2)
    other = replace(one, recording=replace(one.recording, settings=settings))
    both = [[tuple(row) for row in each] for each in Page(session_html([one, other])).tables]
    alone = tables_of(one)
    assert both[1] == alone[1]
    assert [row[:6] for row in both[0]] == [row[:6] for row in alone[0]]
    assert [(*row[:3], row[-1]) for row in both[2]] == [(*row[:3], row[-1]) for row in alone[2]]
    assert both[3][0] == ("kernel", "time/step", "% busy", "launches", *HEADS)


def test_of_several_ranks_what_bounds_a_row_has_no_part_and_a_note_has_its_rank():
    made = estimated({(0, 0): ("50000000", "10000000000")})
    settings = replace(made.recording.settings, rank=1, world_size=2)
    noted = replace(made, recording=replace(made.recording, settings=settings), notes=("careful",))
    text = session_html([made, noted])
    assert "<p>note: rank 1: careful</p>" in text
    alone, both = (Page(session_html(each)).tables[0][1][-2:] for each in ([made], [made, noted]))
    assert (alone, both) == (["21% memory", "37.0 us"], ["memory", "37.0 us"])


def test_what_is_left_out_is_counted():
    places = tuple(replace(place, file="a.py", line=at) for at, place in enumerate(GPU_PLACES))
    assert "<p>and 1 more</p>" in session_html([replace(gpu_step(), places=places)])


def test_no_name_becomes_a_tag_or_an_attribute():
    page, plain = Page(session_html([evil()])), Page(session_html([gpu_step()]))
    assert set(page.tags) - {"p"} == set(plain.tags) - {"p"}
    assert set(page.attributes) == set(plain.attributes)


def test_nothing_recorded_says_so_and_keeps_the_notes():
    recording = Recording(trace=trace(()))
    analysis = Analysis(recording, (), launches((), ()), (), shares(()), notes=("capture was off",))
    page = Page(session_html([analysis]))
    assert page.texts == [
        "profile · 0 steps · 0 launches",
        "No step was profiled, so there is nothing to sum.",
        "note: capture was off",
    ]
