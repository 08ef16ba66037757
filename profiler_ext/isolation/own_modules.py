"""Owns that this package finds its own modules, whatever the program did to ``sys.modules``.

A program may take modules out, to load them anew or to load others of the same names. What we
import or look up by name later must be what we began with, and no second copy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType

_PACKAGE = __name__.partition(".")[0]


class _Loaded:
    """The modules of this package, as they were loaded first."""

    def __init__(self) -> None:
        self._modules = {_PACKAGE: sys.modules[_PACKAGE]}
        self._counted = 0

    def update(self) -> None:
        """Look for those that were loaded since, where any module was."""
        if len(sys.modules) == self._counted:
            return
        for name, module in tuple(sys.modules.items()):
            if name.startswith(f"{_PACKAGE}."):
                self._modules.setdefault(name, module)
        self._counted = len(sys.modules)

    def displaced(self) -> dict[str, ModuleType | None]:
        """Return what the program has under the names of ours."""
        if sys.modules.get(_PACKAGE) is self._modules[_PACKAGE]:
            self.update()
        current = {name: sys.modules.get(name) for name in self._modules}
        return {name: m for name, m in current.items() if m is not self._modules[name]}

    def install(self, restores: ExitStack) -> None:
        """Have them under their names until what gives back is closed."""
        for name, module in self.displaced().items():
            if module is None:
                restores.callback(sys.modules.pop, name, None)
            else:
                restores.callback(sys.modules.__setitem__, name, module)
            sys.modules[name] = self._modules[name]


_LOADED = _Loaded()


@contextmanager
def own_modules() -> Iterator[None]:
    """Have this package's modules under their names, and then again what the program has there."""
    with ExitStack() as restores:
        _LOADED.install(restores)
        try:
            yield
        finally:
            with suppress(Exception):
                _LOADED.update()
