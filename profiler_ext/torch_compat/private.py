"""The only access to torch's private names: each is declared once and read through it.

A missing name raises when it is read; nothing replaces it. Names are declared in ``names``, wrapped
places in ``points``, differences between versions in ``behaviour``.

A name is missing if its class neither has nor declares the attribute, nor assigns it in a method;
for a dictionary key, if the code of the module that sets it does not contain the text.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import torch

from profiler_ext.errors import PrivateNameError
from profiler_ext.torch_compat import behaviour
from profiler_ext.torch_compat.behaviour import Behaviour, Build
from profiler_ext.torch_compat.shapes import ShapeOf, live_shape, owner_of


@dataclass(frozen=True, eq=False)
class Name:
    """A private name of torch."""

    module: str
    path: str  # see ``shapes``
    purpose: str  # what is lost without it
    takes: tuple[str, ...] = ()  # parameters that are relied on
    comes_with: Behaviour | None = None  # if not every version has it
    is_vital: bool = False  # capture needs it
    is_lazy: bool = False  # of use only once the program has loaded the module
    is_of_gpu: bool = False  # builds for the CPU alone lack it, and do not need it

    @functools.cached_property
    def name(self) -> str:
        """The last part: an attribute, or a key."""
        return self.path.rpartition(".")[2].strip("'()")

    def _is_expected(self, build: Build | None) -> bool:
        if self.comes_with is None:
            return True
        return bool(self.comes_with if build is None else self.comes_with.is_in(build))

    def problem(self, shape_of: ShapeOf = live_shape, build: Build | None = None) -> str | None:
        """Return why this torch does not fit, if so."""
        is_live = shape_of is live_shape
        is_unused = self.is_lazy and is_live and self.module not in sys.modules
        is_unused |= self.is_of_gpu and is_live and not (torch.version.cuda or torch.version.hip)
        if is_unused or not self._is_expected(build):
            return None
        try:
            shape = shape_of(self.module, self.path) or ()
        except LookupError:
            return f"{self.module}.{self.path} is not there"
        missing = tuple(name for name in self.takes if name not in shape)
        return f"{self.module}.{self.path} takes {shape}, but not {missing}" if missing else None

    def missing_reason(self) -> str | None:
        """Return why this process's torch does not fit, if so; cached."""
        return _known(self)

    def is_available(self) -> bool:
        """Tell whether this torch has it, as expected."""
        return _known(self) is None

    def check(self) -> None:
        """Raise if it is missing."""
        if (problem := _known(self)) is not None:
            self.refuse(problem)

    def refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        """Raise that it is missing."""
        message = f"torch {torch.__version__}: {problem}; lost is {self.purpose}"
        raise PrivateNameError(message) from cause

    def given(self, frame: FrameType) -> Any:
        """Return the first relied-on argument of a call with this frame."""
        self.check()
        return frame.f_locals[self.takes[0]]


@dataclass(frozen=True, eq=False)
class Member(Name):
    """What a module or a class holds: a function, a class, a value."""

    def get(self) -> Any:
        """Return it as it is now; a missing one raises PrivateNameError."""
        try:
            return getattr(_owner(self), self.name)
        except (ImportError, AttributeError) as error:
            self.refuse(f"{self.module}.{self.path} is not there", error)

    def kept(self) -> Any:
        """Return a function or class as :meth:`get` does, cached."""
        if (value := _KEPT.get(self)) is None:  # called for each node of a graph
            value = _KEPT[self] = self.get()
        return value

    def set(self, value: Any) -> None:
        """Set its value."""
        self.get()
        setattr(_owner(self), self.name, value)

    def is_type_of(self, thing: object) -> bool:
        """Tell whether a thing is an instance of this class."""
        return isinstance(thing, self.kept())


@dataclass(frozen=True, eq=False)
class Attribute(Name):
    """An attribute or method of a class's instances."""

    def of(self, thing: object) -> Any:
        """Return it for a thing that must have it."""
        try:
            return getattr(thing, self.name)
        except AttributeError as error:
            kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
            self.refuse(f"{kind} has no {self.name}", error)

    def put(self, thing: object, value: object) -> None:
        """Set it on a thing that must have it."""
        self.of(thing)
        setattr(thing, self.name, value)

    def maybe(self, thing: object) -> Any:
        """Return it for a thing of its class, ``None`` for any other."""
        try:
            owner = _owner(self)
        except (ImportError, AttributeError) as error:
            self.refuse(f"{self.module}.{self.path} is not there", error)
        return self.of(thing) if isinstance(thing, owner) else None


@dataclass(frozen=True, eq=False)
class Key(Name):
    """A string that torch's code uses as a key or mark."""

    @property
    def text(self) -> str:
        """The string, if this torch has it."""
        if self not in _VERIFIED:
            self.check()
        return self.name

    def of(self, entries: Mapping[Any, Any]) -> Any:
        """Return the entry under it, if any."""
        if self not in _VERIFIED:
            self.check()
        return entries.get(self.name)


@dataclass(frozen=True, eq=False, slots=True)
class Keys:
    """Keys that are read together from one dictionary."""

    keys: tuple[Key, ...]

    def of(self, entries: Mapping[Any, Any]) -> list[Any]:
        """Return the entry under each key, if any."""
        if (texts := _TEXTS.get(self)) is None:
            texts = _TEXTS[self] = tuple(key.text for key in self.keys)
        return [entries.get(text) for text in texts]


@dataclass(frozen=True, eq=False)
class OptionalAttribute(Name):
    """An attribute that torch sets on some things of a kind."""

    def of(self, thing: object) -> Any:
        """Return it, ``None`` for a thing without it."""
        if self not in _VERIFIED:
            self.check()
        return getattr(thing, self.name, None)


@dataclass(frozen=True, eq=False)
class Inner(Name):
    """A function inside one of a module's functions, whose frame is read."""

    def is_called(self, name: str) -> bool:
        """Tell whether a code object's name is this function's."""
        self.check()
        return name == self.name


_VERIFIED: set[Name] = set()
_PROBLEMS: dict[Name, str] = {}
_TEXTS: dict[Keys, tuple[str, ...]] = {}
_OWNERS: dict[Name, Any] = {}
_KEPT: dict[Name, Any] = {}


def _owner(name: Name) -> Any:
    if name not in _OWNERS:
        _OWNERS[name] = owner_of(name.module, name.path)
    return _OWNERS[name]


def _known(name: Name) -> str | None:
    if name not in _VERIFIED and name not in _PROBLEMS:
        problem = name.problem()
        if problem is None:
            _VERIFIED.add(name)
        else:
            _PROBLEMS[name] = problem
    return _PROBLEMS.get(name)


def forget() -> None:
    """Forget which names were found."""
    _VERIFIED.clear()
    _PROBLEMS.clear()
    _TEXTS.clear()
    _OWNERS.clear()
    _KEPT.clear()
    behaviour.forget()


def unavailable(names: Iterable[Name]) -> tuple[Name, ...]:
    """Return those names that this torch should have and lacks."""
    return tuple(name for name in names if not name.is_available())
