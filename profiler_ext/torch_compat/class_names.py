"""Owns what the user calls a class that torch made of theirs.

``fully_shard`` and ``replicate`` give a module a class of its own, which extends the user's and is
called ``FSDP``, ``Replicate`` or ``DDP`` and the name of that. Source: ``_apply_to_module`` in
``torch/distributed/fsdp/_fully_shard/_fsdp_init.py``, ``replicate`` in
``torch/distributed/_composable/replicate.py``.
"""

from __future__ import annotations

import re

_MADE_OF = re.compile("^(?:FSDP|Replicate|DDP)")


def without_prefix(class_name: str) -> str:
    """Return a class's name without what torch puts before the name of one that it extends."""
    return _MADE_OF.sub("", class_name)


def user_name(kind: type) -> str:
    """Return how the user calls a class: by its own name, unless torch made it of theirs."""
    own = without_prefix(kind.__name__)
    return own if own in {base.__name__ for base in kind.__bases__} else kind.__name__
