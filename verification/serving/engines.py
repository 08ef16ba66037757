"""The toy as each engine runs it: compiled by the engine's own code, in this process.

Only what the engine cannot do on this machine is changed: packages and operators that are absent
(:mod:`absent`), its check that a GPU is there, passes of vLLM's that replace ops by its compiled
operators, and, where a compiled ``weak_ref_tensor`` is absent, the references to the outputs of its
CUDA graphs, which are strong here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import absent
from .toy import OPERATOR, Llama

__all__ = ["ENGINES", "Toy"]

TOKENS = 16


@dataclass(frozen=True)
class Toy:
    """A compiled toy that has run.

    Attributes:
        step: runs it once, from CUDA graphs if these were asked for.
        expected: what the model computes without the engine.
        stood_in: names that :func:`absent.load` stood in for.
    """

    step: Callable[[], torch.Tensor]
    expected: torch.Tensor
    stood_in: tuple[str, ...]


def sglang(device: str, folder: Path, program: str) -> Toy:
    """Compile with ``install_torch_compiled``, as SGLang's ``tc_piecewise`` backend does."""
    os.environ["SGLANG_CACHE_DIR"] = str(folder / "cache")
    absent.stand_in("transformers", "torchvision")
    absent.skip_init("sglang")
    absent.skip_init("sglang.srt.model_executor.runner_utils")
    weak_references = "sglang.srt.compilation.weak_ref_tensor"
    if not _can_load("sgl_kernel"):
        sys.modules[weak_references] = ModuleType(weak_references)
        vars(sys.modules[weak_references])["weak_ref_tensors"] = lambda tensors: tensors
    within = "sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph"
    names = [f"sglang.srt.compilation.{name}" for name in ("backend", "compile", "compile_phase")]
    stood_in = absent.load(*names, within)
    _, compiling, phase = (sys.modules[name] for name in names)
    _start_one_rank()

    model, inputs, expected = _model(Llama, device)
    config = compiling.CompilationConfig([TOKENS], "eager" if program == "eager" else "inductor")
    config.add_split_op(OPERATOR.replace("::", "."))
    pool = torch.cuda.graph_pool_handle() if device == "cuda" else (0, 0)
    compiling.install_torch_compiled(model, compile_config=config, graph_pool=pool)
    enable = sys.modules[within].enable_tc_piecewise_cuda_graph

    def step() -> torch.Tensor:
        with enable():
            return _run(model, inputs)

    with phase.enable_torch_compile_warmup():
        step(), step()
    if program == "graphs":
        with phase.set_pcg_capture_stream(torch.cuda.Stream()):
            step(), step()
    # Without a stream it runs each piece as it is, and says so once.
    return Toy(step, expected, stood_in)


def vllm(device: str, folder: Path, program: str) -> Toy:
    """Compile with ``support_torch_compile``, piecewise."""
    graphs = program == "graphs"
    os.environ["VLLM_CACHE_ROOT"] = str(folder / "cache")
    absent.stand_in("transformers", "torchvision", "vllm.vllm_flash_attn")
    names = ("decorators", "passes.pass_manager")
    stood_in = absent.load(*(f"vllm.compilation.{each}" for each in names))
    stood_in += absent.load("vllm.config", "vllm.forward_context")
    stood_in += absent.define_named_in("vllm.compilation")
    config, context = sys.modules["vllm.config"], sys.modules["vllm.forward_context"]
    if graphs and not absent.is_defined("_C::weak_ref_tensor"):
        stood_in += absent.load("vllm.compilation.cuda_graph")
        wrapper = sys.modules["vllm.compilation.cuda_graph"]
        vars(wrapper)["weak_ref_tensors"] = lambda tensors: tensors
    made, late = _vllm_config(config, graphs)

    class Model(Llama):
        def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
            super().__init__()

    compiled = sys.modules["vllm.compilation.decorators"].support_torch_compile(
        Model, dynamic_arg_dims={"input_ids": 0, "positions": 0}
    )
    with config.set_current_vllm_config(made):
        model, inputs, expected = _model(lambda: compiled(vllm_config=made), device, Llama)

    def step(mode: Any = None) -> torch.Tensor:
        with ExitStack() as stack:
            stack.enter_context(config.set_current_vllm_config(made))
            about = {} if mode is None else {"cudagraph_runtime_mode": mode}
            stack.enter_context(context.set_forward_context(None, made, TOKENS, **about))
            return _run(model, inputs)

    step(), step()
    if not graphs:
        return Toy(step, expected, (*stood_in, *late))
    replayed = config.CUDAGraphMode.PIECEWISE
    step(replayed), step(replayed)
    return Toy(lambda: step(replayed), expected, (*stood_in, *late))


def _vllm_config(config: Any, graphs: bool) -> tuple[Any, tuple[str, ...]]:
    """Return the piecewise configuration, and what stood in for it to be made."""
    compilation = config.CompilationConfig(
        mode=config.CompilationMode.VLLM_COMPILE,
        splitting_ops=[OPERATOR],
        compile_sizes=[],
        cudagraph_mode=config.CUDAGraphMode.PIECEWISE if graphs else config.CUDAGraphMode.NONE,
        cudagraph_capture_sizes=[TOKENS] if graphs else [],
    )
    made = absent.call(lambda: config.VllmConfig(compilation_config=compilation))
    # What a platform turns off where it has no GPU.
    compilation.mode = config.CompilationMode.VLLM_COMPILE
    compilation.backend = compilation.backend or "inductor"
    for option, value in vars(compilation.pass_config).items():
        if option.startswith(("fuse_", "enable_")) and value is not False:
            setattr(compilation.pass_config, option, False)
    return made


def aoti(device: str, folder: Path, program: str) -> Toy:
    """Make a package of AOTInductor's, or load one that another process made."""
    path = folder / "toy.pt2"
    model, inputs, expected = _model(Llama, device)
    if program == "made":
        with torch.no_grad(), _timed("export"):
            exported = torch.export.export(model, inputs)
        # Otherwise the C++ wrapper calls kernels without an event.
        options = {"cpp.enable_kernel_profile": True}
        with torch.no_grad(), _timed("compile and package"):
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(path), inductor_configs=options
            )
    with _timed(f"load {path.stat().st_size / 1e6:.1f} MB"):
        loaded = torch._inductor.aoti_load_package(str(path))
    with _timed("first run"):
        _run(loaded, inputs)
    return Toy(lambda: _run(loaded, inputs), expected, ())


ENGINES: dict[str, Callable[[str, Path, str], Toy]] = {
    "sglang": sglang,
    "vllm": vllm,
    "aoti": aoti,
}


@contextmanager
def _timed(what: str) -> Iterator[None]:
    """Print when a step begins and ends: where a process is ended, its log says in which."""
    print(f"{what} ...", flush=True)
    started = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - started:.1f} s", flush=True)


def _can_load(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:
        return False


def _model(
    make: Callable[[], Any], device: str, plain: Callable[[], Any] | None = None
) -> tuple[Any, tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Make the model with fixed numbers; and its inputs, and what it computes from them."""
    torch.manual_seed(0)
    model = make().eval().to(device)
    reference = model
    if plain is not None:
        reference = plain().eval().to(device)
        reference.load_state_dict(model.state_dict())
    ids, positions = torch.arange(TOKENS, device=device), torch.arange(TOKENS, device=device)
    return model, (ids, positions), _run(reference, (ids, positions))


def _run(model: Any, inputs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return model(*inputs)


def _start_one_rank() -> None:
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
