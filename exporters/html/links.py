"""Owns links within the page: to where it shows a line, a module or a kernel."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from profiler_ext.exporters.placed_text import LineText
from profiler_ext.printable import printable


def link(kind: str, name: str, shown: str | None = None) -> str:
    """Return a link that the page's search follows.

    Args:
        kind: ``line``, ``module`` or ``kernel``.
        name: its whole name, a line's as ``model.py:12``.
        shown: what stands there, if that is not the name.
    """
    there = quote(printable(name), safe="")
    is_other = shown is not None and shown != name
    whole = f' title="{escape(printable(name))}"' if is_other else ""
    return f'<a href="#{kind}={there}"{whole}>{escape(printable(shown or name))}</a>'


def placed(text: LineText) -> str:
    """Return a sentence whose line of source is a link.

    Args:
        text: the sentence.
    """
    line = link("line", text.line) if text.line else ""
    before, after = (escape(printable(each)) for each in (text.before, text.after))
    return f"{before}{line}{after}"
