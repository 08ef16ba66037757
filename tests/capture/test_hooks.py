"""The hooks come and go without a trace, and what fails in one harms nobody."""

import inspect
import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.codecache
from torch.optim.optimizer import _global_optimizer_post_hooks

import profiler_ext
from profiler_ext.capture.hooks import artifacts as artifact_hooks
from profiler_ext.capture.hooks import installing as hooks
from profiler_ext.errors import CaptureWarning, TorchCapabilityError
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.profiling import switch
from profiler_ext.records.gaps import GapReason
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.patches import Patch, Point
from profiler_ext.torch_compat.shapes import owner_of
from tests.compiling import capture, expected_gradient, train_once

PACKAGE = str(Path(profiler_ext.__file__).parent)
ONLY_WHILE_PROFILING = {
    points.BACKWARD_RUN,
    points.PROFILER_STEP,
    points.PROFILER_STOP,
    points.FRAME_EDGE,
    points.RANGE_ENTER,
    points.RANGE_EXIT,
}
INSIDE_ONLY = {
    points.LOOPS_MADE,
    points.INNER_STEP,
    points.LINE_WRITTEN,
    points.VALUE_NAMED,
    points.KERNEL_CODE,
    points.KERNEL_TEXT,
    points.USER_KERNEL,
    points.KERNEL_LAUNCHED,
}


def attributes_of_owners() -> dict[tuple[str, str], int]:
    """Every attribute of every module and class that holds a point, by identity."""
    for point in points.ALL:
        point.owner()
    owners = {f"{p.module}:{p.path}": p.owner() for p in points.ALL}
    return {(at, name): id(v) for at, owner in owners.items() for name, v in vars(owner).items()}


def functions_of_ours() -> list[str]:
    """Names in torch's modules and classes that now lead to a function of this package."""
    modules = [m for n, m in sys.modules.items() if n.partition(".")[0] == "torch"]
    found = [
        f"{module.__name__}.{name}"
        for module in modules
        if isinstance(module, types.ModuleType)
        for name, value in list(vars(module).items())
        if _is_ours(value)
        or (issubclass(type(value), type) and any(map(_is_ours, vars(value).values())))
    ]
    hooked = _global_optimizer_post_hooks.values()
    return sorted({*found, *("optimizer hook" for hook in hooked if _is_ours(hook))})


def points_that_lead_to_us() -> set[Point]:
    """The points at which a function of this package stands."""
    return {
        point
        for point in points.ALL
        if _is_ours(vars(point.owner())[point.path.rpartition(".")[2]])
    }


def _is_ours(value: Any) -> bool:
    kind = type(value)  # isinstance() would ask lazy objects, and some of torch's warn of it
    function = value.__func__ if kind in (classmethod, staticmethod) else value
    code = function.__code__ if type(function) is types.FunctionType else None
    return code is not None and code.co_filename.startswith(PACKAGE)


@pytest.mark.usefixtures("fresh_torch")
def test_disable_leaves_torch_as_it_was_found() -> None:
    before = attributes_of_owners()
    profiler_ext.enable()
    assert points_that_lead_to_us() == set(points.ALL) - ONLY_WHILE_PROFILING - INSIDE_ONLY
    profiler_ext.disable()
    assert attributes_of_owners() == before
    assert functions_of_ours() == []


@pytest.mark.usefixtures("fresh_torch")
def test_dynamo_leaves_our_own_frames_alone_while_capture_is_on() -> None:
    def is_skipped() -> bool:
        return bool(torch._dynamo.trace_rules.check_file(hooks.__file__).skipped)

    profiler_ext.enable()
    assert is_skipped()
    profiler_ext.disable()
    assert not is_skipped()


@pytest.mark.usefixtures("fresh_torch")
def test_enabling_twice_installs_once_and_disabling_twice_is_harmless() -> None:
    before = attributes_of_owners()
    profiler_ext.enable()
    installed, first = attributes_of_owners(), switch.current()
    profiler_ext.enable()
    assert attributes_of_owners() == installed
    assert switch.current() is first
    profiler_ext.disable()
    profiler_ext.disable()
    assert attributes_of_owners() == before


@pytest.mark.usefixtures("fresh_torch")
def test_a_second_enable_sees_what_is_compiled_after_it_and_nothing_older() -> None:
    profiler_ext.enable(strict=True)
    train_once()
    profiler_ext.disable()
    train_once()
    profiler_ext.enable(strict=True)
    assert capture().graphs == ()
    train_once()
    assert [graph.is_backward for graph in capture().graphs] == [False, True]


@pytest.mark.usefixtures("fresh_torch")
def test_a_wrapper_that_someone_wrapped_again_falls_silent() -> None:
    point = points.INNER_COMPILE
    profiler_ext.enable(strict=True)
    wrapped = inspect.getattr_static(point.owner(), point.name)

    def foreign(*args: Any, **kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    setattr(point.owner(), point.name, foreign)
    seen = capture()
    profiler_ext.disable()
    try:
        assert inspect.getattr_static(point.owner(), point.name) is foreign
        train_once()
        assert seen.graphs == ()
    finally:
        setattr(point.owner(), point.name, wrapped.__wrapped__)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_wrappers_that_overlap_leave_nothing_whoever_is_first_to_leave(
    order: tuple[int, ...],
) -> None:
    def seen(_: Observed) -> Observation:
        yield

    before = attributes_of_owners()
    patches = [Patch(points.ARTIFACT_CALL, seen, Guard(strict=True)) for _ in range(3)]
    for patch in patches:
        patch.install()
    assert points_that_lead_to_us() == {points.ARTIFACT_CALL}
    for each in order:
        patches[each].remove()
    assert attributes_of_owners() == before


def test_a_function_is_given_back_to_the_class_that_it_was_taken_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seen(_: Observed) -> Observation:
        yield

    before, point = attributes_of_owners(), points.PROFILER_STEP
    patch = Patch(point, seen, Guard(strict=True))
    patch.install()
    with monkeypatch.context() as taken:
        taken.setattr(sys.modules[point.module], point.owner().__name__, None)
        patch.remove()
    assert attributes_of_owners() == before


def test_a_module_that_the_program_took_out_is_not_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, inductor = torch._inductor.output_code.CompiledFxGraph, torch._inductor
    for name in [each for each in sys.modules if each.startswith("torch._inductor")]:
        monkeypatch.delitem(sys.modules, name)
    assert owner_of("torch._inductor.output_code", "CompiledFxGraph.post_compile") is graph
    assert torch._inductor is inductor
    assert "torch._inductor" not in sys.modules


@pytest.fixture
def cpp_module(tmp_path: Path) -> Iterator[types.ModuleType]:
    """A generated module that this process has loaded, with a C++ kernel and other names."""
    text = "def cpp_fused_add_0(x):\n    return x + 1\ndef call(args):\n    return args\n"
    (tmp_path / "cmodule.py").write_text(text)
    cache = torch._inductor.codecache.PyCodeCache
    module = cache.load_by_key_path("cmodule", str(tmp_path / "cmodule.py"))
    yield module
    cache.modules.remove(module)


@pytest.mark.usefixtures("fresh_torch")
def test_loaded_cpp_kernels_are_rebound_and_given_back(cpp_module: types.ModuleType) -> None:
    original, call = cpp_module.cpp_fused_add_0, cpp_module.call
    profiler_ext.enable(cpu_events=True)
    assert cpp_module.cpp_fused_add_0 is not original
    assert cpp_module.cpp_fused_add_0(41) == 42
    assert cpp_module.call is call
    profiler_ext.disable()
    assert cpp_module.cpp_fused_add_0 is original
    profiler_ext.enable(cpu_events=True)
    profiler_ext.enable(cpu_events=True)
    profiler_ext.disable()
    assert cpp_module.cpp_fused_add_0 is original


@pytest.mark.usefixtures("fresh_torch")
def test_cpp_kernels_stay_untouched_unless_cpu_events_are_asked_for(
    cpp_module: types.ModuleType,
) -> None:
    original = cpp_module.cpp_fused_add_0
    profiler_ext.enable(cpu_events=False)
    assert cpp_module.cpp_fused_add_0 is original


OBSERVERS = {
    "dynamo graph": ("profiler_ext.capture.hooks.graphs", "describe_dynamo_graph"),
    "passes": ("profiler_ext.capture.hooks.graphs", "Watch"),
    "joint graph": ("profiler_ext.capture.hooks.graphs", "describe_joint"),
    "sealing": ("profiler_ext.capture.graphs.sealing", "seal"),
    "nodes": ("profiler_ext.capture.graphs.fx_nodes", "describe_nodes"),
    "bytes": ("profiler_ext.capture.hooks.artifacts", "to_bytes"),
    "instance": ("profiler_ext.capture.graphs.registry", "ready_artifact"),
}


def _fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("observer", OBSERVERS)
def test_a_hook_that_fails_is_a_gap_and_one_warning_and_the_compile_goes_on(
    observer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = OBSERVERS[observer]
    monkeypatch.setattr(sys.modules[module], name, _fail)
    profiler_ext.enable()
    with pytest.warns(
        CaptureWarning, match=r"RuntimeError at test_hooks.py:\d+ \(_fail\): broken on purpose"
    ) as warned:
        gradient = train_once()
    assert len(warned) == 1
    torch.testing.assert_close(gradient, expected_gradient())
    assert {gap.reason for gap in capture().gaps} == {GapReason.CAPTURE_FAILED}
    assert all(gap.detail.endswith(": broken on purpose") for gap in capture().gaps)


@pytest.mark.usefixtures("fresh_torch")
def test_strict_raises_what_goes_wrong_in_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_hooks.sealing, "seal", _fail)
    profiler_ext.enable(strict=True)
    with pytest.raises(Exception, match="broken on purpose"):
        train_once()


@pytest.mark.usefixtures("fresh_torch")
def test_a_torch_that_lacks_a_place_is_an_error_that_says_what_was_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = attributes_of_owners()
    gone = Point("torch._inductor.compile_fx", "no_such_function", ("gm",), "everything")
    other = Point("torch._inductor.compile_fx", "_compile_fx_inner", ("graph",), "everything")
    monkeypatch.setattr(points, "ALL", (*points.ALL, gone, other))
    with pytest.raises(TorchCapabilityError) as caught:
        profiler_ext.enable()
    assert f"torch {torch.__version__} does not fit capture" in str(caught.value)
    assert "torch._inductor.compile_fx.no_such_function is not there" in str(caught.value)
    assert "torch._inductor.compile_fx._compile_fx_inner takes ('gm', " in str(caught.value)
    assert "but not ('graph',)" in str(caught.value)
    monkeypatch.undo()
    assert attributes_of_owners() == before
    assert switch.current() is None
