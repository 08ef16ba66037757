"""The rule for inputs that are copied to pad them, where a convolution pads by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time, launching
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_PADS = re.compile(r"aten::(constant_)?pad(_nd)?$")
_WRITES = frozenset({"aten::fill_", "aten::copy_", "aten::constant_pad_nd"})
_CONVOLVES = re.compile(r"aten::(conv[123]d|_?convolution)$")
_AMOUNTS = re.compile(r"\bpad\(\s*[^,()]+(?:\([^()]*\))?\s*,\s*[(\[]([^()\[\]]*)[)\]]")
_OTHER_VALUE = re.compile(r"value=-?(?!0\b)\d|mode=|inf\b")


def _candidates(facts: Facts) -> Iterator[Candidate]:
    launches = facts.launches
    is_pad = facts.mainly(lambda place: _PADS.match(place.aten_op or "") is not None)
    is_pad &= facts.of_op(_WRITES.__contains__) & launches.scope.where(Scope.EAGER)
    is_pad &= launches.phase.where(Phase.FORWARD, Phase.RECOMPUTE)
    rows = np.flatnonzero(facts.in_steps(is_pad & (facts.main_place >= 0)))
    for own in launches_by_line(facts, rows):
        code = facts.place(int(own[0])).code or ""
        if _may_be_even(code) and _are_convolved(facts, own):
            own = with_backward(facts, own)
            saved_ns = facts.median_per_step(own, facts.removal_saving_ns(own))
            yield Candidate(
                summary="a copy pads the input of a convolution, which pads by itself",
                est_saving_ns=saved_ns,
                confidence=Confidence.UPPER_BOUND,
                remedy="the convolution's padding=, where both sides get the same",
                location=location_of(facts.place(facts.longest(own))),
                evidence=(*count_and_time(facts, own), *launching(facts, own, saved_ns)),
                launches=own,
            )


def _may_be_even(code: str) -> bool:
    """Tell whether zeros are added, and by the text of the line not more of them on one side."""
    found = _AMOUNTS.search(code)
    if _OTHER_VALUE.search(code):
        return False
    amounts = [each.strip() for each in found[1].split(",") if each.strip()] if found else []
    pairs = zip(amounts[::2], amounts[1::2], strict=False)
    # Two texts may have one value, unless a number is among them
    return all(one == two or not (one.isdigit() or two.isdigit()) for one, two in pairs)


def _are_convolved(facts: Facts, pads: Ints) -> bool:
    """Tell whether a convolution of the same function or module is what runs after each pad."""
    launches, place = facts.launches, facts.place(int(pads[0]))
    rows = np.setdiff1d(np.flatnonzero(facts.in_steps(launches.scope.where(Scope.EAGER))), pads)
    rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
    at = np.searchsorted(launches.start_ns[rows], launches.start_ns[pads])
    following = np.unique(np.append(rows, -1)[at]).tolist()
    readers = [facts.place(row) for row in following if row >= 0 and facts.main_place[row] >= 0]
    return len(readers) == len(following) and all(
        _CONVOLVES.match(each.aten_op or "") is not None
        and (_function(each) == _function(place) or each.module == place.module)
        for each in readers
    )


def _function(place: Place) -> tuple[str | None, str | None]:
    return place.file, place.function


RULE = Rule(
    name="padding_copy",
    title="Inputs of convolutions that are padded by a copy",
    means="A line adds zeros around a tensor (`F.pad`, `nn.ZeroPad2d`), and a convolution of the "
    "same function or module is what runs next.",
    because="`F.pad` fills a larger tensor with zeros and copies the input into it: the input is "
    "written once more, and read again by the convolution. A convolution with `padding=` adds the "
    "zeros where it reads.",
    remedy="The argument `padding` of the convolution. It adds the same on both sides: of lines "
    "whose numbers differ between two sides (causal convolutions, strides of 2 with an even size) "
    "nothing is reported, but a recording without the inputs of ops does not tell all.",
    saving="Time of the copies, of filling and of their backward, or of launching them if the CPU "
    "is behind. An upper bound: where the amounts differ between two sides the copy stays.",
    not_on_cpu=ON_CPU,
    judge=_candidates,
)
