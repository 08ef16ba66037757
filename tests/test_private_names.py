"""A private name that is gone raises where it is read, and is named before anything is read."""

from __future__ import annotations

import ast
import dataclasses
from collections import UserDict
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.cli import doctor
from profiler_ext.errors import PrivateNameError, TorchCapabilityError
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat import behaviour, inductor, names, points, private, process
from profiler_ext.torch_compat.behaviour import Build
from profiler_ext.torch_compat.names import fx_names, kernel_names, running_names
from profiler_ext.torch_compat.private import Attribute, Inner, Key, Member, Name, OptionalAttribute
from tests.compiling import capture, fresh_torch

__all__ = ["fresh_torch"]
HERE = "collections"
LOST = "what this test is about"


def problem_of(path: str, **options) -> str | None:
    return Name(HERE, path, LOST, **options).problem()


@pytest.fixture
def without(monkeypatch):
    """Makes this torch lack a declared name."""

    def take(name: Name) -> str:
        problem = f"{name.module}.{name.path} is not there"
        monkeypatch.setitem(private._PROBLEMS, name, problem)
        monkeypatch.setattr(private, "_VERIFIED", private._VERIFIED - {name})
        return problem

    return take


def test_a_name_is_there_as_member_attribute_assignment_text_or_inner_function():
    there = (
        "Counter",
        "UserDict.data",
        "Counter.most_common",
        "'_fields'",
        "Counter()._keep_positive",
    )
    assert [problem_of(path) for path in there] == [None] * 5
    assert problem_of("Counter.data") == "collections.Counter.data is not there"
    assert problem_of("'no such text'") == "collections.'no such text' is not there"
    assert problem_of("no_function()") == "collections.no_function() is not there"
    assert problem_of("Counter.most_common", takes=("n",)) is None
    wrong = "collections.Counter.most_common takes ('self', 'n'), but not ('k',)"
    assert problem_of("Counter.most_common", takes=("k",)) == wrong


def test_a_name_is_asked_for_in_its_versions_only():
    came = dataclasses.replace(behaviour.TAGS_BACKWARD_NODES, since=(2, 12), until=(2, 14))

    def asked(version):
        name = Name(HERE, "Gone", LOST, comes_with=came)
        return name.problem(build=Build(version)) is not None

    versions = ((2, 11), (2, 12), (2, 13), (2, 14), (3, 0))
    assert [asked(version) for version in versions] == [False, True, True, False, False]


def test_a_member_that_is_gone_raises_and_says_what_is_lost():
    with pytest.raises(PrivateNameError, match="Gone is not there; lost is what this test"):
        Member(HERE, "Gone", LOST).get()


def test_an_attribute_that_is_gone_is_distinguished_from_one_that_the_class_never_had():
    renamed, other = Attribute(HERE, "UserDict.items_renamed", LOST), object()
    assert renamed.maybe(other) is None
    with pytest.raises(PrivateNameError, match="UserDict has no items_renamed"):
        renamed.maybe(UserDict())
    with pytest.raises(PrivateNameError, match="object has no items_renamed"):
        renamed.of(other)


def test_a_key_that_no_code_sets_raises_and_one_that_is_only_not_there_is_none():
    assert Key(HERE, "'_fields'", LOST).of({}) is None
    assert Key(HERE, "'_fields'", LOST).of({"_fields": 1}) == 1
    with pytest.raises(PrivateNameError, match="'type_name' is not there"):
        Key(HERE, "'type_name'", LOST).of({"type_name": 1})


def test_a_mark_that_nobody_makes_raises():
    with pytest.raises(PrivateNameError):
        OptionalAttribute(HERE, "'_mark_of_nobody'", LOST).of(object())


def test_a_frame_whose_function_is_renamed_raises():
    with pytest.raises(PrivateNameError):
        Inner(HERE, "gone()", LOST).is_called("gone")


def test_this_torch_has_all_names():
    assert names.missing_names() == ()


def test_each_name_is_declared_once_and_says_what_is_lost():
    places = [(name.module, name.path) for name in names.ALL]
    assert len(set(places)) == len(places)
    assert all(name.purpose for name in names.ALL)


def test_each_place_that_is_wrapped_is_checked_before_capture_begins_and_by_the_doctor():
    """Without one of them nothing is captured at all, in any torch that is supported."""
    declared = {value for value in vars(points).values() if isinstance(value, points.Point)}
    assert declared | set(points.CALL_SITES) == set(points.ALL)
    assert {point.path for point in points.ALL} <= {each.subject for each in doctor.examine()}
    made = [
        path.name
        for path in Path(profiler_ext.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Point"
    ]
    assert set(made) == {"points.py", "profilers.py"}  # the second makes them of names


@pytest.mark.usefixtures("fresh_torch")
def test_capture_begins_with_a_gap_for_what_is_gone(without):
    problem = without(kernel_names.MUTATION_REAL_NAME)
    profiler_ext.enable()
    detail = f"{problem}; lost is the exact FX nodes of a kernel"
    assert capture().gaps == (Gap(GapReason.PRIVATE_NAME, detail),)


@pytest.mark.usefixtures("fresh_torch")
def test_capture_does_not_begin_without_a_vital_name(monkeypatch):
    gone = Member("torch._inductor.virtualized", "V_renamed", LOST, is_vital=True)
    monkeypatch.setattr(names, "ALL", (*names.ALL, gone))
    with pytest.raises(TorchCapabilityError, match="V_renamed is not there"):
        profiler_ext.enable()


def test_the_doctor_names_what_is_gone_and_what_is_lost(without):
    problem = without(fx_names.PARTITIONER_TAG)
    found = {each.subject: each for each in doctor.examine()}
    gone = found["'partitioner_tag'"]
    assert (gone.state, gone.detail) == ("missing", f"{problem}; unavailable: the phase of a node")
    assert not gone.is_fatal
    assert found["private names"].state == "missing"


def test_what_runs_in_the_users_steps_is_off_without_its_names(without):
    without(running_names.PROFILER_ENABLED)
    without(running_names.PROFILER_CONFIG)
    without(running_names.COMPILE_WRAPPER)
    assert not process.can_record()
    assert not process.can_mark_calls()
    assert not process.reports_frame_exit()
    assert process.threads_config(are_all=True) is None


def test_a_renamed_attribute_raises_at_the_read(monkeypatch):
    monkeypatch.delattr("torch._inductor.virtualized._V.graph")
    with pytest.raises(PrivateNameError, match=r"_V has no graph; lost is the call sites"):
        inductor.current_graph()
