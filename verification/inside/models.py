"""Training steps whose kernels are looked into, and the script that runs one of them.

    python -m verification.inside.models NAME [--tiny] [--steps N] [--cold] [--marked N]

Widths and batches are real, so that kernels are long; of layers that are all alike there are few.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from verification.flaws.programs import gpt as own_gpt
from verification.flaws.programs import tuned
from verification.flaws.programs.program import Sizes, Step, compiled, fused_adamw, seeded, training
from verification.flaws.programs.vision import images_of, labels_of

__all__ = ["LIBRARIES", "MODELS", "STEPS", "WARM_UP"]

LAYERS = 4
IDLE_S = 0.001  # of the device before a kernel that runs alone
STEPS = 400  # samples need steady steps; what looks inside ends the script before
WARM_UP = 5  # steps before those that are marked for ncu


def gpt(sizes: Sizes) -> Step:
    model, tokens, targets = own_gpt.made(sizes, layers=LAYERS, batch=sizes.of(16, 2))
    loss_of = compiled(lambda: own_gpt.loss_of(model, tokens, targets), sizes)
    return Step(training(loss_of, fused_adamw(model), sizes))


def _language(sizes: Sizes, kind: str, config: Any, batch: int, length: int) -> Step:
    """The training step of a model of Transformers."""
    import transformers

    model = seeded(lambda: getattr(transformers, kind)(config), sizes)
    count, length = sizes.of((batch, length), (2, 16))
    tokens = seeded(lambda: torch.randint(1, config.vocab_size, (count, length)), sizes)
    run, optimizer = compiled(model, sizes), fused_adamw(model)
    given: dict[str, Any] = {"input_ids": tokens, "labels": tokens}
    if kind.startswith("T5"):
        given["use_cache"] = False
    return Step(training(lambda: run(**given).loss, optimizer, sizes))


def llama(sizes: Sizes) -> Step:
    from transformers import LlamaConfig

    width, heads, words = sizes.of((2048, 32, 32000), (32, 2, 128))
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=sizes.of(5632, 64),
        num_hidden_layers=sizes.of(LAYERS, 1),
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        use_cache=False,
    )
    return _language(sizes, "LlamaForCausalLM", config, 8, 1024)


def bert(sizes: Sizes) -> Step:
    from transformers import BertConfig

    width, heads, words = sizes.of((768, 12, 30528), (32, 2, 128))
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=sizes.of(LAYERS, 1),
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return _language(sizes, "BertForMaskedLM", config, 32, 512)


def t5(sizes: Sizes) -> Step:
    from transformers import T5Config

    width, heads, words = sizes.of((768, 12, 32128), (32, 2, 128))
    config = T5Config(
        vocab_size=words,
        d_model=width,
        d_kv=width // heads,
        d_ff=sizes.of(2048, 64),
        num_layers=sizes.of(LAYERS, 1),
        num_heads=heads,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    return _language(sizes, "T5ForConditionalGeneration", config, 16, 512)


def _images(sizes: Sizes, large: str, tiny: str, batch: int, **options: Any) -> Step:
    """The training step of a model of timm, with channels last."""
    import timm

    name = sizes.of(large, tiny)
    model: Any = seeded(lambda: timm.create_model(name, num_classes=1000, **options), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = images_of(sizes, batch).to(memory_format=torch.channels_last)
    run, labels, optimizer = compiled(model, sizes), labels_of(images), fused_adamw(model)
    return Step(training(lambda: F.cross_entropy(run(images), labels), optimizer, sizes))


def convnext(sizes: Sizes) -> Step:
    return _images(sizes, "convnext_tiny", "convnext_atto", 128)


def resnet50(sizes: Sizes) -> Step:
    return _images(sizes, "resnet50", "resnet10t", 128)


def vit(sizes: Sizes) -> Step:
    side = sizes.of(224, 32)
    return _images(
        sizes, "vit_base_patch16_224", "vit_tiny_patch16_224", 128, depth=LAYERS, img_size=side
    )


MODELS: dict[str, Callable[[Sizes], Step]] = {
    "gpt": gpt,
    "llama": llama,
    "bert": bert,
    "convnext": convnext,
    "resnet50": resnet50,
    "vit": vit,
    "t5": t5,
    "unet": tuned.diffusion_compiled,
    "dlrm": tuned.dlrm_compiled,
    "graph_network": tuned.graph_network_compiled,
}
LIBRARIES = {
    **dict.fromkeys(("llama", "bert", "t5"), "transformers"),
    **dict.fromkeys(("convnext", "resnet50", "vit"), "timm"),
}
"""What a model needs beside torch."""


@contextmanager
def _alone_and_cold() -> Iterator[None]:
    """Let each generated kernel run as under ncu: alone, on an idle device with an empty cache.

    Twice the L2 cache is read before: what is written would be written back meanwhile.

    Source: ``torch/_inductor/runtime/triton_heuristics.py``: ``CachingAutotuner.run``.
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    scratch = torch.zeros(2 * properties.L2_cache_size // 4, device="cuda")
    largest = torch.zeros((), device="cuda")
    tuner: Any = CachingAutotuner
    run = tuner.run

    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        torch.amax(scratch, dim=0, out=largest)
        torch.cuda.synchronize()
        time.sleep(IDLE_S)
        returned = run(self, *args, **kwargs)
        torch.cuda.synchronize()
        return returned

    tuner.run = alone
    try:
        yield
    finally:
        tuner.run = run


def _marked(run: Callable[[], Tensor], steps: int) -> None:
    """Run steps between the marks that ncu waits for."""
    cuda: Any = torch.cuda  # not typed
    cudart = cuda.cudart()
    torch.cuda.synchronize()
    cudart.cudaProfilerStart()
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    cudart.cudaProfilerStop()


def main() -> int:
    """Train a model."""
    parser = argparse.ArgumentParser(prog="verification.inside.models", description=__doc__)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--cold", action="store_true", help="each kernel alone, its cache empty")
    parser.add_argument("--marked", type=int, default=0, help="so many last steps are marked")
    options = parser.parse_args()
    step = MODELS[options.name](Sizes("cpu" if options.tiny else "cuda", options.tiny))
    with step.within(), _alone_and_cold() if options.cold else nullcontext():
        for _ in range(options.steps - options.marked):
            loss = step.run()
        if options.marked:
            _marked(step.run, options.marked)
    print(f"{options.name}: {options.steps} steps, loss {float(loss):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
