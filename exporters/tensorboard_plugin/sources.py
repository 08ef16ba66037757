"""Owns the source texts that the view shows beside the times.

A file is shown whole only where every line that was recorded still stands in it. So a text that
changed since is never shown under old times, and no other file can be read this way.
"""

from __future__ import annotations

import tokenize
from collections.abc import Mapping
from pathlib import Path

from exporters.tensorboard_plugin.document import Source
from exporters.wording import printable

Texts = Mapping[int, str | None]
_TAB = 8


def source_of(path: str, name: str, recorded: Texts) -> Source:
    """Return what is known of a file's text.

    Args:
        path: where the recording says it is.
        name: what to call it.
        recorded: the lines that time was led to, with their text where it was recorded.

    Returns:
        The whole text where it is the recorded one, else the recorded lines alone.
    """
    whole = _lines(path)
    if whole and _all_stand(whole, recorded):
        return Source(name, True, tuple(enumerate(map(_shown, whole), 1)))
    known = ((line, _shown(text or "")) for line, text in sorted(recorded.items()))
    return Source(name, False, tuple(known))


def _lines(path: str) -> list[str]:
    try:
        with tokenize.open(Path(path)) as file:
            return file.read().splitlines()
    except (OSError, SyntaxError, ValueError):
        return []


def _all_stand(lines: list[str], recorded: Texts) -> bool:
    return all(
        text is not None and line <= len(lines) and lines[line - 1].strip() == text.strip()
        for line, text in recorded.items()
    )


def _shown(text: str) -> str:
    return printable(text.expandtabs(_TAB))
