"""The one door to torch's private names: each is declared once and read through it.

A declared name says where torch has it, what is lost without it, and which behaviour it comes with
where not every version has it. One that is not there raises at the read; nothing stands in its
place. What is declared stands in ``names``; what is wrapped, in ``points``; what differs between
versions, in ``behaviour``.

How it is noticed that a name is gone: an attribute must be in its class, be declared by it or
be assigned in one of its methods; a key of a dictionary must stand as a text in the code of
the module that sets it, since the single dictionary may lack it for reasons of torch's.
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
    """A private name of torch's.

    Attributes:
        module: module that holds it.
        path: what it is in there; see ``shapes``.
        serves: what is lost without it, for a person.
        takes: names of parameters that are relied on.
        comes_with: what torch does where it has it; ``None`` where all versions have it.
        is_vital: nothing can be captured without it.
        is_lazy: it is of use only where the user's program has loaded the module.
    """

    module: str
    path: str
    purpose: str
    takes: tuple[str, ...] = ()
    comes_with: Behaviour | None = None
    is_vital: bool = False
    is_lazy: bool = False

    @functools.cached_property
    def name(self) -> str:
        """The last part: what is written after a dot, or as a key."""
        return self.path.rpartition(".")[2].strip("'()")

    def _is_expected(self, build: Build | None) -> bool:
        if self.comes_with is None:
            return True
        return bool(self.comes_with if build is None else self.comes_with.is_in(build))

    def problem(self, shape_of: ShapeOf = live_shape, build: Build | None = None) -> str | None:
        """Return why this torch does not fit, or ``None``."""
        is_unused = self.is_lazy and shape_of is live_shape and self.module not in sys.modules
        if is_unused or not self._is_expected(build):
            return None
        try:
            shape = shape_of(self.module, self.path) or ()
        except LookupError:
            return f"{self.module}.{self.path} is not there"
        missing = tuple(name for name in self.takes if name not in shape)
        return f"{self.module}.{self.path} takes {shape}, but not {missing}" if missing else None

    def missing_reason(self) -> str | None:
        """Return why this process's torch does not fit, or ``None``; it is looked for once."""
        return _known(self)

    def is_available(self) -> bool:
        """Tell whether this torch has it, as it is expected to."""
        return _known(self) is None

    def check(self) -> None:
        """Look whether it is there; the answer is kept."""
        if (problem := _known(self)) is not None:
            self.refuse(problem)

    def refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        """Say that it is not there."""
        message = f"torch {torch.__version__}: {problem}; lost is {self.purpose}"
        raise PrivateNameError(message) from cause

    def given(self, frame: FrameType) -> Any:
        """Return what a call of it, whose frame this is, was given as what is relied on.

        Raises:
            PrivateNameError: It takes no such thing.
        """
        self.check()
        return frame.f_locals[self.takes[0]]


@dataclass(frozen=True, eq=False)
class Member(Name):
    """What a module or a class holds: a function, a class, a value."""

    def get(self) -> Any:
        """Return it as it is now.

        Raises:
            PrivateNameError: It is not there.
        """
        try:
            return getattr(_owner(self), self.name)
        except (ImportError, AttributeError) as error:
            self.refuse(f"{self.module}.{self.path} is not there", error)

    def kept(self) -> Any:
        """Return a function or class, as :meth:`get` does, but look for it once."""
        if (value := _KEPT.get(self)) is None:  # asked of each node of a graph, often
            value = _KEPT[self] = self.get()
        return value

    def set(self, value: Any) -> None:
        """Put a value in its place.

        Raises:
            PrivateNameError: It is not there.
        """
        self.get()
        setattr(_owner(self), self.name, value)

    def is_type_of(self, thing: object) -> bool:
        """Tell whether a thing is an instance of the class that this is."""
        return isinstance(thing, self.kept())


@dataclass(frozen=True, eq=False)
class Attribute(Name):
    """What the instances of a class have: a method or a value."""

    def of(self, thing: object) -> Any:
        """Return it of a thing that must have it.

        Raises:
            PrivateNameError: The thing has it not.
        """
        try:
            return getattr(thing, self.name)
        except AttributeError as error:
            kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
            self.refuse(f"{kind} has no {self.name}", error)

    def put(self, thing: object, value: object) -> None:
        """Give a thing another value of it.

        Raises:
            PrivateNameError: The thing has it not.
        """
        self.of(thing)
        setattr(thing, self.name, value)

    def maybe(self, thing: object) -> Any:
        """Return it of a thing that may be of another class; then ``None``.

        Raises:
            PrivateNameError: The thing is of the class, and has it not.
        """
        try:
            owner = _owner(self)
        except (ImportError, AttributeError) as error:
            self.refuse(f"{self.module}.{self.path} is not there", error)
        return self.of(thing) if isinstance(thing, owner) else None


@dataclass(frozen=True, eq=False)
class Key(Name):
    """A text that torch's code sets as a key, or marks something with."""

    @property
    def text(self) -> str:
        """The text, where this torch has it.

        Raises:
            PrivateNameError: No code of the module has it.
        """
        if self not in _VERIFIED:
            self.check()
        return self.name

    def of(self, entries: Mapping[Any, Any]) -> Any:
        """Return what stands under it; ``None`` where nothing does.

        Raises:
            PrivateNameError: No code of the module has it.
        """
        if self not in _VERIFIED:
            self.check()
        return entries.get(self.name)


@dataclass(frozen=True, eq=False, slots=True)
class Keys:
    """Keys that are read together, of one dictionary after the other."""

    keys: tuple[Key, ...]

    def of(self, entries: Mapping[Any, Any]) -> list[Any]:
        """Return what stands under each; ``None`` where nothing does. Raises as a key does."""
        if (texts := _TEXTS.get(self)) is None:
            texts = _TEXTS[self] = tuple(key.text for key in self.keys)
        return [entries.get(text) for text in texts]


@dataclass(frozen=True, eq=False)
class OptionalAttribute(Name):
    """What torch puts on some of the things of a kind, and on others not."""

    def of(self, thing: object) -> Any:
        """Return it, ``None`` of a thing that has it not.

        Raises:
            PrivateNameError: No code of the module puts it anywhere.
        """
        if self not in _VERIFIED:
            self.check()
        return getattr(thing, self.name, None)


@dataclass(frozen=True, eq=False)
class Inner(Name):
    """A function within one of a module's functions, whose frame is looked at."""

    def is_called(self, name: str) -> bool:
        """Tell whether code of this name is its.

        Raises:
            PrivateNameError: No code of the module is called so.
        """
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
    """Look for each name anew, as a process does that has just loaded torch."""
    _VERIFIED.clear()
    _PROBLEMS.clear()
    _TEXTS.clear()
    _OWNERS.clear()
    _KEPT.clear()
    behaviour.forget()


def unavailable(names: Iterable[Name]) -> tuple[Name, ...]:
    """Return those of some names that this torch is to have and has not."""
    return tuple(name for name in names if not name.is_available())
