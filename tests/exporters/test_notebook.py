"""A notebook shows a session as its ledger and its top lines; no name becomes markup."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.exporters.notebook import session_html
from profiler_ext.records import Analysis, Recording
from tests.analyses import GPU_PLACES, gpu_step
from tests.exporters.test_html import Page, evil
from tests.handmade import launches, shares, trace


def tables_of(analysis):
    return [[tuple(row) for row in table] for table in Page(session_html(analysis)).tables]


def test_the_ledger_stands_first():
    assert tables_of(gpu_step())[0] == [
        ("time", "part", "wall time of the steps"),
        ("130 us", "13.0%", "compiled: led to source lines"),
        ("20.0 us", "2.0%", "compiled: library calls with an open boundary"),
        ("74.5 us", "7.5%", "eager: led to ATen ops only"),
        ("775 us", "77.5%", "device idle"),
        ("278 us", "27.8%", "launch latency"),
        ("240 us", "24.0%", "end of the step"),
        ("142 us", "14.2%", "launching"),
        ("66.0 us", "6.6%", "Python between ops"),
        ("50.0 us", "5.0%", "between launches"),
        ("1.00 ms", "100.0%", "total"),
    ]


def test_the_top_lines_have_their_time_by_phase():
    heads, first, *_ = tables_of(gpu_step())[1]
    assert heads == (
        *("time", "part", "", "forward", "backward", "grad. acc.", "optimizer", "other"),
        *("roofline", "could save", "line", "code"),
    )
    assert first == (
        *("100 us", "42.6%", "", "50.0 us", "50.0 us", "", "", "", "bf16", ""),
        *("model.py:12", "h = self.up(x)"),
    )


def test_what_is_left_out_is_counted():
    places = tuple(replace(place, file="a.py", line=at) for at, place in enumerate(GPU_PLACES))
    assert "<p>and 1 more</p>" in session_html(replace(gpu_step(), places=places))


def test_no_name_becomes_a_tag_or_an_attribute():
    page, plain = Page(session_html(evil())), Page(session_html(gpu_step()))
    assert set(page.tags) - {"p"} == set(plain.tags) - {"p"}
    assert set(page.attributes) == set(plain.attributes)


def test_nothing_recorded_says_so_and_keeps_the_notes():
    recording = Recording(trace=trace(()))
    analysis = Analysis(recording, (), launches((), ()), (), shares(()), notes=("capture was off",))
    page = Page(session_html(analysis))
    assert page.texts == [
        "profile · 0 steps · 0 launches",
        "No step was profiled, so there is nothing to sum.",
        "note: capture was off",
    ]
