"""The order in which a call ran its call sites, where the graph has loops.

A loop's sites are recorded once and run as often as the data require: condition, body, condition,
... The names of what ran are parsed by the grammar of the sites; only a complete and unambiguous
parse counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from profiler_ext.records.provenance import CallSite

# Operators by which the wrapper reads a condition: as a number, as a truth value
_READS = frozenset({"aten::item", "aten::is_nonzero"})
_LOOP = ("condition", "body")


@dataclass(frozen=True, slots=True)
class _Read:
    """The read of a condition, which the wrapper may repeat."""

    site: int


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Pieces that run any number of times."""

    pieces: tuple[_Piece, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Alternatives, one of which runs."""

    options: tuple[tuple[_Piece, ...], ...]


_Piece = int | _Read | _Repeat | _Choice  # what a graph runs; an integer is a call site


class LoopGrammar:
    """The grammar of a graph's call sites."""

    def __init__(self, sites: Sequence[CallSite], name: Callable[[CallSite], str]) -> None:
        self._sites = sites
        self._symbols: dict[str, str] = {}
        # Return a letter of its own for one more name, outside of what expressions read as
        # theirs.
        site_symbols = [
            self._symbols.setdefault(_canonical_name(name(s)), chr(0xE000 + len(self._symbols)))
            for s in sites
        ]
        self._symbol_of: Mapping[int, str] = dict(enumerate(site_symbols))
        self._pieces = self._parse(range(len(sites)), 0)

    def order(self, names: Sequence[str]) -> tuple[int, ...] | None:
        """Return the site of each name in a sentence, ``None`` if it is none or open."""
        # Matching takes exponential time over turns that can be split in many ways, or not at all.
        if _is_ambiguous(self._pieces):
            return None
        return self._read(
            self._pieces, "".join(self._symbols[_canonical_name(name)] for name in names)
        )

    def knows(self, name: str) -> bool:
        """Tell whether a site has a name."""
        return bool(name) and _canonical_name(name) in self._symbols

    def _parse(self, sites: Sequence[int], depth: int) -> tuple[_Piece, ...]:
        def call_of(site: int) -> str | None:
            within = self._sites[site].within
            return within[depth].call if len(within) > depth else None

        pieces: list[_Piece] = []
        for call, group in groupby(sites, key=call_of):
            own = list(group)
            if call is None:
                pieces += [_Read(at) if self._sites[at].op in _READS else at for at in own]
            else:
                read = [pieces.pop()] if pieces and isinstance(pieces[-1], _Read) else []
                pieces += self._nested(own, depth, read)
        return tuple(pieces)

    def _nested(self, sites: list[int], depth: int, read: list[_Piece]) -> list[_Piece]:
        """Return the pieces of what one node calls: a loop, branches, or one graph."""
        groups = groupby(sites, key=lambda at: self._sites[at].within[depth].part)
        parts = {part: self._parse(list(own), depth + 1) for part, own in groups}
        if "graph" in parts:
            return [*read, *parts["graph"]]
        if not parts.keys().isdisjoint(_LOOP):
            condition = [*parts.get("condition", ()), *read]
            return [*condition, _Repeat((*parts.get("body", ()), *condition))]
        # A branch that launches nothing has no sites.
        options = tuple(parts.values())
        return [*read, _Choice(options if len(options) > 1 else (*options, ()))]

    def _read(self, pieces: Sequence[_Piece], text: str) -> tuple[int, ...] | None:
        """Return the sites of a sentence, letter by letter."""
        # One expression finds the first parse and the other the last; if they are equal there is no
        # other.
        spans = [self._spans(pieces, text, is_first=option) for option in (True, False)]
        if spans[0] is None or spans[0] != spans[1]:
            return None
        sites: list[int] = []
        for piece, span in zip(pieces, spans[0], strict=True):
            own = self._piece_sites(piece, span)
            if own is None:
                return None
            sites += own
        return tuple(sites)

    def _piece_sites(self, piece: _Piece, text: str) -> Sequence[int] | None:
        if isinstance(piece, int):
            return (piece,)
        if isinstance(piece, _Read):
            return (piece.site,) * len(text)
        if isinstance(piece, _Choice):
            options = [
                option
                for option in piece.options
                if self._spans(option, text, is_first=True) is not None
            ]
            return self._read(options[0], text) if len(options) == 1 else None
        return self._repeated(piece, text)

    def _repeated(self, piece: _Repeat, text: str) -> Sequence[int] | None:
        sites: list[int] = []
        while text:
            spans = self._spans((*piece.pieces, piece), text, is_first=True)
            assert spans is not None  # of whole turns, and there is one; none is empty
            iteration = text[: len(text) - len(spans[-1])]
            own = self._read(piece.pieces, iteration)
            if own is None:
                return None
            sites += own
            text = text[len(iteration) :]
        return sites

    def _spans(
        self, pieces: Sequence[_Piece], text: str, *, is_first: bool
    ) -> tuple[str, ...] | None:
        pattern = "".join(f"({self._pattern(piece, is_first)})" for piece in pieces)
        match = re.fullmatch(pattern, text)
        return None if match is None else match.groups()

    def _pattern(self, piece: _Piece, is_first: bool) -> str:
        often = "*" if is_first else "*?"
        if isinstance(piece, int):
            return self._symbol_of[piece]
        if isinstance(piece, _Read):
            return self._symbol_of[piece.site] + often
        if isinstance(piece, _Repeat):
            return f"(?:{self._sequence(piece.pieces, is_first)}){often}"
        options = [self._sequence(option, is_first) for option in piece.options]
        return "|".join(options if is_first else reversed(options))

    def _sequence(self, pieces: Sequence[_Piece], is_first: bool) -> str:
        return "".join(f"(?:{self._pattern(piece, is_first)})" for piece in pieces)


def _is_ambiguous(pieces: Sequence[_Piece]) -> bool:
    """Tell whether a loop's turns may be empty, or their boundaries are ambiguous."""
    for piece in pieces:
        inner = _inner(piece)
        if any(map(_is_ambiguous, inner)):
            return True
        if isinstance(piece, _Repeat):
            (iteration,) = inner
            if all(map(_may_be_empty, iteration)):
                return True
            if not isinstance(iteration[0], int) and not isinstance(iteration[-1], int):
                return True
    return False


def _may_be_empty(piece: _Piece) -> bool:
    if isinstance(piece, _Choice):
        return any(all(map(_may_be_empty, option)) for option in piece.options)
    return not isinstance(piece, int)


def _inner(piece: _Piece) -> tuple[tuple[_Piece, ...], ...]:
    if isinstance(piece, _Repeat):
        return (piece.pieces,)
    return piece.options if isinstance(piece, _Choice) else ()


def _canonical_name(name: str) -> str:
    """Return a name, the same one for each way to read a condition."""
    return min(_READS) if name in _READS else name


def is_in_loop(site: CallSite) -> bool:
    """Tell whether a site may run several times in one call of its graph."""
    return any(nested.part in _LOOP for nested in site.within)
