"""Remedies around the model: the optimizer, the data, and the communication of ranks."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import Any, Final

from profiler_ext.trials.remedy import Arguments, Keyword, Patching, Remedy

_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_FOREACH = (*_FUSED, "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "RMSprop", "Rprop")
_WORKERS = 4


def _optimizer(patching: Patching, argument: str, classes: tuple[str, ...]) -> None:
    """Make optimizers with ``fused`` or ``foreach``, which exclude each other."""
    optim = patching.torch.optim
    other = {"fused": "foreach", "foreach": "fused"}[argument]

    def change(arguments: Arguments) -> Arguments | None:
        if arguments.get(argument) or (argument == "foreach" and arguments.get("fused")):
            patching.reason = f"the optimizer is {'fused' if arguments.get('fused') else argument}"
            return None
        if argument == "foreach" and arguments.get("foreach") is None and patching.has_gpu:
            patching.reason = "torch takes foreach by itself on a GPU"
            return None
        return {argument: True, other: None}

    for name in classes:
        patching.arguments(getattr(optim, name), "__init__", change)


def _compiled_optimizer(patching: Patching) -> None:
    torch = patching.torch
    compiled: set[int] = set()

    def before(optimizer: Any, *_: Any) -> None:
        if torch.compiler.is_compiling() or id(optimizer) in compiled:
            return
        compiled.add(id(optimizer))
        if patching.note():
            optimizer.step = torch.compile(optimizer.step)

    # Not an attribute of torch.optim, which deletes the names of its modules
    import_module("torch.optim.optimizer").register_optimizer_step_pre_hook(before)


def _foreach_clipping(patching: Patching) -> None:
    utils = patching.torch.nn.utils

    def change(arguments: Arguments) -> Arguments | None:
        chosen = arguments.get("foreach")
        is_default = chosen is None and patching.has_gpu
        return None if chosen or is_default else {"foreach": True}

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patching.arguments(utils, name, change)


def _set_to_none(patching: Patching) -> None:
    def change(arguments: Arguments) -> Arguments | None:
        return {"set_to_none": True} if arguments.get("set_to_none") is False else None

    patching.arguments(patching.torch.optim.Optimizer, "zero_grad", change)
    patching.arguments(patching.torch.nn.Module, "zero_grad", change)


def _loader(patching: Patching, argument: str, value: Any) -> None:
    def change(arguments: Arguments) -> Arguments | None:
        has_workers = bool(arguments.get("num_workers"))
        if argument in ("prefetch_factor", "persistent_workers") and not has_workers:
            patching.reason = "no DataLoader of the script has workers"
            return None
        if arguments.get(argument):
            patching.reason = f"the script sets {argument} already"
            return None
        return {argument: value}

    if argument != "pin_memory" or patching.has_gpu:
        data = import_module("torch.utils.data")
        patching.arguments(data.DataLoader, "__init__", change)


def _non_blocking(patching: Patching) -> None:
    """Copy from pinned memory without waiting, where the call leaves the argument out."""
    torch = patching.torch

    def around(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or "non_blocking" in kwargs or _gives_flag(args):
            return original(tensor, *args, **kwargs)
        is_pinned = tensor.device.type == "cpu" and tensor.is_pinned()
        if not is_pinned or not patching.note():
            return original(tensor, *args, **kwargs)
        return original(tensor, *args, non_blocking=True, **kwargs)

    if patching.has_gpu:
        patching.wrap(torch.Tensor, "to", around)
        patching.wrap(torch.Tensor, "cuda", around)


def _gives_flag(args: tuple[Any, ...]) -> bool:
    return any(isinstance(each, bool) for each in args)


def _ddp(patching: Patching, argument: str, value: Any) -> None:
    def change(arguments: Arguments) -> Arguments | None:
        return None if arguments.get(argument) else {argument: value}

    if patching.torch.distributed.is_available():
        parallel = import_module("torch.nn.parallel")
        patching.arguments(parallel.DistributedDataParallel, "__init__", change)


def _fsdp_no_reshard(patching: Patching) -> None:
    def change(arguments: Arguments) -> Arguments | None:
        is_off = arguments.get("reshard_after_forward") is False
        return None if is_off else {"reshard_after_forward": False}

    if patching.torch.distributed.is_available():
        patching.arguments(import_module("torch.distributed.fsdp"), "fully_shard", change)


def _loader_row(
    name: str, argument: str, value: Any, title: str, *rules: str, source: str = ""
) -> Remedy:
    text = source or str(value)
    return Remedy(
        name,
        title,
        edit=f"DataLoader(..., {argument}={text})",
        rules=rules,
        patches="torch.utils.data.DataLoader",
        lacks="the script makes no DataLoader",
        apply=functools.partial(_loader, argument=argument, value=value),
        keyword=Keyword(argument, text, ("DataLoader", "__init__")),
    )


def _ddp_row(name: str, argument: str, value: Any, title: str, *rules: str) -> Remedy:
    return Remedy(
        name,
        title,
        edit=f"DistributedDataParallel(..., {argument}={value})",
        rules=rules,
        patches="torch.nn.parallel.DistributedDataParallel",
        lacks="the script makes no DistributedDataParallel, or sets it already",
        apply=functools.partial(_ddp, argument=argument, value=value),
        keyword=Keyword(argument, str(value), ("DistributedDataParallel", "DDP")),
    )


def _optimizer_row(argument: str, classes: tuple[str, ...], title: str) -> Remedy:
    other = {"fused": "foreach", "foreach": "fused"}[argument]
    passes = ("foreach_optimizer", "optimizer_temporaries") if argument == "fused" else ()
    return Remedy(
        f"{argument}_optimizer",
        title,
        edit=f"torch.optim.AdamW(..., {argument}=True)",
        rules=("per_parameter_optimizer", *passes, "launch_bound"),
        patches=f"optimizers of torch.optim that have {argument}",
        lacks=f"the script makes no optimizer that has {argument}",
        apply=functools.partial(_optimizer, argument=argument, classes=classes),
        keyword=Keyword(argument, "True", classes, replaces=(other,)),
    )


ROWS: Final = (
    _optimizer_row("fused", _FUSED, "a fused optimizer: one kernel for many parameters"),
    _optimizer_row("foreach", _FOREACH, "an optimizer that takes all parameters at once"),
    Remedy(
        "compiled_optimizer",
        "the optimizer's step compiled",
        edit="step = torch.compile(optimizer.step), and step() in place of optimizer.step()",
        rules=("per_parameter_optimizer", "foreach_optimizer", "launch_bound"),
        patches="the method step of each optimizer, after its first call",
        lacks="no optimizer stepped outside of compiled functions",
        apply=_compiled_optimizer,
    ),
    Remedy(
        "foreach_clipping",
        "gradients clipped all at once",
        edit="torch.nn.utils.clip_grad_norm_(..., foreach=True), in place of a loop",
        rules=("python_loop", "launch_bound"),
        patches="torch.nn.utils.clip_grad_norm_ and clip_grad_value_",
        lacks="the script clips nothing with torch.nn.utils, or all at once already",
        apply=_foreach_clipping,
        keyword=Keyword("foreach", "True", ("clip_grad_norm_", "clip_grad_value_")),
    ),
    Remedy(
        "set_to_none",
        "gradients removed, not filled with zeros",
        edit="optimizer.zero_grad(set_to_none=True)",
        rules=("zeroed_gradients", "launch_bound", "kept_gradients"),
        patches="zero_grad of optimizers and modules",
        lacks="no zero_grad has set_to_none=False",
        apply=_set_to_none,
        keyword=Keyword("set_to_none", "True", ("zero_grad",)),
    ),
    _loader_row("workers", "num_workers", min(_WORKERS, os.cpu_count() or 1),
                "worker processes load ahead", "data_loader"),
    _loader_row("prefetch_factor", "prefetch_factor", 4, "each worker loads four batches ahead",
                "data_loader"),
    _loader_row("persistent_workers", "persistent_workers", True, "workers outlive an epoch",
                "data_loader"),
    _loader_row("pin_memory", "pin_memory", True, "batches in pinned memory", "pageable_copy",
                "data_loader"),
    Remedy(
        "non_blocking",
        "copies from pinned memory without a wait",
        edit="tensor.to(device, non_blocking=True)",
        rules=("pageable_copy",),
        patches="torch.Tensor.to and cuda, of pinned tensors",
        lacks="the script copies no pinned tensor to a device, or without a wait already",
        apply=_non_blocking,
        keyword=Keyword("non_blocking", "True", ("to", "cuda")),
    ),
    _ddp_row("ddp_bucket_cap", "bucket_cap_mb", 100, "larger buckets of gradients",
             "exposed_communication"),
    _ddp_row("ddp_static_graph", "static_graph", True, "one graph in every step",
             "exposed_communication"),
    _ddp_row("ddp_bucket_view", "gradient_as_bucket_view", True, "gradients within the buckets",
             "exposed_communication"),
    Remedy(
        "fsdp_no_reshard",
        "parameters kept whole between forward and backward",
        edit="fully_shard(..., reshard_after_forward=False)",
        rules=("exposed_communication",),
        patches="torch.distributed.fsdp.fully_shard",
        lacks="the script calls no fully_shard, or keeps parameters whole already",
        apply=_fsdp_no_reshard,
        keyword=Keyword("reshard_after_forward", "False", ("fully_shard",)),
    ),
    Remedy(
        "fsdp_prefetch",
        "the next unit's parameters gathered ahead",
        edit="module.set_modules_to_forward_prefetch([...]), and to_backward_prefetch",
        rules=("exposed_communication",),
    ),
    Remedy(
        "no_sync",
        "gradients reduced once for all micro-batches",
        edit="with model.no_sync(): around all micro-batches but the last",
        rules=("repeated_reduction",),
    ),
)  # fmt: skip
