"""The page draws the buffers between kernels of each rank, and what max_autotune timed for them."""

from __future__ import annotations

import re
from dataclasses import replace

from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.html.slices import MAX_RANKS, selectable_ranks
from profiler_ext.rooflines.intermediates import passed_buffers
from tests.analyses import gpu_step
from tests.exporters.opened import browser, report, written
from tests.exporters.reported import Page, autotuned, two_ranks

__all__ = ["browser", "report"]
_SECTION = re.compile(r'<section id="buffers".*?</section>', re.DOTALL)
_RANK = re.compile(r'<details( open="")? class="rank" data-rank="(\d+)"><summary>(.*?)</summary>')


def section(analyses):
    (found,) = _SECTION.findall(html_text(analyses))
    return found


def ranks(count):
    step = gpu_step()
    return [
        replace(
            step,
            recording=replace(
                step.recording,
                settings=replace(step.recording.settings, rank=rank, world_size=count),
            ),
        )
        for rank in range(count)
    ]


def test_each_rank_has_its_maps_and_the_first_is_open():
    step = gpu_step()
    buffers = len(passed_buffers(step))
    loaded = sum(each.passed.read_bytes * len(each.calls) for each in passed_buffers(step))
    title = f"{buffers} buffers, {loaded / len(step.steps) / 1e6:.1f} MB loaded a step"
    drawn = section(two_ranks(step))
    assert _RANK.findall(drawn) == [
        (' open=""', "0", f"rank 0: {title}"),
        ("", "1", f"rank 1: {title}"),
    ]
    alone = section([step])
    assert _RANK.findall(alone) == []
    for name in ("<svg", "<path", "<rect", "<tr"):
        assert drawn.count(name) == 2 * alone.count(name) > 0
    assert drawn.count("not fused because of: ") == 1


def test_of_many_ranks_those_that_can_be_chosen_are_drawn():
    every = ranks(MAX_RANKS + 2)
    drawn = [int(rank) for _, rank, _ in _RANK.findall(section(every))]
    assert drawn == list(selectable_ranks(every))
    assert 2 < len(drawn) <= MAX_RANKS


def test_a_buffer_lists_the_choices_of_max_autotune_with_the_chosen_one_marked():
    texts = "".join(Page(section([autotuned(gpu_step())])).texts)
    assert "choices of max_autotune for addmm" in texts.replace("extern_kernels.", "")
    drawn = section([autotuned(gpu_step())])
    (items,) = re.findall(r"<ol>(.*?)</ol>", drawn)
    assert re.findall(r"<li>(.*?)</li>", items) == [
        "<b>91.0 us: library call addmm</b>",
        "104 us: template triton_mm BLOCK_M=64, num_warps=4",
        "failed: template triton_mm BLOCK_M=&lt;128&gt;",
        "7 slower ones",
    ]
    assert "<ol>" not in section([gpu_step()])


def test_a_chosen_rank_has_its_map_open_and_alone(browser, tmp_path):
    page, troubles = browser
    page.goto(written(tmp_path, html_text(two_ranks(gpu_step()))))
    shown = page.locator("#buffers .rank:visible")
    assert shown.count() == 2
    page.select_option("#rank", "1")
    assert shown.evaluate_all("all => all.map(each => [each.dataset.rank, each.open])") == [
        ["1", True]
    ]
    assert page.locator("#buffers svg:visible").count() > 0
    assert troubles == []
