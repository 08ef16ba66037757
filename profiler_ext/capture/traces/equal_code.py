"""Owns which file code is of where torch may name another one: that of code which is equal.

Dynamo keeps instructions by the value of their code, of which its file is no part. Of a function
whose equal in another file was compiled before (a copy of a module, an earlier version of a
notebook's cell) it takes the functions within, a lambda or a generator, from there, and names that
file.

Source: ``torch/_dynamo/bytecode_transformation.py``, ``_cached_cleaned_instructions``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from types import CodeType

Function = tuple[str, str]
"""Its file and its name."""

_OWNERS: dict[tuple[str, str, int], set[Function]] = defaultdict(set)
"""By file, name and line of what torch names: the functions of which one has it within."""
_LOCALS_MARKER = "<locals>"


def note_equal_code(traced: Collection[CodeType]) -> None:
    """Note what torch may name in another file's stead.

    Args:
        traced: the code that Dynamo traced for a graph.
    """
    named = [code for code in traced if _LOCALS_MARKER in code.co_qualname]
    for owner in traced if named else ():
        for own in _nested_codes(owner):
            for code in named:
                if code.co_filename != own.co_filename and code == own:
                    _note(code, {(each.co_filename, owner.co_name) for each in (code, own)})


def _nested_codes(owner: CodeType) -> Iterator[CodeType]:
    for const in owner.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _nested_codes(const)


def _note(code: CodeType, owners: set[Function]) -> None:
    for _, _, line in code.co_lines():
        if line is not None:
            _OWNERS[code.co_filename, code.co_name, line] |= owners


def file_of(file: str, function: str, line: int, outer_functions: Collection[Function]) -> str | None:
    """Return the file of a frame: that of the function around it that has such code within.

    Args:
        file: the file that torch says.
        function: the name of the frame's function.
        line: its line.
        around: the functions of all frames of the stack.

    Returns:
        The file; ``None`` where it may be one of several.
    """
    owners = _OWNERS.get((file, function, line))
    if owners is None:
        return file
    files = {file for file, name in owners if (file, name) in outer_functions}
    return files.pop() if len(files) == 1 else None
