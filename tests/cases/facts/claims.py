"""What a fact of a case is, and how attribution is held against it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"(_default|_tensor)?(_\d+)?$")
"""What a node's name has after its operator's; a pattern adds the overload."""


@dataclass(frozen=True, slots=True)
class Fact:
    """All time of an operator in a phase belongs to these lines and modules, some to each.

    Attributes:
        op: the operator.
        phase: the phase.
        code: for each line a text that stands in it; none means that the operator has no time.
        modules: paths of the modules; not checked where empty.
        forward: names of the forward nodes that it differentiates, without numbers, overloads and
            the region they are in; not checked where empty.
    """

    op: str
    phase: str
    code: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    forward: tuple[str, ...] = ()

    def broken(self, table: Any) -> Iterator[str]:
        """Yield what a table of attribution says against it."""
        rows = table[(table.aten_op == self.op) & (table.phase == self.phase)]
        codes = set(rows.code.fillna("no line"))
        stray = [code for code in codes if not any(text in code for text in self.code)]
        absent = [text for text in self.code if not any(text in code for code in codes)]
        if stray or absent:
            yield f"{self.op} in {self.phase}: {stray} is wrong, {absent} is missing"
        yield from self._differing(self.modules, set(rows.module.dropna()))
        names = (name.rpartition("/")[2] for name in rows.forward_node.fillna("none"))
        bases = {_NUMBER.sub("", name) for name in names}
        yield from self._differing(self.forward, bases)

    def _differing(self, expected: tuple[str, ...], found: set[str]) -> Iterator[str]:
        if expected and found != set(expected):
            wrong, missing = sorted(found - set(expected)), sorted(set(expected) - found)
            yield f"{self.op} in {self.phase}: {wrong} is wrong, {missing} is missing"


@dataclass(frozen=True, slots=True)
class Order:
    """Data flow: in each step, of these modules one after another first calls a library.

    Generated kernels do not matter: one that turns weights round runs ahead of their convolution.

    Attributes:
        op: the operator.
        phase: the phase.
        modules: paths of the modules; what is of other modules does not matter.
    """

    op: str
    phase: str
    modules: tuple[str, ...]

    def broken(self, table: Any) -> Iterator[str]:
        """Yield what a table of attribution, with the launches' steps, says against it."""
        own = (table.aten_op == self.op) & (table.phase == self.phase) & (table.kind == "extern")
        for step, rows in table[own & table.module.isin(self.modules)].groupby("step"):
            first = list(dict.fromkeys(rows.sort_values("start_ns").module))
            if first != list(self.modules):
                yield f"{self.op} in {self.phase} of step {step}: the order is {first}"
        if table[own].step.nunique() != table.step.nunique():
            yield f"{self.op} in {self.phase}: not in each step"


def broken(facts: tuple[Fact | Order, ...], session: Any) -> list[str]:
    """Return what a case's attribution says against its facts."""
    launches = session.launches()[["launch", "kind", "step", "start_ns"]]
    table = session.attribution().merge(launches, on="launch")
    return [text for fact in facts for text in fact.broken(table)]
