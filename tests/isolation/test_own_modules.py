"""This package finds the modules that it began with, whatever the program did to them."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from profiler_ext import errors
from profiler_ext.isolation import user_state
from profiler_ext.isolation.user_state import isolated
from profiler_ext.isolation.user_state import own_modules as in_place

NAME, PACKAGE = "profiler_ext.errors", "profiler_ext"


@pytest.mark.parametrize("moment", [in_place, isolated])
def test_what_was_taken_out_is_there_meanwhile_and_gone_again(monkeypatch, moment) -> None:
    with moment():
        pass
    whole = sys.modules[PACKAGE]
    monkeypatch.delitem(sys.modules, PACKAGE)
    monkeypatch.delitem(sys.modules, NAME)
    with moment():
        assert sys.modules[NAME] is errors
        assert sys.modules[PACKAGE] is whole
    assert {PACKAGE, NAME} & set(sys.modules) == set()


def test_another_module_of_the_name_is_the_program_s_again(monkeypatch) -> None:
    with in_place():
        pass
    theirs = ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, theirs)
    with pytest.raises(KeyError), in_place():
        assert sys.modules[NAME] is errors
        raise KeyError
    assert sys.modules[NAME] is theirs


def test_a_module_of_another_package_of_the_name_is_never_taken_for_ours(monkeypatch) -> None:
    name = f"{PACKAGE}.of_theirs"
    monkeypatch.setitem(sys.modules, PACKAGE, ModuleType(PACKAGE))
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    loaded = user_state._Loaded()
    monkeypatch.setattr(loaded, "_modules", {PACKAGE: ModuleType(PACKAGE)})
    assert loaded.displaced() == {PACKAGE: sys.modules[PACKAGE]}


def test_what_is_loaded_meanwhile_stays_loaded(monkeypatch) -> None:
    name = f"{PACKAGE}.made_meanwhile"
    made = ModuleType(name)
    with in_place():
        monkeypatch.setitem(sys.modules, name, made)
    assert sys.modules[name] is made
    monkeypatch.delitem(sys.modules, name)
    with in_place():
        assert sys.modules[name] is made
    assert name not in sys.modules
    del user_state._LOADED._modules[name]
