"""What torch does in some versions only: the flags, the rule for versions, that torch does it."""

from __future__ import annotations

import ast
import dataclasses
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import profiler_ext
from profiler_ext.cli import doctor
from profiler_ext.errors import UntestedTorchWarning
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat import behaviour, compiled_autograd, fx
from profiler_ext.torch_compat.behaviour import (
    Behaviour,
    Build,
    Difference,
    ProbedFlag,
    build_of,
)
from tests.behaviour_proofs import NEEDS_GPU, PROOFS
from tests.compiling import capture, fresh_torch, torch
from tests.symbols.test_tables import VERSIONS

__all__ = ["fresh_torch"]
PACKAGE = Path(profiler_ext.__file__).parent
ROWS: tuple[Difference, ...] = (
    *behaviour.ALL,
    *behaviour.VERSION_FLAGS,
    *behaviour.PROBED_FLAGS,
)
HERE = build_of(str(torch.__version__))
every_flag = pytest.mark.parametrize("flag", behaviour.ALL, ids=lambda each: each.name)


# The rule for versions


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ("2.13.0", Build((2, 13))),
        ("2.13.0+cpu", Build((2, 13))),
        ("2.11.1+cu130", Build((2, 11))),
        ("2.13.0.post2+rocm6.4", Build((2, 13))),
        ("2.11.0a0+nv25.12", Build((2, 11), is_release=False)),
        ("2.16.0a0+git12ab34c", Build((2, 16), is_release=False)),
        ("2.16.0.dev20261101+cu132", Build((2, 16), is_release=False)),
        ("2.14.0rc3", Build((2, 14), is_release=False)),
        ("unknown", Build(None, is_release=False)),
    ],
)
def test_a_version_is_a_release_or_on_its_way_to_one(version: str, build: Build) -> None:
    assert build_of(version) == build


CAME_AND_WENT = dataclasses.replace(
    behaviour.TAGS_BACKWARD_NODES, name="gone", since=(2, 12), until=(2, 15)
)


@pytest.mark.parametrize(
    ("version", "does"),
    [
        ("2.11.0+cu130", False),
        ("2.11.0a0+nv25.12", False),
        ("2.12.0.dev20260301", None),
        ("2.12.0a0+nv26.03", None),
        ("2.12.0rc1", None),
        ("2.12.0", True),
        ("2.13.0a0+git12ab34c", True),
        ("2.14.1+cpu", True),
        ("2.15.0a0+nv26.09", None),
        ("2.15.0", False),
        ("2.16.0a0", False),
        ("main", None),
    ],
)
def test_a_build_on_its_way_leaves_open_what_came_or_went_with_its_number(
    version: str, does: bool | None
) -> None:
    assert CAME_AND_WENT.is_in(build_of(version)) is does


# The rows


def test_each_row_is_named_once_and_each_flag_as_its_row() -> None:
    named = {name: row for name, row in vars(behaviour).items() if isinstance(row, Behaviour)}
    assert {name.lower(): row for name, row in named.items()} == {f.name: f for f in behaviour.ALL}
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda each: each.name)
def test_each_row_tells_supported_versions_apart(row: Difference) -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    needed = (Requirement(each) for each in project["dependencies"])
    (supported,) = (each.specifier for each in needed if each.name == "torch")
    releases = [version for version in VERSIONS if version in supported]
    assert releases == ["2.11.0", "2.13.0", "2.14.1", "2.15.0"]
    assert {row.is_in(build_of(version)) for version in releases} == {False, True}


@pytest.mark.parametrize(
    ("version", "does"),
    [("2.13.0", False), ("2.14.0.dev20260701", False), ("2.14.0", True), ("main", False)],
)
def test_what_the_number_alone_tells_is_not_done_where_it_leaves_that_open(
    version: str, does: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert bool(behaviour.ENDS_ALL_THREADS) is does


@pytest.mark.parametrize(
    "flag", (*behaviour.ALL, *behaviour.VERSION_FLAGS), ids=lambda each: each.name
)
def test_each_flag_is_asked(flag: Difference) -> None:
    asked = {
        path.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If | ast.IfExp) and f"'{flag.name.upper()}'" in ast.dump(node.test)
    }
    assert asked


def test_no_other_file_compares_versions_or_reads_torchs_source() -> None:
    signs = ("getsource", "torch_version()", "version_info", "TorchVersion", "torch.version")
    found = {
        f"{path.name}: {sign}"
        for folder in ("torch_compat", "capture", "profiling", "run")
        for path in (PACKAGE / folder).rglob("*.py")
        for sign in signs
        if sign in path.read_text()
    }
    # For the recording; for whom what libraries launch is the same; and which names a build has.
    fields = {
        "installing.py: torch_version()",
        "accelerator.py: torch.version",
        "captured_nodes.py: torch.version",
        "holders.py: version_info",  # Python's
        "private.py: torch.version",
    }
    assert found <= fields


@pytest.mark.parametrize("row", behaviour.PROBED_FLAGS, ids=lambda each: each.name)
def test_what_data_tells_is_read_in_a_file(row: ProbedFlag) -> None:
    assert (PACKAGE / row.read_in).is_file()


# What torch does, by what it does


def test_each_row_has_its_proof() -> None:
    by_chance = {row.name for row in behaviour.VERSION_FLAGS}  # one end in 200 ends the process
    assert PROOFS.keys() | NEEDS_GPU | by_chance == {row.name for row in ROWS}


@pytest.mark.usefixtures("fresh_torch")
@every_flag
def test_torch_does_what_the_flag_says(flag: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PROOFS[flag.name](monkeypatch) is bool(flag)
    assert flag.is_in(HERE) in (None, bool(flag))


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize(
    "row",
    [row for row in behaviour.PROBED_FLAGS if row.name not in NEEDS_GPU],
    ids=lambda each: each.name,
)
def test_torch_does_what_the_data_says(row: ProbedFlag, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PROOFS[row.name](monkeypatch) is row.is_in(HERE)


# A torch that is not what its version says


@pytest.mark.usefixtures("fresh_torch")
@every_flag
def test_a_torch_that_differs_from_its_version_is_a_gap_and_the_doctor_tells(
    flag: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork lacks the sign, or a backport has it: the flag follows the sign."""
    does = bool(flag)
    monkeypatch.setitem(behaviour._SHOWN, flag, not does)
    expected, there = (flag.does, "is not there") if does else (flag.otherwise, "is there")
    message = (
        f"torch {torch.__version__}: by its version it {expected}, "
        f"but {'.'.join(flag.sign)} {there}"
    )
    assert bool(flag) is not does
    profiler_ext.enable()
    assert Gap(GapReason.TORCH_BEHAVIOUR, message) in capture().gaps
    found = {each.subject: each for each in doctor.examine()}[flag.name]
    assert (found.state, found.detail, found.is_fatal) == ("missing", message, False)


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("version", ["2.10.2", "2.12.1", "2.16.0", "2.16.0.dev20261120", "main"])
def test_a_torch_that_was_not_tried_is_a_warning_a_gap_and_the_doctor_tells(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    message = (
        f"torch {version} was not tried with this profiler-ext, 2.11, 2.13, 2.14, 2.15 were: "
        "a line or a module may be wrong"
    )
    with pytest.warns(UntestedTorchWarning) as warned:
        profiler_ext.enable()
    profiler_ext.enable()
    assert [str(each.message) for each in warned] == [message]
    assert Gap(GapReason.TORCH_BEHAVIOUR, message) in capture().gaps
    found = {each.subject: each for each in doctor.examine()}["torch"]
    assert (found.state, found.detail, found.is_fatal) == ("missing", message, False)


def test_the_torchs_that_were_tried_are_those_that_pip_lets_in() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    needed = (Requirement(each) for each in project["dependencies"])
    (supported,) = (each.specifier for each in needed if each.name == "torch")
    assert tuple((2, n) for n in range(40) if f"2.{n}.0" in supported) == behaviour.TESTED_VERSIONS
    assert behaviour.untested_version() is None


@pytest.mark.parametrize("version", ["2.13.0a0+nv26.05", "2.12.0.dev20260301", "main"])
def test_a_build_whose_number_says_nothing_is_what_it_shows(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    open_ones = [each for each in behaviour.ALL if each.is_in(build_of(version)) is None]
    for flag in open_ones:
        for shows in (True, False):
            monkeypatch.setitem(behaviour._SHOWN, flag, shows)
            assert bool(flag) is shows
            assert flag.contradiction() is None
    assert open_ones


def test_this_torch_is_what_its_version_says() -> None:
    assert list(behaviour.contradictions()) == []


def test_a_backward_half_that_comes_otherwise_than_the_flag_says_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, object] = {"aot_config": None, "lazy_backward_info": None}
    monkeypatch.setitem(behaviour._SHOWN, behaviour.HANDS_BACKWARD_AS_SPEC, False)
    with pytest.raises(KeyError):
        compiled_autograd.backward_of({"spec": object()})
    monkeypatch.undo()
    if behaviour.HANDS_BACKWARD_AS_SPEC:
        with pytest.raises(StopIteration):
            compiled_autograd.backward_of(given)


def test_a_tag_is_absent_where_torch_never_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(behaviour._SHOWN, behaviour.TAGS_BACKWARD_NODES, False)
    assert fx.autograd_backward({"autograd_backward": True}) is None
