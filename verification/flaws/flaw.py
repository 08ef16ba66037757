"""What is kept of a flaw, and of the page that names it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GITHUB", "TORCH_DOCS", "Flaw", "Source", "thread"]

GITHUB = "https://github.com"
TORCH_DOCS = "https://docs.pytorch.org/docs/stable"


class Source(NamedTuple):
    """A public page, thread or repository."""

    title: str
    url: str


class Flaw(NamedTuple):
    """A flaw that costs time in a step."""

    name: str
    source: Source
    words: str
    """What is wrong."""
    cause: str
    """What a recommendation has to say to be right, in plain words."""
    anywhere: bool = False
    """The flaw is a setting of the whole program: any line that it slows is right."""
    differs: str = ""
    """Why both variants do not compute the same loss, if they do not."""


def thread(title: str, path: str) -> Source:
    """A thread or a file on GitHub."""
    return Source(title, f"{GITHUB}/{path}")
