"""Owns the way from a backward node of a joint graph to the forward node it differentiates.

``seq_nr`` links within one joint graph, never across, and it is not a key: nodes that
have no gradient share the number of their neighbour. Where several forward nodes carry a
number, the source function, the modules and the stack tell them apart. Where none does
(views that autograd made anew), the line does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch.fx

from profiler_ext.records import ForwardEvidence
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names

HAND_ON = ("getitem", "aten.detach.default", "aten.alias.default")


@dataclass(frozen=True, slots=True)
class Link:
    """A forward node, and the rule that found it."""

    forward_node: str
    evidence: ForwardEvidence


def is_forward(meta: fx.Meta) -> bool:
    """Tell whether a node was there when the forward ended."""
    tag = fx_names.PARTITIONER_TAG.of(meta)
    return tag in (fx_names.TAG_FORWARD.text, fx_names.TAG_MUST_BE_FORWARD.text)


def find_links(nodes: Iterable[torch.fx.Node], metas: Mapping[str, fx.Meta]) -> dict[str, Link]:
    """Return the forward node of each backward node that has one.

    Args:
        nodes: the call nodes of a joint graph, in graph order.
        metas: their metadata, with what a pattern lost found again.
    """
    ordered = list(nodes)
    forward = _Forward([n for n in ordered if is_forward(metas[n.name])], metas)
    backward = [n.name for n in ordered if differentiates(n, metas[n.name])]
    links = {name: forward.link(metas[name]) for name in backward}
    return {name: link for name, link in links.items() if link is not None}


def differentiates(node: torch.fx.Node, meta: fx.Meta) -> bool:
    """Tell whether a node of a joint graph differentiates a forward node.

    A gradient sum's and an epilogue copy's number and stack tell of some other node.
    """
    is_copy = fx.target_name(node.target).startswith("aten.copy_")
    return not is_forward(meta) and not fx_names.IS_GRADIENT_ACC.of(meta) and not is_copy


class _Forward:
    """The forward nodes of a joint graph, by what a backward node can know of them."""

    def __init__(self, nodes: list[torch.fx.Node], metas: Mapping[str, fx.Meta]) -> None:
        self._metas = {node.name: metas[node.name] for node in nodes}
        self._by_number: dict[int, list[str]] = defaultdict(list)
        self._by_stack: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            # What only hands a value on has the number of the node that computes it.
            if fx.target_name(node.target) not in HAND_ON:
                self._add(node.name, metas[node.name])

    def _add(self, name: str, meta: fx.Meta) -> None:
        if (number := fx.integer(meta, fx_names.SEQ_NR)) is not None:
            self._by_number[number].append(name)
        if (stack := fx.text(meta, fx_names.STACK_TRACE)) is not None:
            self._by_stack[stack].append(name)

    def link(self, meta: fx.Meta) -> Link | None:
        """Return the forward node of a backward node.

        What autograd made outside a node of its own (the Python backward of an
        ``autograd.Function``) has no tag, and the number of the last forward node.
        """
        if fx_names.PARTITIONER_TAG.of(meta) is None:
            return None
        return self._of_number(meta) or self._of_line(meta)

    def _of_number(self, meta: fx.Meta) -> Link | None:
        number = fx.integer(meta, fx_names.SEQ_NR)
        candidates = [] if number is None else self._by_number.get(number, [])
        if len(candidates) <= 1:
            return Link(candidates[0], ForwardEvidence.SEQ_NR) if candidates else None
        told_apart = candidates
        for same in (_same_source, _same_modules, _same_stack):
            kept = [name for name in told_apart if same(meta, self._metas[name])]
            told_apart = kept or told_apart
        # One op decomposes into several nodes with its number; the last one yields its value.
        is_one = len(told_apart) == 1
        rule = ForwardEvidence.SEQ_NR_SOURCE if is_one else ForwardEvidence.SEQ_NR_DECOMPOSED
        return Link(told_apart[-1], rule)

    def _of_line(self, meta: fx.Meta) -> Link | None:
        """A view that autograd makes anew has a number of its own, and the mutation's line."""
        candidates = self._by_stack.get(fx.text(meta, fx_names.STACK_TRACE) or "", [])
        return Link(candidates[-1], ForwardEvidence.STACK) if candidates else None


def _same_source(backward: fx.Meta, forward: fx.Meta) -> bool:
    return fx.source_fns(backward) == fx.source_fns(forward)


def _same_modules(backward: fx.Meta, forward: fx.Meta) -> bool:
    return fx.module_stack(backward) == fx.module_stack(forward)


def _same_stack(backward: fx.Meta, forward: fx.Meta) -> bool:
    stack = fx_names.STACK_TRACE
    return fx.text(backward, stack) == fx.text(forward, stack)
