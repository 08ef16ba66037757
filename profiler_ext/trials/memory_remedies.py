"""Remedies of memory: what is computed again, what the allocator reserves, and edits by hand."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from profiler_ext.torch_compat.points import MEMORY_BUDGET
from profiler_ext.trials.remedy import Arguments, Keyword, Patching, Remedy

_SETTING = "PYTORCH_CUDA_ALLOC_CONF"
_EXPANDABLE = "expandable_segments:True"
_BUDGET = 0.5
_FOREACH = ("Adam", "AdamW", "SGD", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "RMSprop")


def _blocks(module: Any, containers: tuple[type, ...]) -> Iterator[Any]:
    """Yield the modules of one class that a list has several of; not those within them."""
    for child in module.children():
        own = [each for each in child.children() if next(each.parameters(), None) is not None]
        is_list = isinstance(child, containers) and len({type(each) for each in own}) == 1
        if is_list and len(own) > 1:
            yield from own
        else:
            yield from _blocks(child, containers)


def _checkpoint_blocks(patching: Patching) -> None:
    """Checkpoint each block of the outermost module, at its first call."""
    nn = patching.torch.nn
    checkpoint = import_module("torch.utils.checkpoint").checkpoint

    def begin(module: Any, _: Any) -> None:
        for block in _blocks(module, (nn.ModuleList, nn.Sequential)):
            if patching.note():
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)

    patching.on_first_module(begin)


def _memory_budget(patching: Patching) -> None:
    """Let the partitioner keep half of what it would save, in graphs that are compiled later."""

    def change(arguments: Arguments) -> Arguments | None:
        if arguments.get("backend", "inductor") != "inductor" or arguments.get("disable"):
            return None
        from profiler_ext.torch_compat.process import set_memory_budget

        set_memory_budget(_BUDGET)
        return {}

    def counted(arguments: Arguments) -> Arguments | None:
        return {} if patching.counts_only else change(arguments)

    patching.arguments(patching.torch, "compile", counted)


def _expandable_segments(patching: Patching) -> None:
    """Set the allocator's environment, which it reads at the first allocation."""
    given = os.environ.get(_SETTING, "")
    if not patching.has_gpu:
        return
    if "expandable_segments" in given:
        patching.reason = "the script's environment sets it already"
    elif patching.note():
        os.environ[_SETTING] = ",".join(filter(None, (given, _EXPANDABLE)))


def _single_tensor_optimizer(patching: Patching) -> None:
    def change(arguments: Arguments) -> Arguments | None:
        if arguments.get("fused") or arguments.get("foreach") is False:
            patching.reason = "the optimizer has no temporaries of all parameters"
            return None
        return {"foreach": False}

    for name in _FOREACH:
        patching.arguments(getattr(patching.torch.optim, name), "__init__", change)


ROWS: Final = (
    Remedy(
        "checkpoint_blocks",
        "activations of each block computed again in the backward",
        edit="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for each block",
        rules=("kept_activations",),
        patches="modules of one class in a list of the outermost module, at its first call",
        lacks="the model has no list of modules of one class",
        apply=_checkpoint_blocks,
        frees="allocated",
    ),
    Remedy(
        "activation_memory_budget",
        "half of what compiled graphs save, the rest computed again",
        edit=f"{MEMORY_BUDGET} = {_BUDGET}",
        named_by=("kept_activations",),
        patches="functorch's configuration, when the script compiles",
        lacks="the script compiles nothing with Inductor",
        apply=_memory_budget,
        frees="allocated",
    ),
    Remedy(
        "expandable_segments",
        "segments of memory that grow",
        edit=f"{_SETTING}={_EXPANDABLE} in the environment",
        rules=("fragmented_memory",),
        patches="the environment, before the allocator reads it",
        lacks="there is no GPU",
        apply=_expandable_segments,
        frees="reserved",
    ),
    Remedy(
        "single_tensor_optimizer",
        "an optimizer that takes one parameter at a time",
        edit="torch.optim.AdamW(..., foreach=False)",
        rules=("optimizer_temporaries",),
        patches="optimizers of torch.optim that have foreach",
        lacks="the script makes no optimizer that has foreach",
        apply=_single_tensor_optimizer,
        keyword=Keyword("foreach", "False", _FOREACH),
        frees="allocated",
    ),
    Remedy(
        "chunked_loss",
        "projection and loss of one chunk of tokens at a time",
        edit="checkpoint(loss_of_chunk, h_chunk, y_chunk, use_reentrant=False) for each chunk",
        rules=("chunked_loss",),
    ),
    Remedy(
        "optimizer_8bit",
        "the optimizer's moments in 8 bits",
        edit="torchao.optim.AdamW8bit(...) in place of torch.optim.AdamW(...)",
        rules=("optimizer_8bit",),
    ),
    Remedy(
        "sharded_optimizer",
        "a part of the optimizer's state on each rank",
        edit="torch.distributed.optim.ZeroRedundancyOptimizer(..., optimizer_class=...)",
        rules=("sharded_optimizer",),
    ),
    Remedy(
        "larger_batch",
        "a larger batch",
        edit="the batch that the recommendation names, in the DataLoader",
        rules=("batch_size",),
    ),
)
