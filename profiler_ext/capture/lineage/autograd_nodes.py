"""The node of a traced graph that an autograd node was made with, by its number and name."""

from __future__ import annotations

import functools
import math
import operator
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from profiler_ext.capture.lineage.links import PASSTHROUGH_OPS
from profiler_ext.capture.traces.creations import Creation, Creations
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import is_view_op
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.autograd import COPY_SLICES, AutogradNode

_BUILTIN = re.compile(r"(?:torch::autograd::)?(?P<op>\w+)Backward(?:\d+|s)")
"""``MulBackward0``, and ``torch::autograd::CopyBackwards`` of ``aten::copy_``."""
_OF_FUNCTION = ("autograd.function",)
"""Of ``torch/_dynamo/variables/higher_order_ops.py``, ``AutogradFunctionApplyVariable``."""
_TANGENT_CHECKS = ("aten.is_same_size.default", "aten._has_same_storage_numel.default")
"""Of ``torch/csrc/autograd/autograd_meta.cpp``, ``AutogradMeta::set_fw_grad``."""
_SIZE_FUNCTIONS = frozenset((*vars(math), *vars(operator))).difference(PASSTHROUGH_OPS)
"""Python functions that graphs call on sizes."""
_MIN_PREFIX = 4
_MAX_RUNS = 32
"""More than the chained views that an op replays before it runs."""


class AutogradNodeIndex:
    """The nodes of a graph, by the autograd nodes that were made with them.

    Autograd numbers a node just before the op's graph nodes are made. Other numbers may be given
    there too, and an op may leave no node, so the names must match as well. ``vmap`` runs other ops
    instead, products and sums for ``addmm``, under no such name: a number that was given between
    two nodes of one call of Dynamo's graph belongs to that call.
    """

    def __init__(self, creations: Creations) -> None:
        self.creations = creations
        self._ops: dict[str, str] = {}
        self._runs: Mapping[int, Sequence[_Run]] = self._all_runs()

    def _all_runs(self) -> dict[int, list[_Run]]:
        each: dict[int, list[_Run]] = defaultdict(list)
        last: dict[int, str] = {}
        for name, creation in self.creations.items():
            runs, before = each[creation.thread], last.get(creation.thread)
            if before is None or self._is_apart(before, creation):
                runs.append(_Run(creation.since, creation.until, before, []))
            if not (
                creation.target.startswith(("aten.sym_", "sym_"))
                or creation.target in _SIZE_FUNCTIONS
            ):
                runs[-1].names.append(name)
            last[creation.thread] = name
        return {thread: [run for run in runs if run.names] for thread, runs in each.items()}

    def _is_apart(self, before: str, creation: Creation) -> bool:
        """Tell whether an autograd node was made, or ran, between two nodes."""
        is_same = self.creations[before].autograd_node == creation.autograd_node
        return creation.until > creation.since or not is_same

    def of(self, name: str) -> str | None:
        """Return the node of the autograd node that ran when a node was made."""
        creation = self.creations.get(name)
        return None if creation is None or creation.autograd_node is None else self.by(creation)

    def every(self) -> dict[str, str]:
        """Return the same for each node made while an autograd node ran."""
        node_of = {name: self.of(name) for name in self.creations}
        return {name: node for name, node in node_of.items() if node is not None}

    def by(self, creation: Creation) -> str | None:
        """Return the node of the op whose autograd node made a node."""
        nodes = self.call_of(creation)
        # One op decomposes into several nodes; the last one has its value.
        return nodes[-1] if nodes else None

    def call_of(self, creation: Creation) -> tuple[str, ...]:
        """Return all nodes of the op whose autograd node made a node, in order."""
        autograd_node = creation.autograd_node
        assert autograd_node is not None
        runs = (_runs_from(autograd_node.number, runs) for runs in self._runs.values())
        calls = {self._of_runs(each, autograd_node, creation) for each in runs if each}
        calls.discard(())
        return calls.pop() if len(calls) == 1 else ()

    def last_of_call(self, name: str) -> str | None:
        """Return the last node of the Dynamo call whose backward made a node, if no op is known."""
        creation = self.creations.get(name)
        if creation is None or creation.autograd_node is None:
            return None
        number = creation.autograd_node.number
        runs = (_runs_from(number, runs) for runs in self._runs.values())
        calls = {self._enclosing_call(each[0]) for each in runs if each}
        calls.discard(None)
        return self._last_of_calls.get(calls.pop()) if len(calls) == 1 else None

    def _enclosing_call(self, run: _Run) -> _Call | None:
        """Return the call between whose nodes a run's numbers were given."""
        call = self._call(run.names[0])
        return call if run.before is not None and self._call(run.before) == call else None

    def _call(self, name: str) -> _Call | None:
        """Return the Dynamo call that made a node, if it made no other."""
        # A body called several times repeats its names, a replayed view has those of the original,
        # and the call that asks for a gradient runs all of the backward.
        made = self.creations[name]
        named, by, stack = made.lineage.source_fns, made.autograd_node, made.lineage.stack
        is_whole_backward = by is None and fx.calls_autograd_grad(named)
        if len(named) != 1 or made.replays is not None or is_whole_backward:
            return None
        return _Call(named[0], stack, by)

    @functools.cached_property
    def _last_of_calls(self) -> Mapping[_Call | None, str]:
        valued = (n for n, made in self.creations.items() if made.target not in PASSTHROUGH_OPS)
        return {call: name for name in valued if (call := self._call(name)) is not None}

    def _of_runs(
        self, runs: Sequence[_Run], autograd_node: AutogradNode, creation: Creation
    ) -> tuple[str, ...]:
        first = runs[0]
        if autograd_node.name == COPY_SLICES:  # made after the op that mutates a view
            mutated = self._mutated(first.before)
            return () if mutated is None else (mutated,)
        named = (
            self._named(first.names, autograd_node)
            or self._named(self._past_replayed_views(runs), autograd_node)
            or self._of_function(first, autograd_node, creation)
        )
        return tuple(name for name in named if self.creations[name].target not in PASSTHROUGH_OPS)

    def _mutated(self, name: str | None) -> str | None:
        """The op that mutated; autograd replays all its views before its node."""
        while name is not None and is_view_op(self.creations[name].target):
            name = next((n for n in self.creations[name].inputs if n in self.creations), None)
        return name

    def _past_replayed_views(self, runs: Sequence[_Run]) -> list[str]:
        """The nodes of an op whose number was given before autograd replays its views.

        Source: ``torch/csrc/autograd/variable.cpp``, ``VariableHooks::grad_fn``.
        """
        call, names = self._source(runs[0].names[0]), list[str]()
        for run in runs if call else ():
            names += [name for name in run.names if self._source(name) == call]
            if not all(self._is_view_of(name, call) for name in run.names):
                break
        return names

    def _is_view_of(self, name: str, call: tuple[str, ...]) -> bool:
        target = self.creations[name].target
        return self._source(name) == call and (is_view_op(target) or target in _TANGENT_CHECKS)

    def _named(self, names: Sequence[str], autograd_node: AutogradNode) -> list[str]:
        """The nodes of the first op with the autograd node's name."""
        builtin = _BUILTIN.fullmatch(autograd_node.name)
        op = _plain(builtin["op"] if builtin else autograd_node.name)
        for same in (str.__eq__, _is_prefix):
            first = next((n for n in names if same(self._op(n), op)), None)
            if first is not None:
                call = self._op(first), self._source(first)
                return [n for n in names if (self._op(n), self._source(n)) == call]
        return []

    def _of_function(self, run: _Run, autograd_node: AutogradNode, creation: Creation) -> list[str]:
        """The forward of an ``autograd.Function``, whose call its backward has too."""
        # A sum of gradients has no call: the function was called on one of its values.
        is_sum, named = creation.lineage.is_gradient_acc, creation.lineage.source_fns
        call, calls_grad = (_OF_FUNCTION if is_sum else named[:1]), fx.calls_autograd_grad(named)
        if _BUILTIN.fullmatch(autograd_node.name) or not call or calls_grad:
            return []
        is_called = self._source(run.names[0])[:1] == call
        return [n for n in run.names if is_called and self._source(n)[:1] == call]

    def _op(self, name: str) -> str:
        if name not in self._ops:  # called for each node made while its autograd node ran
            creation = self.creations[name]
            op = creation.lineage.original_aten or creation.target
            self._ops[name] = _plain(op.split(".")[1] if "." in op else op)
        return self._ops[name]

    def _source(self, name: str) -> tuple[str, ...]:
        return self.creations[name].lineage.source_fns


class _Call(NamedTuple):
    """A call in Dynamo's graph, or the run of one autograd node in it."""

    source: str
    stack: tuple[Frame, ...]
    autograd_node: AutogradNode | None


@dataclass(frozen=True, slots=True)
class _Run:
    """Nodes that were made one after the other, with no autograd node in between."""

    since: int  # the last number before the first node's
    until: int  # the last number before the first node was made
    before: str | None  # the node made before them
    names: list[str]


def _runs_from(number: int, runs: Sequence[_Run]) -> Sequence[_Run]:
    """Return the run before which a number was given, and some after it, in one thread."""
    at = bisect_left(runs, number, key=lambda run: run.until)
    return runs[at : at + _MAX_RUNS] if at < len(runs) and runs[at].since < number else ()


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _is_prefix(one: str, other: str) -> bool:
    """Tell whether one name begins with the other: ``nll_loss_forward`` and ``NllLoss``."""
    short = min(one, other, key=len)
    return len(short) >= _MIN_PREFIX and one.startswith(short) and other.startswith(short)


def forward_node_of(creations: Creations) -> dict[str, str]:
    """Return the forward node of each node made while an autograd node ran."""
    return AutogradNodeIndex(creations).every()
