"""How a name that somebody else chose may be shown: no character of it steers a terminal.

Names come from traces, files and stored records. Control characters move the cursor, colour
the screen or forge a line of output; format characters turn the reading direction.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text on one line, without characters that steer a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines, each without characters that steer a terminal."""
    return "\n".join(map(printable, text.expandtabs().split("\n")))
