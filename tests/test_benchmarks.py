"""What the benchmarks share: long recordings, processes, fits, comparisons, and their page."""

from __future__ import annotations

import json
import math
import sys
from itertools import islice
from pathlib import Path

import pytest

from benchmarks import bench, memory_price
from benchmarks.compare import change, judged
from benchmarks.figures import Figure, figure_of, read, tell
from benchmarks.growth import events_up_to, fitted
from benchmarks.pairs import WITH, WITHOUT, interval, turns
from benchmarks.processes import spent
from benchmarks.recordings import ROOT
from benchmarks.tiling import tile

FOLDER = ROOT / "benchmarks"
STEP = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "args": {"External id": 4}}
ONCE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "100%"}},
        STEP | {"name": "ProfilerStep#3", "ts": 100.5, "dur": 10},
        STEP | {"name": "ProfilerStep#4", "ts": 111.0, "dur": 9.5},
        {"ph": "X", "name": "k 5%", "pid": 0, "tid": 7, "ts": 102.25, "dur": 2}
        | {"args": {"correlation": 9, "stream": 7}},
        {"ph": "s", "id": 9, "name": "ac2g", "pid": 1, "tid": 1, "ts": 101.0},
    ],
}


def tiled(folder: Path, events: int, steps: int | None = None) -> list[dict]:
    source, target = folder / "once.json", folder / "long.json"
    source.write_text(json.dumps(ONCE))
    assert tile(source, target, events, steps) == events
    document = json.loads(target.read_text())
    assert document["schemaVersion"] == 1
    return document["traceEvents"]


def test_a_copy_is_later_and_has_numbers_and_steps_of_its_own(tmp_path: Path) -> None:
    once = ONCE["traceEvents"]
    assert tiled(tmp_path, 8) == [
        *once,
        STEP | {"name": "ProfilerStep#5", "ts": 1120.5, "dur": 10, "args": {"External id": 14}},
        STEP | {"name": "ProfilerStep#6", "ts": 1131.0, "dur": 9.5, "args": {"External id": 14}},
        once[3] | {"ts": 1122.25, "args": {"correlation": 19, "stream": 7}},
        once[4] | {"ts": 1121.0, "id": 19},
    ]


def test_all_copies_can_be_in_so_many_steps(tmp_path: Path) -> None:
    events = tiled(tmp_path, 16, steps=2)
    steps = [event for event in events if event["name"].startswith("ProfilerStep")]
    assert steps == [
        STEP | {"name": "ProfilerStep#0", "ts": 100.5, "dur": 1040.0},
        STEP | {"name": "ProfilerStep#1", "ts": 2140.5, "dur": 1040.0, "args": {"External id": 24}},
    ]
    assert sum(event["name"] == "k 5%" for event in events) == 4


def test_a_process_is_reported_with_its_children() -> None:
    child = "import time; x = bytearray(60 << 20); time.sleep(0.2); sum(range(3_000_000))"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-Sc', {child!r}]); print(7)"
    one = spent([sys.executable, "-Sc", parent])
    assert (one.output, one.cpu_s > 0.03, 60 < one.peak_mib < 120) == ("7\n", True, True)


def test_a_process_that_fails_is_reported_with_what_it_printed() -> None:
    with pytest.raises(SystemExit, match=r"ended with 3\nno such file"):
        spent([sys.executable, "-Sc", "print('no such file'); raise SystemExit(3)"])


def test_figures_are_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = [figure_of("reading", [2.0, 4.0, 3.0], "s"), Figure("memory", 1234.5, "MiB")]
    tell(figures, tmp_path / "figures.json")
    assert read(tmp_path / "figures.json") == figures
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["reading", "3.00", "s", "(2.00", "to", "4.00;", "n", "=", "3)"],
        ["memory", "1,234", "MiB"],
    ]


@pytest.mark.parametrize("exponent", [1.0, 1.3, 2.0])
def test_a_fit_finds_the_exponent_next_to_a_start(exponent: float) -> None:
    noise = (1.01, 0.99, 1.0, 0.995, 1.004, 0.99, 1.01)
    sizes = events_up_to(10_000_000)
    points = [
        (n, (0.8 + 10 * (n / 1e6) ** exponent) * by) for n, by in zip(sizes, noise, strict=True)
    ]
    fit = fitted(points)
    assert fit.low <= exponent <= fit.high
    assert fit.high - fit.low < 0.1
    assert fit.start == pytest.approx(0.8, abs=0.02)


def test_sizes_are_equally_far_apart() -> None:
    assert events_up_to(1_000_000) == [10_000, 31_623, 100_000, 316_228, 1_000_000]


def test_only_what_is_slower_in_all_pairs_is_called_so() -> None:
    drift = [1.0, 1.3, 0.9, 1.1, 1.6]
    slower = change("a", "s", [(10 * d, 10.5 * d * (1 + at / 500)) for at, d in enumerate(drift)])
    same = change(
        "b", "s", [(10 * d, 10 * d * (1 + (-1) ** at / 50)) for at, d in enumerate(drift)]
    )
    faster = change("c", "s", [(10.0, 5.0)] * 5)
    (_, first), (_, second), (_, third) = judged([slower, same, faster])
    assert (first, second[:13], third) == ("slower", "no difference", "faster")
    assert slower.ratio == pytest.approx(1.05 * 1.004, rel=1e-4)
    assert 1.045 < slower.low < slower.ratio < slower.high < 1.065


def test_each_script_has_a_row_in_the_page() -> None:
    page = (FOLDER / "README.md").read_text()
    scripts = {path.name for path in FOLDER.glob("*.py")}
    assert {name for name in scripts if f"`{name}`" not in page} == set()


def test_each_script_that_bench_runs_writes_its_figures() -> None:
    texts = {name: (FOLDER / f"{name}.py").read_text() for name in bench.SCRIPTS}
    assert [name for name, text in texts.items() if "add_json(parser)" not in text] == []


def test_each_round_of_memory_prices_has_each_side_twice_and_begins_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []

    def take(step: object, side: str, steps: int) -> dict[str, float]:
        taken.append(side)
        return {"wall": 1.03 if side == "memory" else 1.0, "issued": 0.2, "after": 1.0, "peak": 7}

    monkeypatch.setattr(memory_price, "take", take)
    found = list(islice(memory_price.rounds(lambda: None, 10, ends=math.inf), 3))
    memory, recorded, nothing = memory_price.SIDES
    assert taken[:6] == [memory, recorded, nothing, nothing, recorded, memory]
    assert [taken[0], taken[6], taken[12]] == [memory, recorded, nothing]
    figures = {each.figure: each.value for each in memory_price.figures_of("gpt", found)}
    assert figures["gpt: a step, with memory / without"] == pytest.approx(1.03)
    assert figures["gpt: a step, without / unrecorded"] == 1
    assert figures["gpt: a step after it, with memory / without"] == 1
    assert figures["gpt: peak, with memory - unrecorded"] == 0


def test_a_turn_has_each_side_twice_and_what_grows_steadily_meets_both() -> None:
    taken: list[str] = []

    def take(side: str) -> dict[str, float]:
        taken.append(side)
        return {"wall": 100.0 + len(taken), "twice": 2.0 if side == WITH else 1.0}

    assert list(islice(turns(take, ends=math.inf), 2)) == [{"wall": 1.0, "twice": 2.0}] * 2
    assert taken == [WITHOUT, WITH, WITH, WITHOUT, WITH, WITHOUT, WITHOUT, WITH]


def test_no_turn_but_the_first_begins_after_its_time() -> None:
    assert list(turns(lambda side: {"wall": 1.0}, ends=-math.inf)) == [{"wall": 1.0}]


def test_an_interval_is_that_of_the_sign_test_and_no_outlier_moves_it() -> None:
    # Of 10 tosses one or none is heads in 11 of 1,024 cases, two or fewer in 56.
    assert interval([float(n) for n in range(1, 11)]) == (2.0, 5.5, 9.0)
    assert interval([*(float(n) for n in range(1, 10)), 1000.0]) == (2.0, 5.5, 9.0)
    assert interval([3.0, 1.0]) == (1.0, 2.0, 3.0)
    assert interval([float(n) for n in range(20)]) == (5.0, 9.5, 14.0)
    assert interval(range(100_000)) == (49_689, 49_999.5, 50_310)
