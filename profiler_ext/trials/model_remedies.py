"""Remedies in the model: its precision, layout, attention and checkpoints."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from profiler_ext.trials.remedy import Keyword, Patching, Remedy


def _tf32(patching: Patching) -> None:
    """Allow TF32 unless the script does: asked when its model runs, as it may set it itself."""
    torch = patching.torch

    def allow(_: Any) -> None:
        if torch.get_float32_matmul_precision() != "highest":
            patching.reason = "the script allows TF32 already"
            return
        if patching.note():
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True

    if patching.has_gpu:
        patching.on_first_work(allow)


def _cudnn_benchmark(patching: Patching) -> None:
    torch = patching.torch
    convolutions = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)

    def switch_on(module: Any) -> None:
        if torch.backends.cudnn.benchmark:
            patching.reason = "the script sets cudnn.benchmark already"
        elif module is None or any(isinstance(each, convolutions) for each in module.modules()):
            torch.backends.cudnn.benchmark = patching.note()

    if patching.has_gpu:
        patching.on_first_work(switch_on)


def _channels_last(patching: Patching) -> None:
    torch = patching.torch
    layout = torch.channels_last

    def converted(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.contiguous(memory_format=layout) if value.dim() == 4 else value
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            return type(value)(map(converted, value))
        if type(value) is dict:
            return {key: converted(each) for key, each in value.items()}
        return value

    def convert(module: Any, args: tuple[Any, ...]) -> Any:
        weights = [each for each in module.parameters() if each.dim() == 4]
        if weights and all(each.is_contiguous(memory_format=layout) for each in weights):
            patching.reason = "the weights are in channels_last already"
        elif weights and patching.note():
            # Not module.to(): a class of its own may take no layout
            torch.nn.Module.to(module, memory_format=layout)
            module.register_forward_pre_hook(
                lambda _, args, kwargs: (converted(args), converted(kwargs)), with_kwargs=True
            )
            return converted(args)
        return None

    patching.on_first_module(convert)


def _bf16_autocast(patching: Patching) -> None:
    """Autocast from the outermost module's call to the backward, as torch's recipe has it."""
    torch = patching.torch
    opened: list[Any] = []

    def close() -> None:
        while opened:
            opened.pop().__exit__(None, None, None)

    def begins(module: Any, _: Any) -> None:
        device = next(module.parameters()).device.type
        if torch.compiler.is_compiling() or torch.is_autocast_enabled(device):
            return
        if torch.is_grad_enabled():
            close()
            opened.append(torch.autocast(device, torch.bfloat16))
            opened[0].__enter__()

    def first(module: Any, args: tuple[Any, ...]) -> None:
        weight = next(module.parameters())
        if torch.is_autocast_enabled(weight.device.type) or weight.dtype is not torch.float32:
            patching.reason = "the script computes in lower precision already"
            return
        if patching.note():
            module.register_forward_pre_hook(begins)
            begins(module, args)

    def backward(original: Any, *args: Any, **kwargs: Any) -> Any:
        close()
        return original(*args, **kwargs)

    patching.on_first_module(first)
    patching.wrap(torch.Tensor, "backward", backward)
    patching.wrap(torch.autograd, "backward", backward)


def _no_checkpoints(patching: Patching) -> None:
    own = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug")
    note = patching.noting

    def checkpoint(original: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        note()
        if patching.counts_only:
            return original(function, *args, **kwargs)
        given = {key: each for key, each in kwargs.items() if key not in (*own, "early_stop")}
        return function(*args, **given)

    patching.wrap(import_module("torch.utils.checkpoint"), "checkpoint", checkpoint)


def _sdpa_is_causal(patching: Patching) -> None:
    """Drop a causal mask: the first of each shape is compared, later ones are taken to be it."""
    torch = patching.torch
    causal: dict[Any, bool] = {}

    def equals_causal(mask: Any) -> bool:
        is_kept = mask if mask.dtype is torch.bool else mask == 0
        square = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
        is_masking = mask.dtype is torch.bool or bool((mask[~is_kept] < -1e4).all())
        return is_masking and bool((is_kept == square).all())

    def is_causal_mask(mask: Any) -> bool:
        if torch.compiler.is_compiling() or mask is None or mask.requires_grad:
            return False
        key = (tuple(mask.shape), mask.dtype)
        if key not in causal:
            causal[key] = mask.dim() >= 2 and equals_causal(mask)
        return causal[key]

    def attention(
        original: Any,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **kwargs: Any,
    ) -> Any:
        if is_causal_mask(attn_mask) and patching.note():
            attn_mask, is_causal = None, True
        return original(query, key, value, attn_mask, dropout_p, is_causal, **kwargs)

    patching.wrap(torch.nn.functional, "scaled_dot_product_attention", attention)


def _sdpa_cudnn(patching: Patching) -> None:
    """Try cuDNN's attention first, and then the others in torch's order."""
    torch = patching.torch
    attention = import_module("torch.nn.attention")
    backend = attention.SDPBackend
    order = (
        backend.CUDNN_ATTENTION,
        backend.FLASH_ATTENTION,
        backend.EFFICIENT_ATTENTION,
        backend.MATH,
    )
    note = patching.noting

    def counted(original: Any, *args: Any, **kwargs: Any) -> Any:
        note()
        return original(*args, **kwargs)

    if not patching.has_gpu:
        return
    patching.wrap(torch.nn.functional, "scaled_dot_product_attention", counted)
    if not patching.counts_only:
        context = attention.sdpa_kernel(list(order), set_priority=True)
        context.__enter__()
        _OPEN.append(context)  # a collected generator would restore the order


_OPEN: list[Any] = []

ROWS: Final = (
    Remedy(
        "tf32",
        "TF32 in fp32 matrix products",
        edit='torch.set_float32_matmul_precision("high")',
        rules=("fp32_matmul",),
        patches="torch.set_float32_matmul_precision, when the model is first called",
        lacks="no module was called, and nothing compiled",
        apply=_tf32,
        statement='torch.set_float32_matmul_precision("high")',
        precision="tf32",
    ),
    Remedy(
        "bf16_autocast",
        "autocast to bfloat16 of forward and loss",
        edit='with torch.autocast("cuda", torch.bfloat16): around the forward and the loss',
        rules=("float32_model", "fp32_matmul", "attention_backend"),
        patches="calls of the outermost module; ends at the backward",
        lacks="no module was called outside of compiled functions",
        apply=_bf16_autocast,
        precision="bfloat16",
    ),
    Remedy(
        "bf16_weights",
        "parameters in bfloat16",
        edit="model.to(torch.bfloat16), with an optimizer that keeps fp32 copies of the parameters",
        rules=("dtype_conversion", "weight_copies"),
        precision="bfloat16",
    ),
    Remedy(
        "cudnn_benchmark",
        "cuDNN benchmarks its convolutions",
        edit="torch.backends.cudnn.benchmark = True",
        rules=("layout_conversion", "far_from_roofline"),
        patches="torch.backends.cudnn.benchmark, when the model is first called",
        lacks="the model has no convolution",
        apply=_cudnn_benchmark,
        statement="torch.backends.cudnn.benchmark = True",
    ),
    Remedy(
        "channels_last",
        "convolutions in channels_last",
        edit="model.to(memory_format=torch.channels_last), and its 4-d inputs likewise",
        rules=("layout_conversion",),
        patches="the weights and 4-d inputs of the outermost module, at its first call",
        lacks="the model has no 4-d weights",
        apply=_channels_last,
    ),
    Remedy(
        "no_checkpoints",
        "no activation checkpointing",
        edit="call the function in place of torch.utils.checkpoint.checkpoint(function, ...)",
        rules=("recompute",),
        patches="torch.utils.checkpoint.checkpoint",
        lacks="the script calls no torch.utils.checkpoint.checkpoint",
        apply=_no_checkpoints,
    ),
    Remedy(
        "sdpa_is_causal",
        "attention with is_causal in place of a causal mask",
        edit="scaled_dot_product_attention(..., is_causal=True) without attn_mask",
        rules=("attention_backend", "unfused_attention"),
        patches="eager calls of scaled_dot_product_attention with a causal mask",
        lacks="no eager scaled_dot_product_attention has a mask that equals is_causal",
        apply=_sdpa_is_causal,
        keyword=Keyword(
            "is_causal",
            "True",
            ("scaled_dot_product_attention",),
            replaces=("attn_mask",),
            max_positional=3,
        ),
    ),
    Remedy(
        "sdpa_cudnn",
        "cuDNN's attention before the other backends",
        edit="with torch.nn.attention.sdpa_kernel([SDPBackend.CUDNN_ATTENTION, "
        "SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION], set_priority=True): around "
        "the forward",
        rules=("attention_backend", "unfused_attention"),
        patches="the order of scaled_dot_product_attention's backends",
        lacks="the script calls no scaled_dot_product_attention",
        apply=_sdpa_cudnn,
        precision="bfloat16",
    ),
)
