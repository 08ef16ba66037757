"""The agreement of a program's ranks through the store that they already have.

Source: ``torch/distributed/distributed_c10d.py``: ``init_process_group`` keeps the store of the
default group, over TCP or in a file, and serves it while the program runs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed

from profiler_ext.torch_compat.names import running_names

MAX_WAIT = timedelta(seconds=60)
"""The longest that a rank waits for the others at the end of a step."""
_AT_END_KEY = "profiler_ext/arrived"
_DECISION_KEY = "profiler_ext/decision"
_END, _GO_ON = "end", "go on"


def all_ranks_end() -> bool:
    """Tell whether all ranks are to end at this step, as each has come to its end."""
    # The last rank to come decides; one that waited too long decides the opposite for all.
    store = _default_store()
    if store is None:
        return True
    if store.add(_AT_END_KEY, 1) == torch.distributed.get_world_size():
        store.compare_set(_DECISION_KEY, "", _END)
    try:
        store.wait([_DECISION_KEY], MAX_WAIT)
    except RuntimeError:  # torch.distributed.DistStoreError: a timeout
        store.compare_set(_DECISION_KEY, "", _GO_ON)
    return bool(store.get(_DECISION_KEY) == _END.encode())


def _default_store() -> Any:
    """Return the store of the default group; ``None`` for a single rank."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    if torch.distributed.get_world_size() == 1 or not running_names.DEFAULT_STORE.is_available():
        return None
    return running_names.DEFAULT_STORE.get()()
