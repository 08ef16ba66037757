"""Owns the colours of phases and of kinds of time: the same in each view.

Chosen to be told apart with any of the three kinds of colour blindness, and to stand out from
white, from the dark page, and (``middle``) from both; tests/exporters/test_colors.py measures it.
Perfetto takes no colours from a trace: it draws each name in one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiler_ext.records import Phase, Scope


@dataclass(frozen=True, slots=True)
class Color:
    """A colour, as ``#rrggbb``.

    Attributes:
        light: on a light page.
        dark: on a dark page.
        middle: where the background is not known: a terminal's, a notebook's.
    """

    light: str
    dark: str
    middle: str


PHASE_COLORS: Mapping[Phase, Color] = {
    Phase.FORWARD: Color("#2464dc", "#8ab4ff", "#5294fa"),
    Phase.BACKWARD: Color("#a9502c", "#d64a26", "#c8330f"),
    Phase.RECOMPUTE: Color("#c47f0c", "#f7b02a", "#c4860a"),
    Phase.GRADIENT_ACCUMULATION: Color("#66298c", "#a53fe0", "#8e48d3"),
    Phase.OPTIMIZER: Color("#0f4a33", "#c8f2da", "#1e7a5d"),
    Phase.OTHER: Color("#868d95", "#8a9098", "#898e96"),
}
SCOPE_COLORS: Mapping[Scope, Color] = {
    Scope.COMPILED: Color("#334a66", "#b9c9de", "#5f7ea6"),
    Scope.EAGER: Color("#6f88ab", "#7189ab", "#8a94a3"),
    Scope.COMMUNICATION: Color("#0d7d86", "#3fb5be", "#128f99"),
    Scope.IDLE: Color("#c9ced4", "#4a5057", "#9aa1a9"),
}


def style_sheet() -> str:
    """Return what gives a page a variable and a class for each phase and kind of time."""
    named = [(str(key), color) for key, color in (*PHASE_COLORS.items(), *SCOPE_COLORS.items())]
    light = "".join(f" --{name}: {color.light};" for name, color in named)
    dark = "".join(f" --{name}: {color.dark};" for name, color in named)
    shown = "\n".join(
        f".{name} {{ background: var(--{name}); fill: var(--{name}); }}" for name, _ in named
    )
    on_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{{dark} }} }}"
    return f":root {{{light} }}\n{on_dark}\n{shown}\n"
