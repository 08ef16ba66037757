"""A remedy, and how it patches a running script from outside and counts what it patched."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

import msgspec

_MAX_SITES = 20
_MAX_WALKS = 200
"""After so many notes the program's frame is not looked for any more: it costs time in a step."""
Arguments = dict[str, Any]


class Site(msgspec.Struct, frozen=True):
    """The place of a call in the user's source, as Python has it for the running instruction."""

    file: str
    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Keyword:
    """The argument that an edit adds to the patched calls, or changes in them."""

    argument: str
    value: str  # as source
    calls: tuple[str, ...]  # only calls of these names are edited
    replaces: tuple[str, ...] = ()  # arguments that exclude it
    max_positional: int = 99  # with more, one of these is given by position


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that may make a step faster, or its memory less."""

    name: str
    title: str
    edit: str  # what to write into the script
    rules: tuple[str, ...] = ()  # findings of these propose it
    named_by: tuple[str, ...] = ()  # findings of these propose it where their remedy names it
    patches: str = ""  # what it patches; nothing where it cannot be done from outside
    lacks: str = ""  # why it does not apply where it patched nothing
    apply: Callable[[Patching], None] | None = None
    keyword: Keyword | None = None
    statement: str = ""  # to stand after the imports of the script
    precision: str = "float32"  # what the tolerance of losses is for
    frees: str = ""  # "allocated" or "reserved" memory, where that is what it is for


class Patching:
    """What a remedy patches in this process; an original is called as before where it is right.

    Args:
        torch: the module.
        counts_only: count what would be patched, and call all originals as before.
    """

    def __init__(self, torch: Any, *, counts_only: bool = False) -> None:
        self.torch = torch
        self.counts_only = counts_only
        self.count = 0
        self.sites: dict[Site, None] = {}
        self.reason = ""  # why nothing was patched, where a remedy knows better than its row

    @property
    def has_gpu(self) -> bool:
        """Whether there is a GPU; a driver that is not in use stays so."""
        if self.torch.cuda.device_count():
            return True
        self.reason = "there is no GPU"
        return False

    def note(self) -> bool:
        """Count a thing to patch, and where the program made it; returns whether to patch it."""
        self.count += 1
        if self.count <= _MAX_WALKS and len(self.sites) < _MAX_SITES:
            site = _site(sys._getframe(1))
            if site is not None:
                self.sites[site] = None
        return not self.counts_only

    @property
    def noting(self) -> Callable[[], int]:
        """A function that notes, for code that may be compiled: it counts while that is traced."""

        def noted() -> int:
            self.note()
            return 0

        marked: Callable[[], int] = self.torch.compiler.assume_constant_result(noted)
        return marked

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace a function by ``around(original, *args, **kwargs)``."""
        original = inspect.getattr_static(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        setattr(owner, name, wrapped)

    def arguments(
        self, owner: Any, name: str, change: Callable[[Arguments], Arguments | None]
    ) -> None:
        """Change the arguments of a function: ``change`` returns the new ones, or ``None``."""
        signature = inspect.signature(inspect.getattr_static(owner, name))

        def around(original: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:  # the original says so
                return original(*args, **kwargs)
            given = dict(bound.arguments)
            named = given.pop("kwargs", {})
            changes = change({**given, **named})
            if changes is None or not self.note():
                return original(*args, **kwargs)
            for key, value in changes.items():
                bound.arguments[key] = value
            return original(*bound.args, **bound.kwargs)

        self.wrap(owner, name, around)

    def on_first_work(self, callback: Callable[[Any], None]) -> None:
        """Call back once: with what is first compiled, or called as :meth:`on_first_module` has it.

        That is ``None`` where it is no module.
        """
        self.on_first_module(lambda module, _: callback(module), lambda _: callback(None))

    def on_first_module(
        self,
        callback: Callable[[Any, tuple[Any, ...]], Any],
        on_function: Callable[[Any], None] | None = None,
    ) -> None:
        """Call back at the first outermost call of a module with parameters, before it.

        In a script that trains, the first with gradients. A result replaces the call's arguments.
        Of a module that the script compiles, when it does: a hook on all modules' calls would be
        compiled too. What it compiles otherwise may call its model, which is not seen then.
        """
        from profiler_ext.torch_compat.process import live_optimizer

        torch = self.torch
        module: type = torch.nn.Module
        is_over: list[bool] = []

        def begins(called: Any, args: tuple[Any, ...]) -> Any:
            if torch.compiler.is_compiling() or next(called.parameters(), None) is None:
                return None
            if not torch.is_grad_enabled() and live_optimizer() is not None:
                return None
            handle.remove()
            is_over.append(True)
            return callback(called, args)

        def compiled(original: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            model = args[0] if args else kwargs.get("model")
            if is_over or model is None or isinstance(getattr(model, "__self__", None), module):
                return result  # of a module's method: hooks on the module are called around it
            handle.remove()
            is_over.append(True)
            if isinstance(result, module):
                callback(result, ())
            elif on_function is not None:
                on_function(result)
            else:
                self.reason = "the script compiles a function, within which its model may be called"
            return result

        handle = torch.nn.modules.module.register_module_forward_pre_hook(begins)
        self.wrap(torch, "compile", compiled)


_NOT_USERS = tuple(
    f"{os.path.realpath(folder)}{os.sep}"
    for folder in (
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        os.path.dirname(os.path.dirname(__file__)),  # noqa: PTH120
    )
)


def _site(frame: FrameType | None) -> Site | None:
    """Return the nearest call in the user's own code."""
    while frame is not None:
        file = os.path.realpath(frame.f_code.co_filename)
        is_users = not file.startswith(_NOT_USERS) and os.sep + "site-packages" not in file
        if is_users and os.path.isfile(file):  # noqa: PTH113
            at = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
            line, end_line, column, end_column = at
            if None in at or line is None or end_line is None:
                return None
            return Site(file, line, end_line, column or 0, end_column or 0)
        frame = frame.f_back
    return None
