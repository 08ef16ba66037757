"""A session keeps the code of its graphs, within a bound, or no text of source at all."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.isolation.guard import Guard
from profiler_ext.profiling import assembly
from profiler_ext.profiling.assembly import with_source
from profiler_ext.records.compiles import Compilation, CompileKind, GraphBreak
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import (
    Function,
    Position,
    PythonLines,
    Recording,
    generated_module,
)
from tests.analyses import gpu_step
from tests.gpu_model import MODEL

STEP = gpu_step().recording


def recorded(*modules: Path) -> Recording:
    """The step's recording with further graphs, which did not run; each has its module."""
    first = STEP.graphs[0]
    graphs = [replace(each, output_module=None) for each in STEP.graphs]
    others = [
        replace(first, index=len(graphs) + n, key=None, output_module=str(path))
        for n, path in enumerate(modules)
    ]
    return replace(STEP, graphs=(*graphs, *others))


def written(folder: Path, **texts: str) -> list[Path]:
    paths = [folder / f"{name}.py" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


def test_equal_code_is_kept_once_with_all_its_paths(tmp_path: Path) -> None:
    one, two, same = written(tmp_path, one="a = 1\n", two="b = 2\n", same="a = 1\n")
    made = with_source(recorded(one, two, same, one), True, Guard())
    assert made.generated == (
        generated_module("a = 1\n", [str(one), str(same)]),
        generated_module("b = 2\n", [str(two)]),
    )
    assert made.gaps == STEP.gaps


def test_code_that_is_not_there_is_a_named_gap_and_a_note(tmp_path: Path) -> None:
    gone = [tmp_path / f"{n}.py" for n in range(4)]
    made = with_source(recorded(*gone), True, Guard())
    listed = ", ".join(map(str, gone[:3]))
    detail = f"4 modules: each cannot be read (No such file or directory): {listed}, ..."
    assert made.gaps == (*STEP.gaps, Gap(GapReason.CODE_NOT_KEPT, detail))
    assert f"code_not_kept: {detail}" in attribute(made).notes


def test_what_ran_is_kept_first_where_there_is_no_room_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, ran, late = written(tmp_path, early="a = 1\n", ran="b = 2\n", late="c = 3\n")
    recording = recorded(early, late)
    graphs = (*recording.graphs[2:], replace(recording.graphs[0], output_module=str(ran)))
    one = generated_module("a = 1\n", [""]).packed_bytes
    monkeypatch.setattr(assembly, "MAX_PACKED_BYTES", 2 * one)
    made = with_source(replace(recording, graphs=graphs), True, Guard())
    assert [module.paths for module in made.generated] == [(str(ran),), (str(early),)]
    [gap] = made.gaps[len(STEP.gaps) :]
    why = f"1 modules: each would take over {2 * one} bytes with the others: {late}"
    assert gap == Gap(GapReason.CODE_NOT_KEPT, why)


def test_a_failure_of_ours_is_a_gap_and_the_recording_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "_paths", lambda _: 1 // 0)
    guard = Guard()
    with pytest.warns(match="generated code"):
        made = with_source(STEP, True, guard)
    assert made == replace(
        STEP, gaps=(*STEP.gaps, Gap(GapReason.CODE_NOT_KEPT, "reading it failed"))
    )


def texts_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return {text for each in value.values() for text in texts_in(each)}
    if isinstance(value, list | tuple):
        return {text for each in value for text in texts_in(each)}
    return {value} if isinstance(value, str) else set()


def test_without_source_nothing_of_a_line_or_of_code_is_kept(tmp_path: Path) -> None:
    [module] = written(tmp_path, module="secret = 'of generated code'\n")
    line = Frame(MODEL, 12, "forward", "secret = 'of a break'")
    broken = Compilation(
        0, CompileKind.FRAME, "0/0", 0, 1, 0, 0, (), (), breaks=(GraphBreak("why", (line,)),)
    )
    python = PythonLines(
        (Function(MODEL, "main"),), (), (Position(None, 0, 3, None, "secret = 'ran'"),), (), (), 9
    )
    whole = replace(recorded(module), python=python, compiles=(broken,))
    made = with_source(whole, False, Guard())
    kept = [dataclasses.asdict(each) for each in (*made.graphs, *made.compiles, made.python)]
    before = {text for each in kept for text in texts_in(each)}
    assert not [text for text in before if "secret" in text or "self.up(x)" in text]
    assert made.generated == ()
    assert made.gaps == (*STEP.gaps, Gap(GapReason.SOURCE_OFF, "source=False"))
    [place] = made.compiles[0].breaks[0].stack
    assert place == replace(line, code=None)
    assert [g.nodes[0].lineage.stack[0].line for g in made.graphs[:1]] == [40]


def test_lines_are_attributed_to_without_their_text_and_without_a_note() -> None:
    whole, without = attribute(STEP), attribute(with_source(STEP, False, Guard()))
    assert [(p.file, p.line) for p in whole.places] == [(p.file, p.line) for p in without.places]
    assert {place.code for place in without.places} == {None}
    assert without.notes == whole.notes
