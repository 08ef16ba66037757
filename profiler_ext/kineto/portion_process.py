"""Owns the process that reads a portion of a file, and hands it over through a pipe.

``python -m profiler_ext.kineto.portion_process FILE PIPE BEGIN END``, the first two of which are
open in it: see :mod:`profiler_ext.kineto.together`.
"""

from __future__ import annotations

import os
import select
import sys
import threading

from profiler_ext.kineto.blocks import Reading
from profiler_ext.kineto.file_text import FileText
from profiler_ext.kineto.portions import Portion, add_portion, send_portion


def main() -> None:
    """Read the portion that the command line names; whatever goes wrong, less is handed over."""
    file, pipe, begin, end = map(int, sys.argv[1:])
    threading.Thread(target=_end_with_reader, args=(pipe,), daemon=True).start()
    reading = Reading(end - begin)
    add_portion(reading, FileText(file, "the file"), Portion(begin, end))
    with os.fdopen(pipe, "wb") as out:
        send_portion(reading, out)


def _end_with_reader(pipe: int) -> None:
    """End at once when nobody reads the pipe any more: who asked for the portion has gone."""
    watch = select.poll()
    watch.register(pipe, 0)  # an error is told, whatever is asked for
    watch.poll()
    os._exit(1)


if __name__ == "__main__":
    main()
