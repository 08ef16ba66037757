"""Owns which collectives a step with several micro-batches runs once for each of them."""

from __future__ import annotations

import numpy as np

from profiler_ext.findings.collectives import equal_call_ids
from profiler_ext.findings.facts import Facts, Rows
from profiler_ext.findings.passes import Passes


def is_repeated_per_pass(facts: Facts, passes: Passes) -> Rows:
    """Tell of each collective whether each pass of its step reduces as much once more.

    What a forward runs is none: the next layer needs it in each pass.

    Args:
        facts: what is known of the session.
        passes: the passes of its steps.

    Returns:
        One for each row of its ``Communication``.
    """
    launches = facts.analysis.communication.launch
    result = np.zeros(len(launches), np.bool_)
    chosen = (passes.count[launches] > 1) & ~passes.in_forward[launches]
    chosen &= ~np.ma.getmaskarray(facts.launches.step)[launches]
    rows = np.flatnonzero(chosen)
    own, kind = launches[rows], equal_call_ids(facts, launches[rows])
    keys = np.stack([facts.launches.step[own].filled(-1), kind], axis=1)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    for each in range(int(group.max(initial=-1)) + 1):
        members = np.flatnonzero(group == each)
        counts = np.bincount(passes.number[own[members]], minlength=passes.count[own[members[0]]])
        result[rows[members]] = bool((counts == counts[0]).all())
    return result
