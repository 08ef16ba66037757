"""The flaws as programs, each with a flawed and a remedied step, and the tuned programs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

from . import (
    acting,
    adapting,
    agents,
    answering,
    assigning,
    atoms,
    attention,
    captured,
    choosing,
    comparing,
    compilation,
    composing,
    control,
    convolutions,
    crystals,
    decoding,
    derivatives,
    detecting,
    detection,
    detectors_and_images,
    diffusion,
    dtypes,
    energies,
    fields,
    flows,
    generation,
    geometry,
    graphs,
    habits,
    host,
    imaging,
    inference,
    keeping,
    language,
    linking,
    listening,
    loading,
    locating,
    lookups,
    matching,
    motion,
    optimizers,
    pages_dense,
    pages_diffusion,
    pages_language,
    pages_vision,
    pictures,
    playing,
    points_and_graphs,
    products,
    recurring,
    relations,
    rendering,
    replying,
    rolling,
    scenes,
    sciences,
    scoring,
    seeking,
    sequences,
    series,
    serving,
    settings,
    shaping,
    signals,
    small_networks,
    speech,
    spoken_and_written,
    surveying,
    synthesis,
    tailoring,
    teaching,
    threads_generation,
    threads_science,
    threads_sound,
    threads_vision,
    tokens,
    tuning,
    updating,
    views,
    voicing,
    volumes,
    waits,
    writing,
)
from . import remedied as remedied_programs
from . import tuned as tuned_programs
from .program import Sizes, Step

__all__ = ["REMEDIED", "TUNED", "Line", "Sizes", "Step", "builder", "marked_lines"]

Line = tuple[str, int]
"""Name of a file, and number of a line."""

_MODULES = (
    acting,
    adapting,
    agents,
    answering,
    assigning,
    atoms,
    attention,
    captured,
    choosing,
    comparing,
    compilation,
    composing,
    control,
    convolutions,
    crystals,
    decoding,
    derivatives,
    detecting,
    detection,
    detectors_and_images,
    diffusion,
    dtypes,
    energies,
    fields,
    flows,
    generation,
    geometry,
    graphs,
    habits,
    host,
    imaging,
    inference,
    keeping,
    language,
    linking,
    listening,
    loading,
    locating,
    lookups,
    matching,
    motion,
    optimizers,
    pages_dense,
    pages_diffusion,
    pages_language,
    pages_vision,
    pictures,
    playing,
    points_and_graphs,
    products,
    recurring,
    relations,
    rendering,
    replying,
    rolling,
    scenes,
    sciences,
    scoring,
    seeking,
    sequences,
    series,
    serving,
    settings,
    shaping,
    signals,
    small_networks,
    speech,
    spoken_and_written,
    surveying,
    synthesis,
    tailoring,
    teaching,
    threads_generation,
    threads_science,
    threads_sound,
    threads_vision,
    tokens,
    tuning,
    updating,
    views,
    voicing,
    volumes,
    waits,
    writing,
)
_MARK = re.compile(r"# flaw( in the next line)?: ([\w, ]+)$")

TUNED: dict[str, Callable[[Sizes], Step]] = {
    name: getattr(tuned_programs, name) for name in tuned_programs.__all__
}
REMEDIED: dict[str, Callable[[Sizes], Step]] = {
    name: getattr(remedied_programs, name) for name in remedied_programs.__all__
}
"""Those of them of which more than 3% is said, with the remedy."""


def builder(name: str) -> Callable[[bool, Sizes], Step]:
    """What makes the flawed or the remedied step of a flaw."""
    makers = [getattr(module, name) for module in _MODULES if name in module.__all__]
    (maker,) = makers
    return maker


@functools.cache
def marked_lines(name: str) -> frozenset[Line]:
    """The lines of the programs that are marked with this flaw."""
    found = set()
    for path in Path(__file__).parent.glob("*.py"):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            mark = _MARK.search(text)
            if mark and name in mark[2].split(", "):
                found.add((path.name, number + (mark[1] is not None)))
    return frozenset(found)
