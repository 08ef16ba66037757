"""Owns the reading of torch's stack traces: text to frames."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection

from profiler_ext.capture.traces.equal_code import Function, file_of
from profiler_ext.capture.traces.resumed_lines import line_of
from profiler_ext.files.paths import absolute, shorten
from profiler_ext.records import Frame

_FILE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+?)\s*$')
_MARKER = re.compile(r"^[\s~^]*$")


@functools.lru_cache(maxsize=65536)
def parse_stack(trace: str | None) -> tuple[Frame, ...]:
    """Read a ``node.meta["stack_trace"]``.

    Args:
        trace: the text, outermost frame first; there may be lines of carets in it.

    Returns:
        The frames, outermost first, their paths relative to roots.
    """
    lines = (trace or "").splitlines()
    matches = [(index, match) for index, line in enumerate(lines) if (match := _FILE.match(line))]
    functions = {(match["file"], match["function"]) for _, match in matches}
    ends = [*(index for index, _ in matches[1:]), len(lines)]
    frames = (
        _frame(match, lines[index:end], functions)
        for (index, match), end in zip(matches, ends, strict=False)
    )
    return tuple(frame for frame in frames if frame is not None)


def _frame(match: re.Match[str], frame_lines: list[str], functions: Collection[Function]) -> Frame | None:
    file = file_of(match["file"], match["function"], int(match["line"]), functions)
    line, text = line_of(match["file"], match["function"], int(match["line"]), frame_lines)
    if file is None or line is None:
        return None
    code = text or "".join(frame_lines[1:2]).strip()
    usable = code and not _MARKER.match(code)
    return Frame(
        file=shorten(absolute(file)),
        line=line,
        function=match["function"],
        code=code if usable else None,
    )
