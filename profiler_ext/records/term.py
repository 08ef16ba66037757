"""Owns what a word of a closed vocabulary is: its text, what it means, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

NOTHING = "nothing needs to be done"


class Term(StrEnum):
    """A word of a closed vocabulary, one row each; it is its own text.

    A vocabulary names the page of the documentation that explains it, how its words are called
    there, and the columns of tables that hold them.

    Attributes:
        words: the same for a person, short enough for a row of a report.
        meaning: what it says, as the end of a sentence about what it describes.
        remedy: what to do about it.
    """

    words: str
    meaning: str
    remedy: str
    _page: str
    _title: str
    _columns: tuple[str, ...]

    def __new__(cls, text: str, words: str = "", meaning: str = "", remedy: str = NOTHING) -> Self:
        """Take a row; a type checker sees here that a text alone finds a term."""
        if not (text and words and meaning and remedy):
            raise TypeError(f"{cls.__name__} {text!r} needs words, a meaning and a remedy")
        term = str.__new__(cls, text)
        term._value_ = text
        term.words, term.meaning, term.remedy = words, meaning, remedy
        return term

    def __init_subclass__(cls, *, page: str, title: str, columns: tuple[str, ...]) -> None:
        """Take what all words of a vocabulary share."""
        super().__init_subclass__()
        cls._page, cls._title, cls._columns = page, title, columns

    @property
    def heading(self) -> str:
        """Its heading in the documentation."""
        return f"{self._title}: {self.value}"

    @property
    def page(self) -> str:
        """Where the documentation explains it: a file below ``docs``, and the anchor there."""
        return f"{self._page}#{self.heading.replace(':', '').replace(' ', '-')}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold it, each after its table: ``launches.gap``."""
        return self._columns
