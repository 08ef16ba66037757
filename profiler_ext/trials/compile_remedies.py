"""Remedies of ``torch.compile``: the model compiled, its mode, and Inductor's options."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from profiler_ext.trials.remedy import Arguments, Keyword, Patching, Remedy

_MODE_OPTIONS: Final[Mapping[str, Mapping[str, bool]]] = {
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune": {
        "max_autotune": True,
        "triton.cudagraphs": True,
        "coordinate_descent_tuning": True,
    },
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
}
"""What each mode stands for; torch takes a mode or options, not both."""


def _compile(patching: Patching) -> None:
    from profiler_ext.torch_compat.process import is_compiled_module

    def first(module: Any, _: Any) -> None:
        if is_compiled_module(module):
            compiled(None)
        elif patching.note():
            # Not module.compile(): hooks of other remedies would be within the graph.
            module.forward = patching.torch.compile(module.forward)

    def compiled(_: Any) -> None:
        patching.reason = "the script compiles already"

    patching.on_first_module(first, compiled)


def _is_inductors(arguments: Arguments) -> bool:
    is_default = arguments.get("backend", "inductor") == "inductor"
    return is_default and arguments.get("model") is not None and not arguments.get("disable")


def _with_options(patching: Patching, added: Mapping[str, Any]) -> None:
    def change(arguments: Arguments) -> Arguments | None:
        if not _is_inductors(arguments):
            return None
        mode = arguments.get("mode") or "default"
        options = {**_MODE_OPTIONS.get(mode, {}), **(arguments.get("options") or {})}
        if all(options.get(key) == value for key, value in added.items()):
            patching.reason = "the script compiles so already"
            return None
        return {"mode": None, "options": {**options, **added}}

    patching.arguments(patching.torch, "compile", change)


def _dynamic(patching: Patching) -> None:
    def change(arguments: Arguments) -> Arguments | None:
        is_new = _is_inductors(arguments) and not arguments.get("dynamic")
        return {"dynamic": True} if is_new else None

    patching.arguments(patching.torch, "compile", change)


def _inductor_option(
    name: str, title: str, *rules: str, value: bool | int = True, lacks: str = ""
) -> Remedy:
    text = f'{{"{name}": {value}}}'
    return Remedy(
        name,
        title,
        edit=f"torch.compile(..., options={text})",
        rules=rules,
        named_by=("missed_fusion",),
        patches="the options of torch.compile",
        lacks=lacks or _NOT_COMPILED,
        apply=functools.partial(_with_options, added={name: value}),
        keyword=Keyword("options", text, ("compile",)),
    )


def _mode(name: str, mode: str, title: str, *rules: str) -> Remedy:
    return Remedy(
        name,
        title,
        edit=f'torch.compile(..., mode="{mode}")',
        rules=rules,
        patches="the mode of torch.compile",
        lacks=_NOT_COMPILED,
        apply=functools.partial(_with_options, added=_MODE_OPTIONS[mode]),
        keyword=Keyword("mode", f'"{mode}"', ("compile",)),
    )


_NOT_COMPILED = "the script compiles nothing with Inductor"

ROWS: Final = (
    Remedy(
        "compile",
        "the model compiled",
        edit="model.compile(), once the model is made",
        rules=("uncompiled", "python_loop", "launch_bound"),
        patches="the outermost module, at its first call",
        lacks="no module was called outside of compiled functions",
        apply=_compile,
    ),
    _mode("compile_reduce_overhead", "reduce-overhead", "CUDA graphs", "launch_bound"),
    _mode(
        "compile_max_autotune",
        "max-autotune",
        "CUDA graphs, and kernels chosen by measuring them",
        "far_from_roofline",
    ),
    Remedy(
        "compile_dynamic",
        "sizes dynamic from the first compile on",
        edit="torch.compile(..., dynamic=True), or mark_dynamic of the tensors whose sizes change",
        rules=("recompilation",),
        patches="the argument dynamic of torch.compile",
        lacks=_NOT_COMPILED,
        apply=_dynamic,
        keyword=Keyword("dynamic", "True", ("compile",)),
    ),
    Remedy(
        "compile_loss",
        "the loss compiled with the model",
        edit="torch.compile of a function that calls the model and computes the loss",
        rules=("eager_beside_compiled",),
    ),
    Remedy(
        "static_address",
        "batches at one address, not copied into CUDA graphs",
        edit="mark_static_address of a buffer that each batch is copied into",
        rules=("replay_copy",),
    ),
    _inductor_option(
        "max_autotune", "products and convolutions chosen by measuring them", "far_from_roofline"
    ),
    _inductor_option(
        "coordinate_descent_tuning", "tuned sizes of pointwise kernels", "far_from_roofline"
    ),
    _inductor_option("combo_kernels", "independent small kernels combined into one"),
    _inductor_option("loop_ordering_after_fusion", "loops reordered after fusion"),
    _inductor_option(
        "realize_reads_threshold", "values of up to 16 inputs computed again", value=16
    ),
    _inductor_option(
        "max_pointwise_cat_inputs", "up to 16 parts concatenated by what reads them", value=16
    ),
    _inductor_option("freezing", "weights as constants, for inference"),
)
