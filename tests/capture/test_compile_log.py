"""The log of compiles: what a thread is at, beside whom, and what of it is not known."""

from __future__ import annotations

from threading import Thread, get_native_id

import pytest

from profiler_ext.capture.hooks import compile_log as compile_log
from profiler_ext.capture.hooks.compile_log import CompileLog, recompilation
from profiler_ext.records.compiles import (
    Compilation,
    CompileKind,
    CompilePhase,
    CompileSpan,
    CompileTime,
    Recompilation,
)
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat.compile_reports import CompiledFunction

BASE = 1000


class Numbers:
    """The numbers of Dynamo's graphs."""

    now: int | None = None

    def __call__(self) -> int | None:
        return self.now


def compile_frame(log: CompileLog, numbers: Numbers, started: int = 2000) -> None:
    log.begin("dynamo", started, "0/0")
    numbers.now = 7
    log.note_function(CompiledFunction("torch_dynamo_resume_in_f_at_25", "/m.py", 25), ("a",))
    log.note_graph(3)
    log.end("dynamo", 500)


def test_a_compile_is_kept_on_the_clock_of_the_trace() -> None:
    numbers = Numbers()
    log = CompileLog(numbers)
    compile_frame(log, numbers)
    assert log.compiles_since(BASE) == (
        Compilation(
            index=0,
            kind=CompileKind.FRAME,
            compile_id="0/0",
            dynamo_number=7,
            thread=get_native_id(),
            started_ns=1000,
            duration_ns=500,
            times=(CompileTime(CompilePhase.DYNAMO, 500),),
            spans=(CompileSpan("dynamo", CompilePhase.DYNAMO, 1000, 500, 0),),
            function="f",
            file="/m.py",
            line=25,
            is_resumed=True,
            restarts=("a",),
            graphs=(3,),
        ),
    )


def test_a_backward_is_of_the_function_of_its_forward() -> None:
    numbers = Numbers()
    log = CompileLog(numbers)
    compile_frame(log, numbers)
    log.begin("entire_backward_compile", 3000, "0/0")
    log.end("entire_backward_compile", 10)
    backward = log.compiles_since(BASE)[1]
    assert (backward.kind, backward.dynamo_number) == (CompileKind.BACKWARD, 7)
    assert (backward.function, backward.line) == ("f", 25)


def test_what_is_left_for_the_first_calls_is_of_the_function_too() -> None:
    numbers = Numbers()
    log = CompileLog(numbers)
    compile_frame(log, numbers)
    for compile_id in "0/0", "9/9":
        log.begin("CachingAutotuner.benchmark_all_configs", 3000, compile_id)
        log.end("CachingAutotuner.benchmark_all_configs", 10)
    tuned, unknown = log.compiles_since(BASE)[1:]
    assert (tuned.kind, tuned.function, tuned.dynamo_number) == (CompileKind.RUN_TIME, "f", None)
    assert tuned.times == (CompileTime(CompilePhase.AUTOTUNING, 10),)
    assert unknown.function is None


def test_a_compile_that_makes_no_graph_has_no_number_of_an_older_one() -> None:
    numbers = Numbers()
    log = CompileLog(numbers)
    compile_frame(log, numbers)
    log.begin("dynamo", 3000, "0/1")
    log.note_failure("Unsupported", "no")
    log.end("dynamo", 5)
    failed = log.compiles_since(BASE)[1]
    assert (failed.dynamo_number, failed.failure) == (
        None,
        compile_log.compiles.CompileFailure("Unsupported", "no"),
    )


def test_what_another_thread_is_at_next_to_a_compile_is_no_time_of_it() -> None:
    log = CompileLog(Numbers())

    def tune() -> None:
        log.begin("compile_file", 2100, None)
        log.end("compile_file", 50)

    def in_thread() -> None:
        thread = Thread(target=tune)
        thread.start()
        thread.join()

    log.begin("dynamo", 2000, "0/0")
    in_thread()
    log.end("dynamo", 200)
    in_thread()
    kinds = [(each.kind, each.duration_ns) for each in log.compiles_since(BASE)]
    assert kinds == [
        (CompileKind.WORKER, 50),
        (CompileKind.FRAME, 200),
        (CompileKind.RUN_TIME, 50),
    ]


def test_parts_that_did_not_end_end_with_the_one_around_them() -> None:
    log = CompileLog(Numbers())
    log.begin("dynamo", 2000, "0/0")
    log.begin("backend_compile", 2010, "0/0")
    log.begin("inductor_compile", 2020, "0/0")
    log.end("backend_compile", 50)
    log.end("dynamo", 200)
    assert log.compiles_since(BASE)[0].times == (
        CompileTime(CompilePhase.DYNAMO, 150),
        CompileTime(CompilePhase.AOT_AUTOGRAD, 50),
    )


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda log: log.end("dynamo", 5), "a compile whose begin was not seen"),
        (lambda log: log.compiles_since(0), "does not tell its time zero"),
        (
            lambda log: (compile_frame(log, Numbers()), log.compiles_since(10**18)),
            "whose begin lies years from the trace",
        ),
        (lambda log: setattr(log, "is_late", True), "compiled before capture was switched on"),
    ],
)
def test_what_is_not_known_of_compiles_is_a_gap(spoil, expected: str) -> None:
    log = CompileLog(Numbers())
    assert log.gaps == ()
    spoil(log)
    assert [gap.reason for gap in log.gaps] == [GapReason.COMPILES_INCOMPLETE]
    assert expected in log.gaps[0].detail


def test_so_many_are_kept_the_first_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_log, "_FIRST_KEPT", 1)
    monkeypatch.setattr(compile_log, "_LAST_KEPT", 2)
    log = CompileLog(Numbers())
    for at in range(5):
        log.begin("cudagraphify.get_container", 2000 + at, None)
        log.end("cudagraphify.get_container", 1)
        assert bool(log.gaps) == (at > 2)
    kept = log.compiles_since(BASE)
    assert [(each.index, each.started_ns) for each in kept] == [(0, 1000), (3, 1003), (4, 1004)]
    assert log.gaps == (Gap(GapReason.COMPILES_INCOMPLETE, log.gaps[0].detail),)


def test_of_functions_that_were_compiled_the_last_ones_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compile_log, "_FUNCTIONS_KEPT", 2)
    numbers = Numbers()
    log = CompileLog(numbers)
    for at in range(4):
        log.begin("dynamo", 2000, f"{at}/0")
        numbers.now = at
        log.note_function(CompiledFunction(f"f_{at}", "/m.py", at), ())
        log.end("dynamo", 10)
    for at in range(4):
        numbers.now = at
        log.begin("CompiledFunctionBackward", 3000, f"{at}/0")
        log.begin("backend_compile", 3000, f"{at}/0")
        log.end("backend_compile", 5)
        log.end("CompiledFunctionBackward", 10)
    reported = [each.function for each in log.compiles_since(BASE)[4:]]
    assert reported == [None, None, "f_2", "f_3"]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (
            "0/1: tensor 'x' size mismatch at index 0. expected 4, actual 8",
            Recompilation("0/1", "tensor 'x' size mismatch at index 0. expected 4, actual 8"),
        ),
        (
            '0/2: n == 1  # y = n\nUser stack trace:\n  File "/m.py", line 24, in f\n    y = n',
            Recompilation("0/2", "n == 1  # y = n", (Frame("/m.py", 24, "f", "y = n"),)),
        ),
        (
            '!1/0/2: a\nUser stack trace:\n  File "/m.py", line 1, in f\n'
            '  File "/n.py", line 2, in g\n    z',
            Recompilation(
                "!1/0/2", "a", (Frame("/m.py", 1, "f", None), Frame("/n.py", 2, "g", "z"))
            ),
        ),
        ("a guard of nobody: said", Recompilation("", "a guard of nobody: said")),
    ],
)  # fmt: skip
def test_a_failed_guard_is_read_as_torch_writes_it(given: str, read: Recompilation) -> None:
    assert recompilation(given) == read
