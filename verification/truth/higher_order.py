"""How the eager run runs higher-order ops, so that all of their bodies run, each by itself.

``torch.cond`` has both its branches in a graph: both run, and the one that is not taken is
differentiated too. A loop's body runs once. A region is a plain call.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch._higher_order_ops
from torch.utils._pytree import tree_leaves, tree_map

_REGIONS = "torch._higher_order_ops.invoke_subgraph"


@contextlib.contextmanager
def run_eagerly() -> Iterator[list[torch.Tensor]]:
    """Let higher-order ops run as plain Python meanwhile.

    Yields:
        What branches yielded that were not taken, and can be differentiated.
    """
    not_taken: list[torch.Tensor] = []

    def cond(predicate: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
        yields = true(*operands), false(*operands)
        taken = int(not predicate)
        others = (v for v in tree_leaves(yields[1 - taken]) if isinstance(v, torch.Tensor))
        not_taken.extend(each for each in others if each.requires_grad)
        return yields[taken]

    regions = importlib.import_module(_REGIONS)  # the package has the op by this name
    with (
        mock.patch.object(torch, "cond", cond),
        mock.patch.multiple(torch._higher_order_ops, while_loop=_while_loop, scan=_scan),
        mock.patch.object(regions, "invoke_subgraph_placeholder", _call),
    ):
        yield not_taken


def _while_loop(condition: Any, body: Any, carried: Sequence[Any]) -> Any:
    condition(*carried)
    return body(*carried)


def _scan(combine: Any, carried: Any, each: Any) -> Any:
    """Run the body on the first slice, and repeat what it yields."""
    length = tree_leaves(each)[0].shape[0]
    carried, yielded = combine(carried, tree_map(lambda value: value[0], each))
    return carried, tree_map(lambda value: value.expand(length, *value.shape), yielded)


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)
