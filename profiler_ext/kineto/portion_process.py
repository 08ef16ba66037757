"""Owns the process that reads a portion of a file, and hands it over through a pipe.

``python -m profiler_ext.kineto.portion_process FILE PIPE BEGIN END``, the first two of which are
open in it: see :mod:`profiler_ext.kineto.together`.
"""

from __future__ import annotations

import os
import sys

from profiler_ext.kineto.blocks import Reading
from profiler_ext.kineto.file_text import FileText
from profiler_ext.kineto.portions import Portion, add_portion, hand_over


def main() -> None:
    """Read the portion that the command line names; whatever goes wrong, less is handed over."""
    file, pipe, begin, end = map(int, sys.argv[1:])
    reading = Reading(end - begin)
    add_portion(reading, FileText(file, "the file"), Portion(begin, end))
    with os.fdopen(pipe, "wb") as out:
        hand_over(reading, out)


if __name__ == "__main__":
    main()
