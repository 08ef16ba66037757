"""The rule for classes that are written out as rows of zeros with a one."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.code_of_lines import lines_from
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Scope

_ONE_HOT = "aten::one_hot"
_LOSS = "aten::cross_entropy_loss"
# What a loss does with probabilities in place of classes, and the gradient of that
_WEIGHS = frozenset({"aten::mul", "aten::sum", "aten::neg", "aten::div"})
# By hand: a row of an identity matrix for each class, or a number that is scattered into zeros
_OF_IDENTITY = re.compile(r"\beye\([^()]*\)\s*\[|\beye\([^()]*\)\.index_select\(")
_SCATTERS = re.compile(r"(?P<into>[\w.]*)(?:\([^()]*\))?\.scatter_?\(")
_NAMED = re.compile(r"one_?hot|target|label|true_?dist|smooth|\bclass", re.IGNORECASE)
_FILLS = re.compile(r"\bzeros|\bfull|\.fill_\(|\.zero_\(")
_MULTIPLIES = re.compile(r"\b(?:add|b|badd)?b?mm\b")
_REMEDY = (
    "the classes themselves: F.cross_entropy(logits, classes), F.embedding(classes, weight) in "
    "place of a product, gather or index_add_ for others"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_there = facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    eager = np.flatnonzero(facts.in_steps(is_there))
    lines = list(launches_by_line(facts, eager))
    made = [own for own in lines if _is_made(facts, own)]
    if not made:
        return ()
    made += [own for own in lines if any(_is_filled(facts, own, each) for each in made)]
    functions = {(place.file, place.function) for place in (facts.place(own[0]) for own in made)}
    weighed = [
        own[facts.of_op(_WEIGHS.__contains__)[own]]
        for own in launches_by_line(facts, eager)
        if _is_weighing(facts, own, functions)
    ]
    multiplied, converted = _read(facts, eager, functions)
    launches = np.unique(np.concatenate([*made, *weighed, *multiplied, *converted]))
    is_product = facts.of_op(lambda op: _MULTIPLIES.search(op) is not None)
    summary = "classes are written out as one-hot rows"
    confidence = Confidence.MEASURED if weighed else Confidence.UPPER_BOUND
    confidence = Confidence.ESTIMATED if multiplied else confidence
    return (
        removal(facts, launches[~is_product[launches]], summary, _REMEDY, confidence=confidence),
    )


def _read(
    facts: Facts, eager: Ints, functions: set[tuple[str | None, str | None]]
) -> tuple[list[Ints], list[Ints]]:
    """Return what makes an operand of a product from one-hot rows, and else converts them."""
    codes: dict[tuple[str | None, str | None], dict[int, str]] = {}
    for place in facts.analysis.places:
        if (place.file, place.function) in functions and place.line is not None and place.code:
            codes.setdefault((place.file, place.function), {})[place.line] = place.code
    lines = {function: lines_from(own, "one_hot") for function, own in codes.items()}
    is_converted = facts.named(is_conversion)
    multiplied, converted = list[Ints](), list[Ints]()
    for own in launches_by_line(facts, eager):
        place = facts.place(int(own[0]))
        with_rows, is_multiplied = lines.get((place.file, place.function), (set(), False))
        if place.line in with_rows:
            (multiplied if is_multiplied else converted).append(
                own if is_multiplied else own[is_converted[own]]
            )
    return multiplied, converted


def _ops(facts: Facts, launches: Ints) -> set[str | None]:
    return {facts.place(launch).aten_op for launch in launches.tolist()}


def _is_made(facts: Facts, of_line: Ints) -> bool:
    ops, code = _ops(facts, of_line), facts.place(int(of_line[0])).code or ""
    is_scattered = bool(ops & {"aten::scatter_", "aten::scatter"}) and _SCATTERS.search(code)
    return (
        _ONE_HOT in ops
        or bool(is_scattered and _NAMED.search(code))
        or bool(ops & {"aten::index", "aten::index_select"} and _OF_IDENTITY.search(code))
    )


def _is_filled(facts: Facts, of_line: Ints, made: Ints) -> bool:
    """Tell whether a line fills what another one scatters into, by their text."""
    place, other = facts.place(int(of_line[0])), facts.place(int(made[0]))
    found = _SCATTERS.search(other.code or "")
    if found is None or (place.file, place.function) != (other.file, other.function):
        return False
    code, name = place.code or "", re.escape(found["into"])
    is_of_name = bool(name) and re.search(rf"(?<![\w.]){name}(?:\s*=|\.)", code) is not None
    return is_of_name and _FILLS.search(code) is not None


def _is_weighing(
    facts: Facts, of_line: Ints, functions: set[tuple[str | None, str | None]]
) -> bool:
    """Tell whether a line of these functions is a cross entropy with probabilities."""
    place = facts.place(int(of_line[0]))
    is_near = (place.file, place.function) in functions and _LOSS in _ops(facts, of_line)
    return is_near and any(facts.innermost_op(row) == "aten::mul" for row in of_line.tolist())


RULE = Rule(
    name="one_hot",
    title="Classes as one-hot rows",
    means="A line calls `F.one_hot`, eagerly, and fills a row of zeros for each class number. Or "
    "it indexes an identity matrix (`torch.eye(n)[labels]`), or scatters a number into a filled "
    "tensor, and its text names labels, targets or one-hot rows.",
    because="With a vocabulary of 50,000 words each number becomes 50,000 numbers of 64 bits, "
    "which are then converted, multiplied and summed, to pick one. So does label smoothing by "
    "hand.",
    remedy="Give the class numbers to what reads them: `F.cross_entropy` takes them as targets, "
    "`F.embedding` replaces a product with one-hot rows, `gather` picks one number of each row. "
    "`F.cross_entropy(..., label_smoothing=0.1)` smooths without them.",
    saving="Time of the launches at these lines, and of the products and sums with "
    "which a cross entropy of the same function weighs by probabilities. Where products read the "
    "rows, also of the lines of the function that make their operand of them, by their text; "
    "moving rows by index takes about as long as the products. Where none do, of the conversions "
    "of rows at further lines: an upper bound, as what else reads the rows is not known.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
