"""Makes names from traces and files safe to show: no character of them controls a terminal.

Control characters move the cursor or forge a line of output; format characters turn the reading
direction.
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
