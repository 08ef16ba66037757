"""The list of models: those made by hand, and those as they are published."""

from __future__ import annotations

from verification.truth.models import (
    applying,
    branching,
    mutating,
    published,
    recurring,
    sharing,
    transforming,
)
from verification.truth.models.making import Make

BY_HAND: dict[str, Make] = {
    make.__name__: make
    for module in (applying, branching, mutating, recurring, sharing, transforming)
    for make in module.MODELS
}
"""By name, what makes the model and what it is called on."""

PUBLISHED: dict[str, Make] = published.MODELS
"""Those that need transformers; empty where it is not installed."""
