"""Owns what older torchs and other accelerators call the events that have categories today.

The columns have today's categories; each event stays as it was written in ``Trace.raw``.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from profiler_ext.kineto.names import DEVICE_CATEGORIES, Category
from profiler_ext.records import Events, Interned

_OPERATOR = "Operator"
_MTIA = "mtia_ccp_events"
_CAPITALISED = {
    "Kernel": Category.KERNEL,
    "Memcpy": Category.GPU_MEMCPY,
    "Memset": Category.GPU_MEMSET,
    "Runtime": Category.CUDA_RUNTIME,
}
"""What torch 1.8 and 1.9 write. Source: ``libkineto/src/output_json.cpp`` of these."""
_MTIA_NAMES = {
    "dma_request": Category.GPU_MEMCPY,
    "event_record": Category.CUDA_SYNC,
    "event_wait": Category.CUDA_SYNC,
}
"""What MTIA's streams do besides running programs; waiting for an event is no work."""
_EVALUATED = "autograd::engine::evaluate_function: "
_OP = re.compile(r"[A-Za-z_]\w*::[\w.:]+")
_NODE = re.compile(r"(?:struct )?torch::autograd::\w+|\w+Backwards?\d*")

DEVICE_SPELLINGS = (*DEVICE_CATEGORIES, "Kernel", "Memcpy", "Memset", _MTIA)
"""Categories of events that a device may have run, as any file spells them."""


def with_current_categories(events: Events) -> Events:
    """Return the events with the categories and names that today's Kineto gives them.

    Args:
        events: the events as a file spells them.

    Returns:
        The same events where the file is spelled so already.
    """
    spelled = set(events.category.strings)
    if not spelled & {_OPERATOR, _MTIA, *_CAPITALISED}:
        return events
    if _OPERATOR in spelled:
        events = replace(events, name=_with_engine(events.name))
    return replace(events, category=_recategorised(events))


def _with_engine(column: Interned) -> Interned:
    """Name autograd's nodes as the engine's events, which torch 1.8 and 1.9 do not write."""
    named = (_EVALUATED + t if _NODE.fullmatch(t) else t for t in column.strings)
    return Interned(column.codes, tuple(named))


def _category(spelled: str, name: str) -> str:
    """Return today's category of an event; ranges of ``record_function`` were operators too."""
    if spelled == _OPERATOR:
        return Category.CPU_OP if _OP.match(name) else Category.USER_ANNOTATION
    if spelled == _MTIA:
        return _MTIA_NAMES.get(name, Category.KERNEL)
    return _CAPITALISED.get(spelled, spelled)


def _recategorised(events: Events) -> Interned:
    old, name = events.category, events.name
    pairs, pair = np.unique(np.stack([old.codes, name.codes]), axis=1, return_inverse=True)
    of_pair = [_category(old.strings[c], name.strings[n]) for c, n in pairs.T.tolist()]
    pool = {text: code for code, text in enumerate(dict.fromkeys(of_pair))}
    codes = np.array([pool[text] for text in of_pair], dtype=np.int32)
    return Interned(codes[pair.reshape(-1)], tuple(pool))
