"""How near a row is to its roofline reads in a few words, and so does the MFU of the steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler_ext import load
from profiler_ext.exporters.views.rooflines import (
    roofline_text,
    savings_text,
    utilisation_texts,
    work_text,
)
from profiler_ext.records.analysis import Analysis
from tests.analyses import gpu_step, report
from tests.book.recordings import RECORDED
from tests.cases.neutral import SUFFIX
from tests.exporters.estimated import estimated
from tests.findings.stepping import trained

NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("bound", "unit", "est_bytes", "est_flops", "est_gb_per_s", "est_tflop_per_s"),
        *("est_attainable_tflop_per_s", "est_peak_fraction", "could_save_ns"),
    )
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"bound": "memory", "est_peak_fraction": 0.621}, "62% memory"),
        ({"bound": "compute", "est_peak_fraction": 0.4, "unit": "bf16_tensor"}, "40% bf16"),
        ({"bound": "compute", "est_peak_fraction": 0.4, "unit": "fp32"}, "40% fp32"),
        ({"bound": "latency", "est_peak_fraction": 0.4}, "latency"),
        ({"bound": "launch", "est_peak_fraction": 0.4}, "launch"),
        ({"unit": "fp32"}, "fp32"),
        ({}, ""),
    ],
)
def test_a_row_says_how_near_it_is_to_what_bounds_it(given: dict[str, Any], text: str) -> None:
    assert roofline_text(NOTHING | given) == text


def test_of_several_ranks_a_row_says_what_bounds_it_and_no_part() -> None:
    summed = {"bound": "memory", "unit": "fp32", "could_save_ns": 5}
    assert roofline_text(summed) == "memory"
    assert roofline_text(summed | {"bound": "compute"}) == "fp32"


def test_savings_of_nothing_are_not_reported() -> None:
    assert savings_text(NOTHING | {"could_save_ns": 1_234_000}) == "1.23 ms"
    assert [savings_text(NOTHING | {"could_save_ns": each}) for each in (0, None)] == ["", ""]


def test_what_is_not_known_of_the_work_is_not_reported() -> None:
    assert work_text(NOTHING) == ""
    assert work_text(NOTHING | {"est_bytes": 512}) == "moves 512 B"
    moved = {"est_bytes": 2_500_000_000, "est_gb_per_s": 3210.0}
    assert work_text(NOTHING | moved) == "moves 2.5 GB at 3,210 GB/s"


def test_utilisation_names_its_units_and_what_is_not_known() -> None:
    one = estimated({(0, 0): ("50000000", "10000000000"), (1, 1): ("50000000", "30000000000")})
    assert utilisation_texts([one]) == ("MFU 4.0%: 40 GFLOP a step, bf16_tensor.",)
    unknown = replace(one, launches=_renamed(one, "nvjet_tst_128x64", "nobody_knows"))
    text = "MFU 1.0%: 40 GFLOP a step, bf16_tensor; the unit of 25.0% is known."
    assert utilisation_texts([unknown]) == (text,)


def test_utilisation_is_of_a_step_in_training_where_steps_before_the_recording_tell_it() -> None:
    one = estimated({(0, 0): ("50000000", "10000000000"), (1, 1): ("50000000", "30000000000")})
    step_ns = one.steps[0].wall_ns
    known = trained(one, *[step_ns // 2] * 3)
    text = "MFU 8.1% (4.0% as recorded): 40 GFLOP a step, bf16_tensor."
    assert utilisation_texts([known]) == (text,)
    alike = trained(one, *[step_ns] * 3)
    assert utilisation_texts([alike]) == ("MFU 4.0%: 40 GFLOP a step, bf16_tensor.",)


def test_products_without_sizes_make_it_unknown() -> None:
    one = estimated({(0, 0): ("50000000", "10000000000")})
    message = (
        "MFU is not known: products of 55.6% of their time have sizes; `--shapes` records those "
        "of eager ops."
    )
    assert utilisation_texts([one]) == (message,)


def test_where_nothing_is_known_nothing_is_reported() -> None:
    assert utilisation_texts([gpu_step()]) == ()


def test_of_several_ranks_each_is_named() -> None:
    one = estimated({(0, 0): ("50000000", "10000000000"), (1, 1): ("50000000", "30000000000")})
    second = replace(one.recording, settings=replace(one.recording.settings, rank=1))
    texts = utilisation_texts([one, replace(one, recording=second)])
    assert [text.partition(":")[0] for text in texts] == ["rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [(60, ["saving"]), (80, ["roofline", "saving"]), (96, ["roofline", "max saving"])],
)
def test_the_terminal_shows_rooflines_where_there_is_room(width: int, shown: list[str]) -> None:
    one = estimated({(0, 0): ("50000000", "10000000000")})
    text = report(one, by="kernel", width=width)
    table = text.split("\n\n")[-1].replace("max saving", "max_saving")
    words = ("roofline", " saving", "max_saving")
    assert [word.strip().replace("_", " ") for word in words if word in table] == shown
    assert ("21% memory" in text, "37.0 us" in text) == ("roofline" in shown, True)
    assert all(len(line) <= width for line in text.splitlines())


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("line", "line code time/step % busy forward backward rest"),
        ("module", "module time/step % busy itself forward backward rest"),
        ("kernel", "kernel time/step % busy launches median roofline saving"),
        ("site", "kernel module or line time/step % busy launches saving"),
    ],
)
def test_eighty_columns_have_phases_that_add_up_then_what_could_be_saved(
    by: str, columns: str
) -> None:
    analysis = load(RECORDED / f"findings/tuned_gpt{SUFFIX}").analysis
    head, *rows = report(analysis, by=by, width=80).split("\n\n")[-1].splitlines()
    assert " ".join(head.split()) == columns
    assert max(map(len, (head, *rows))) <= 80


def _renamed(analysis: Analysis, old: str, new: str) -> Any:
    column = analysis.launches.name
    strings = tuple(new if text.startswith(old) else text for text in column.strings)
    return replace(analysis.launches, name=replace(column, strings=strings))
