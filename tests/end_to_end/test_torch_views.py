"""What torch's own methods give of a profile of ours is what torch's profiler would have given."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from profiler_ext.profiling.torch_views import of_package
from tests.compiling import torch

CPU = torch.profiler.ProfilerActivity.CPU
PROFILERS = (torch.profiler.profile, profiler_ext.profile)
SCHEDULE = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
MODEL = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
COMPILED = torch.compile(MODEL[0], backend="inductor")


def _train(model: Any) -> None:
    with torch.profiler.record_function("forward of mine"):
        loss = model(torch.ones(4, 8)).sum()
    loss.backward()


def _profiled(make: Any, model: Any, **options: Any) -> Any:
    with make(activities=[CPU], **options) as profile:
        for _ in range(5):
            _train(model)
            profile.step()
    return profile


def _rows(profile: Any) -> list[tuple[Any, ...]]:
    parents = ((e.cpu_parent.name if e.cpu_parent else None) for e in profile.events())
    return sorted(
        (str(e.name), str(parent), str(e.input_shapes), e.count)
        for e, parent in zip(profile.events(), parents, strict=True)
    )


def _averages(profile: Any) -> list[tuple[Any, ...]]:
    found = profile.key_averages(group_by_input_shape=True)
    return sorted((e.key, e.count, str(e.input_shapes)) for e in found)


def _written(profile: Any, path: Path) -> Counter[tuple[Any, ...]]:
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return Counter((e["ph"], e.get("cat"), e["name"]) for e in events)


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("options", [{}, {"schedule": SCHEDULE}], ids=["", "scheduled"])
@pytest.mark.parametrize("model", [MODEL, COMPILED], ids=["eager", "compiled"])
def test_events_averages_and_the_trace_have_the_rows_that_torch_has(
    model: Any, options: Any, tmp_path: Path
) -> None:
    profiler_ext.enable(cpu_events=True)
    _train(model)
    # With shapes torch's own mark of a graph's call is an annotation, unless all threads are heard.
    shapes = model is MODEL
    theirs, ours = (_profiled(make, model, record_shapes=shapes, **options) for make in PROFILERS)
    assert _averages(ours) == _averages(theirs)
    assert _rows(ours) == _rows(theirs)
    written = [_written(each, tmp_path / "trace.json") for each in (theirs, ours)]
    assert written[1] == written[0]


@pytest.mark.usefixtures("fresh_torch")
def test_an_empty_profile_has_no_event() -> None:
    for make in PROFILERS:
        with make(activities=[CPU]) as profile:
            pass
        assert list(profile.events()) == list(profile.key_averages()) == []


def _calls(names: Iterator[str]) -> Counter[str]:
    """Calls of the program, of modules and operators: the profiler's own Python is left out."""
    numbered = re.compile(r"_\d+$| object at 0x\w+")
    own = re.compile(rf"nn\.Module|aten::|torch/nn/|torch/_tensor|.*{Path(__file__).name}")
    return Counter(numbered.sub("", name) for name in names if own.match(name))


@pytest.mark.usefixtures("fresh_torch")
def test_with_stacks_no_call_of_ours_is_there_and_each_of_the_programs(tmp_path: Path) -> None:
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    _train(MODEL)
    both = [
        _profiled(make, MODEL, with_stack=True, experimental_config=config) for make in PROFILERS
    ]
    names = [[e.name for e in each.events()] for each in both]
    assert _calls(iter(names[0])) == _calls(iter(names[1]))
    assert not [name for name in names[1] if of_package(name)]
    written = [_written(each, tmp_path / "trace.json") for each in both]
    calls = [_calls(name for *_, name in each.elements()) for each in written]
    assert calls[0] == calls[1]
    assert not [name for *_, name in written[1] if of_package(name)]


@pytest.mark.usefixtures("fresh_torch")
def test_a_call_whose_caller_was_ours_names_the_next_one_out_that_is_not(tmp_path: Path) -> None:
    profile = _profiled(profiler_ext.profile, MODEL, with_stack=True)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = [e["args"] for e in events if e.get("cat") == "python_function"]
    known = {call["Python id"] for call in calls}
    assert {call["Python parent id"] for call in calls} - known == {None}


@pytest.mark.usefixtures("fresh_torch")
def test_time_of_ours_that_is_taken_out_is_that_of_what_it_stood_in() -> None:
    profiler_ext.enable(cpu_events=True)
    _train(COMPILED)
    profile = _profiled(profiler_ext.profile, COMPILED)
    for event in profile.events():
        within = sum(child.cpu_time_total for child in event.cpu_children)
        assert event.self_cpu_time_total == event.cpu_time_total - within
        assert all(child.cpu_parent is event for child in event.cpu_children)


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("make", PROFILERS)
def test_collection_is_switched_off_and_on_again_and_is_on_after_the_profile(make: Any) -> None:
    for _ in range(2):
        with make(activities=[CPU]) as profile:
            torch.ones(3).exp()
            profile.toggle_collection_dynamic(False, [CPU])
            torch.ones(3).sin()
            profile.toggle_collection_dynamic(True, [CPU])
            torch.ones(3).cos()
            profile.toggle_collection_dynamic(False, [CPU])
        found = {event.name for event in profile.events()}
        assert found & {"aten::exp", "aten::sin", "aten::cos"} == {"aten::exp", "aten::cos"}
    with torch.profiler.profile(activities=[CPU]) as profile:
        torch.ones(3).sin()
    assert "aten::sin" in {event.name for event in profile.events()}
