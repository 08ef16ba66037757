"""``profiler-ext try``: remedies measured on a script that runs unchanged, with and without each.

The list of remedies; a new remedy is a function and a row in one of the files below. Nothing here
imports torch: a child gives its remedies the torch that the script has imported.
"""

from typing import Final

from profiler_ext.trials import compile_remedies, loop_remedies, memory_remedies, model_remedies
from profiler_ext.trials.remedy import Remedy

REMEDIES: Final[tuple[Remedy, ...]] = (
    *model_remedies.ROWS,
    *compile_remedies.ROWS,
    *loop_remedies.ROWS,
    *memory_remedies.ROWS,
)
BY_NAME: Final = {each.name: each for each in REMEDIES}
