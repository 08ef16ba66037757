"""Owns the words of the reasons why a launch of eager work has no line: see ``GapReason``."""

from __future__ import annotations

LINES_OFF = (
    "lines_off",
    "lines were switched off",
    "ran eagerly while the lines of the program were not watched, as was asked",
    "leave `lines=False`, `--no-lines` or `PROFILER_EXT_LINES=0` out",
)
LINES_NOT_RECORDED = (
    "lines_not_recorded",
    "lines were not recorded",
    "are of a trace that tells no lines of the program: that of plain torch.profiler, or of an "
    "older profiler_ext",
    "record the steps with `profiler-ext run` or profiler_ext.profile",
)
LINES_NEED_PYTHON_312 = (
    "lines_need_python_3_12",
    "lines need Python 3.12",
    "ran eagerly under a Python that cannot tell which lines run, and are led to their op",
    "run the script with Python 3.12 or newer",
)
LINES_NEED_COLUMNS = (
    "lines_need_columns",
    "eager, and Python notes no columns",
    "ran eagerly under a Python that notes no columns of its code, without which Dynamo's code "
    "cannot be told from the program's",
    "run the script without `-X no_debug_ranges` and PYTHONNODEBUGRANGES",
)
LINES_TAKEN = (
    "lines_tool_taken",
    "other tools watch the lines",
    "ran eagerly while other tools used both ids that sys.monitoring has for any tool",
    "run the script without one of the tools that are named below",
)
LINES_FAILED = (
    "lines_failed",
    "the watch of lines failed",
    "ran eagerly while the watch of the program's lines had failed, or its clock could not be "
    "tied to the trace's",
    "please report the failure that is named below",
)
LINES_FULL = (
    "lines_full",
    "after more lines than are kept",
    "ran eagerly after more lines than are kept in memory",
    "record fewer steps",
)
LINES_ENDED = (
    "lines_ended",
    "while the recording was ended",
    "are after the last line that was watched, while the profiler was being ended",
    "record more steps, of which the last alone holds it",
)
OUT_OF_ORDER = (
    "out_of_order",
    "eager, ran in another order than launched",
    "ran in another order than the trace says they were launched in, though a stream runs in "
    "order: at least one of each is tied to another's call",
    "profile once more, and report the recording if it stays",
)
LINE_BORDER = (
    "line_border",
    "between two lines",
    "began and ended so close to the change from one line to the next that the clocks do not "
    "tell them apart",
    "nothing can be done; the op and its module are right",
)
LINE_OF_HOT_CODE = (
    "line_of_hot_code",
    "in code that runs lines too fast",
    "were launched by a function that runs so many lines that to watch them would slow it "
    "down, so only the lines of other functions are known",
    "move the operators out of the loop, or record fewer steps",
)
NO_LINE_RAN = (
    "no_line_ran",
    "in a thread that runs no line",
    "were launched by a thread in which no line of the program ran, and by no backward whose "
    "forward is known",
    "the op, and the thread in the trace, tell what ran",
)
FORWARD_NOT_RECORDED = (
    "forward_not_recorded",
    "forward before the recording",
    "are of the backward of ops that ran before the recording began",
    "begin to record between two steps",
)
