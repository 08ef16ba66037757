"""The lines of functions on the stacks of launches, and what each line calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import Facts, Rows
from profiler_ext.findings.groups import OUTSIDE_BACKWARD
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase, Scope

Function = tuple[str, str]  # file and name
Lines = tuple[Function, Mapping[int, int]]  # lines of a function, with how often each calls
_OPTIMIZES = (Phase.OPTIMIZER,)
_LIBRARIES = frozenset({"self", "torch", "F", "nn", "math", "np"})
_DRAWS = re.compile(
    r"dropout|bernoulli|multinomial|rand(?:n|int|perm)?(?:_like)?$|"
    r"(?:uniform|normal|exponential|random|cauchy|geometric|log_normal)_?$"
)


def functions_of(facts: Facts) -> Mapping[Function, dict[int, str]]:
    """Return the lines of each function that launch or call something, with their text."""
    return facts.analysis.derived.once("lines of functions", lambda: _functions(facts))


def _functions(facts: Facts) -> Mapping[Function, dict[int, str]]:
    functions: dict[Function, dict[int, str]] = {}
    for place in facts.analysis.places:
        for frame in place.stack:
            if frame.code:
                functions.setdefault((frame.file, frame.function), {})[frame.line] = frame.code
    return functions


def launches_under(facts: Facts, function: Function, line: int) -> Ints:
    """Return the eager launches of what a line calls, forward and backward."""
    places = facts.analysis.derived.once("places under lines", lambda: _under(facts))
    flags = np.zeros(len(facts.analysis.places) + 1, np.bool_)
    flags[places.get((*function, line), [])] = True
    rows = flags[facts.main_place]
    rows &= facts.launches.scope.where(Scope.EAGER) & ~facts.launches.phase.where(*_OPTIMIZES)
    return np.flatnonzero(facts.in_steps(rows))


def calls_per_step(facts: Facts, launches: Ints) -> int:
    """Return how often a step comes to the usual place of the forward of these launches."""
    forward = launches[facts.launches.phase.where(*OUTSIDE_BACKWARD)[launches]]
    # An op may launch several kernels at a time
    ops = facts.called_ops(forward)
    ops = np.where(ops < 0, -1 - forward, ops)
    places = np.unique(np.stack([facts.main_place[forward], ops]), axis=1)[0]
    counts = np.unique(places, return_counts=True)[1]
    return median_low(counts.tolist()) // len(facts.analysis.steps) if len(counts) else 0


def _under(facts: Facts) -> dict[tuple[str, str, int], list[int]]:
    under: dict[tuple[str, str, int], list[int]] = {}
    for at, place in enumerate(facts.analysis.places):
        for frame in place.stack:
            under.setdefault((frame.file, frame.function, frame.line), []).append(at)
    return under


def is_of_module(facts: Facts, where: Lines, callee: str, launches: Ints) -> bool:
    """Tell whether what is called is a module, and no helper that a module calls."""
    root, _, name = callee.rpartition(".")
    places = [facts.analysis.places[at] for at in np.unique(facts.main_place[launches]).tolist()]
    modules = {place.module for place in places if place.module}
    inner = [_frame_below(place, where) for place in places]
    if any(each is not None and each.function == name for each in inner):
        return False
    if root:
        return any(name in module.split(".") for module in modules)
    return bool(modules) and all(each is not None for each in inner)


def _frame_below(place: Place, where: Lines) -> Frame | None:
    """Return the frame that one of a function's lines called, if it is on the stack."""
    function, lines = where
    frames = iter(place.stack)
    # Classes of one file have functions of one name, so the line tells which it is
    any((each.file, each.function) == function and each.line in lines for each in frames)
    return next(frames, None)


def draws(facts: Facts) -> Rows:
    """Flag the launches of ops that draw numbers at random."""
    return facts.of_op(lambda op: _DRAWS.search(op) is not None)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The names that a line reads."""

    given: set[str] = field(default_factory=set)  # arguments of calls by themselves: ``f(x)``
    # Those of calls, and all that is no name by itself, by its text: ``a + b``, ``self.x``
    read: set[str] = field(default_factory=set)
    roots: set[str] = field(default_factory=set)  # what methods are called of: ``x`` in ``x.sum()``
    is_value: bool = False  # it assigns to names, or returns, what its calls return


def arguments_of(code: str) -> Arguments:
    """Return what a line's calls are given; nothing where it is no whole statement."""
    try:
        parsed = ast.parse(code.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Arguments()
    statement = parsed[0] if parsed else ast.Pass()
    value = getattr(statement, "value", None)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    is_named = all(isinstance(each, ast.Name) for of in targets for each in _elements(of))
    found = Arguments(is_value=bool(targets and is_named) or isinstance(statement, ast.Return))
    if isinstance(value, ast.expr):
        _collect(value, found)
    return found


def _collect(value: ast.expr, found: Arguments) -> None:
    if isinstance(value, ast.Call):
        root = value.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name):
            is_method = isinstance(value.func, ast.Attribute)
            found.roots.update({root.id} - _LIBRARIES if is_method else ())
        else:
            _collect(root, found)
        for each in (*value.args, *(word.value for word in value.keywords)):
            found.given.update({each.id} if isinstance(each, ast.Name) else ())
            _collect(each, found)
    elif isinstance(value, ast.Tuple):
        for each in value.elts:
            _collect(each, found)
    elif isinstance(value, ast.IfExp):  # which of two a call is given
        for each in (*_compared(value.test), value.body, value.orelse):
            found.given.update({each.id} if isinstance(each, ast.Name) else ())
            _collect(each, found)
    elif any(isinstance(each, ast.Name) for each in ast.walk(value)):  # ``-1`` reads nothing
        found.read.add(ast.unparse(value))


def _compared(test: ast.expr) -> list[ast.expr]:
    """Return what tells which of two values is taken: of ``y is None`` the name ``y``."""
    return [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]


def _elements(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else [target]
