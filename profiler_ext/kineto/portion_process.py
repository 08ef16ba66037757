"""Owns the process that reads a portion of a file, and hands it over on its standard output.

``python -m profiler_ext.kineto.portion_process DESCRIPTOR BEGIN END``: see
:mod:`profiler_ext.kineto.together`.
"""

from __future__ import annotations

import sys

from profiler_ext.kineto.blocks import Reading
from profiler_ext.kineto.file_text import FileText
from profiler_ext.kineto.portions import Portion, add_portion, hand_over


def main() -> None:
    """Read the portion that the command line names; whatever goes wrong, less is handed over."""
    descriptor, begin, end = map(int, sys.argv[1:])
    reading = Reading(end - begin)
    add_portion(reading, FileText(descriptor, "the file"), Portion(begin, end))
    hand_over(reading, sys.stdout.buffer)


if __name__ == "__main__":
    main()
