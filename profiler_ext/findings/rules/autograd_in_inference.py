"""The rule for inference that records an autograd graph which no backward reads."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of, shared_line
from profiler_ext.findings.finding import (
    NOWHERE,
    Confidence,
    Figure,
    FigureUnit,
    Location,
    SavingPer,
)
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_MIN_NODES = 20  # a step; fewer are not a model
_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)
# What the CPU takes to make a node and to free it. A ViT of 687 nodes on an H100's host (torch
# 2.11) took 1.5 ms less without them.
_NODE_NS = 2_000


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.launches.phase.where(*_LEARNS).any():
        return ()
    nodes = _nodes_per_step(facts)
    forward = np.flatnonzero(facts.in_steps(facts.launches.phase.where(Phase.FORWARD)))
    if nodes < _MIN_NODES or not len(forward):
        return ()
    return (
        Candidate(
            summary="inference records a graph for autograd, which no backward reads",
            est_saving_ns=0,
            saving_per=SavingPer.UNKNOWN,
            confidence=Confidence.ESTIMATED,
            remedy=(
                "torch.inference_mode() around the forward, or torch.no_grad(); it also frees the "
                "activations that the graph keeps"
            ),
            location=_call_of_model(facts, forward),
            evidence=(
                Figure("nodes of autograd a step", nodes),
                Figure("they cost the CPU about", nodes * _NODE_NS, FigureUnit.NS),
                Figure("the device is idle for", facts.idle_ns, FigureUnit.NS),
            ),
        ),
    )


def _call_of_model(facts: Facts, forward: Ints) -> Location:
    """Return the line that all of the forward is called from, or that of its longest launch."""
    shared = shared_line(facts, forward)
    return location_of(facts.place(facts.longest(forward))) if shared == NOWHERE else shared


def _nodes_per_step(facts: Facts) -> int:
    """Return how many nodes autograd makes in the usual step: each has the next number."""
    events = facts.analysis.recording.trace.events
    numbers, counts = events.sequence_number, []
    is_numbered = ~np.ma.getmaskarray(numbers)
    for step in facts.analysis.steps:
        within = (events.start_ns >= step.cpu_start_ns) & (events.start_ns < step.cpu_end_ns)
        own = numbers.data[within & is_numbered]
        own = own[own >= 0]
        counts.append(int(own.max() - own.min()) if len(own) else 0)
    return median_low(counts) if counts else 0


RULE = Rule(
    name="autograd_in_inference",
    title="Autograd in inference",
    means="No step of the recording has a backward or an optimizer, and autograd numbers the ops "
    "of the forward: it records a graph.",
    because="For each op on a parameter that requires a gradient, autograd makes a node, and keeps "
    "the activations that its backward would need. That takes the CPU's time, and memory that a "
    "larger batch could use.",
    remedy="`torch.inference_mode()` around the forward; `torch.no_grad()` where results go into a "
    "graph later. `model.eval()` alone does not turn autograd off.",
    saving="Unknown. The CPU takes about two microseconds for each node, which a step saves as far "
    "as the device waits for the CPU; both are in the evidence. What the graph keeps in memory is "
    "not in a recording.",
    judge=_judge,
)
