"""Training and inference loops that time themselves, to hold the times of our steps against.

python benchmarks/loops.py NAME [--steps N]

Each prints what a step takes by its own clock: it waits for the device before the first counted
step and after the last one, and in none between. The profiler takes no part in that.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

Step = Callable[[], Any]
DEVICE = "cuda"
WARM, BLOCKS = 20, 8
VOCABULARY = 8192


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        split = self.qkv(self.norm_1(x)).view(batch, tokens, 3, width // 64, 64)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, *, recomputes: bool = False) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.recomputes = recomputes

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)
        return self.head(self.norm(x))


def tokens(batch: int, length: int = 512) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, length + 1), device=DEVICE)


def training(
    model: nn.Module,
    loss_of: Callable[[], torch.Tensor],
    *,
    micro_batches: int = 1,
    after: Callable[[torch.Tensor], Any] = lambda loss: None,
    **options: Any,
) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **options)

    def step() -> None:
        for _ in range(micro_batches):
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = loss_of()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after(loss)

    return step


def gpt(
    batch: int,
    mode: str | None = "eager",
    *,
    recomputes: bool = False,
    layers: int = 12,
    width: int = 768,
    **options: Any,
) -> Step:
    model = GPT(layers, width, recomputes=recomputes).to(DEVICE)
    called: Any = model if mode == "eager" else torch.compile(model, mode=mode)
    given = tokens(batch)

    def loss_of() -> torch.Tensor:
        logits = called(given[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), given[:, 1:].flatten())

    return training(model, loss_of, **options)


def whole_in_graph() -> Step:
    model, given = GPT().to(DEVICE).bfloat16(), tokens(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, capturable=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        logits = model(given[:, :-1])
        F.cross_entropy(logits.flatten(0, 1).float(), given[:, 1:].flatten()).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return ended(graph.replay)


def ended(work: Step) -> Step:
    """Return a step that a function of this name ends: --step-on names it."""
    global end_of_step

    def end_of_step() -> None:
        work()

    return lambda: end_of_step()


def vision(name: str, batch: int, mode: str | None = "eager", **options: Any) -> Step:
    import timm

    model = (
        timm.create_model(name, num_classes=1000).to(DEVICE).to(memory_format=torch.channels_last)
    )
    called: Any = model if mode == "eager" else torch.compile(model, mode=mode)
    x = torch.randn(batch, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (batch,), device=DEVICE)
    return training(model, lambda: F.cross_entropy(called(x), y), **options)


class Images(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, cost_s: float) -> None:
        self.cost_s = cost_s

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        until = time.perf_counter() + self.cost_s
        while time.perf_counter() < until:
            pass
        return torch.empty(3, 224, 224).fill_(0.5), at % 1000


def loaded(workers: int, batch: int, cost_s: float) -> Step:
    import timm

    model: Any = timm.create_model("resnet50").to(DEVICE).to(memory_format=torch.channels_last)
    loader = DataLoader(Images(cost_s), batch, num_workers=workers, pin_memory=workers > 0)
    batches = iter(loader)

    def loss_of() -> torch.Tensor:
        x, y = next(batches)
        x = x.to(DEVICE, non_blocking=True, memory_format=torch.channels_last)
        return F.cross_entropy(model(x), y.to(DEVICE, non_blocking=True))

    return training(model, loss_of)


def bert() -> Step:
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig()).to(DEVICE)
    called: Any = torch.compile(model)
    given = torch.randint(30_000, (32, 256), device=DEVICE)
    return training(model, lambda: called(input_ids=given, labels=given).loss, fused=True)


def llama() -> Step:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
        vocab_size=VOCABULARY,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(DEVICE)
    given = tokens(8)
    return training(model, lambda: model(input_ids=given, labels=given).loss)


def lstm() -> Step:
    model = nn.LSTM(512, 512, 2, batch_first=True).to(DEVICE)
    x = torch.randn(64, 128, 512, device=DEVICE)
    return training(model, lambda: model(x)[0].square().mean())


def copies_out() -> Step:
    """Each fifth step copies the parameters to the host on a stream of its own, meanwhile."""
    model, given, side = GPT().to(DEVICE), tokens(24), torch.cuda.Stream()
    held = [torch.empty(each.shape, pin_memory=True) for each in model.parameters()]
    count = [0]

    def after(loss: torch.Tensor) -> None:
        count[0] += 1
        if count[0] % 5 == 0:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), torch.no_grad():
                for there, here in zip(held, model.parameters(), strict=True):
                    there.copy_(here, non_blocking=True)

    def loss_of() -> torch.Tensor:
        logits = model(given[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), given[:, 1:].flatten())

    return training(model, loss_of, after=after, fused=True)


def inference(name: str, batch: int, mode: str | None) -> Step:
    import timm

    model = timm.create_model(name).to(DEVICE).eval()
    called: Any = model if mode == "eager" else torch.compile(model, mode=mode)
    x = torch.randn(batch, 3, 224, 224, device=DEVICE)

    def step() -> None:
        with torch.inference_mode(), torch.autocast(DEVICE, torch.bfloat16):
            called(x)

    return step


def of_ranks(*, sharded: bool) -> Step:
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device(DEVICE, rank))
    model: Any = GPT().to(DEVICE)
    if sharded:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    given = tokens(48)

    def loss_of() -> torch.Tensor:
        logits = model(given[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), given[:, 1:].flatten())

    return training(model, loss_of)


LOOPS: dict[str, Callable[[], Step]] = {
    "gpt_eager": lambda: gpt(4),
    "gpt_eager_large": lambda: gpt(32, fused=True),
    "gpt_compiled": lambda: gpt(8, None),
    "gpt_compiled_large": lambda: gpt(32, None, fused=True),
    "gpt_graphs": lambda: gpt(8, "reduce-overhead", fused=True),
    "gpt_graphs_large": lambda: gpt(32, "reduce-overhead", fused=True),
    "gpt_waits": lambda: gpt(8, after=lambda loss: loss.item()),
    "gpt_micro_batches": lambda: gpt(8, micro_batches=4, fused=True),
    "gpt_recomputes": lambda: gpt(16, recomputes=True, fused=True),
    "gpt_whole_in_graph": whole_in_graph,
    "gpt_copies_out": copies_out,
    "resnet": lambda: vision("resnet50", 128, fused=True),
    "resnet_compiled": lambda: vision("resnet50", 128, None, fused=True),
    "convnext": lambda: vision("convnext_tiny", 64),
    "vit_compiled": lambda: vision("vit_base_patch16_224", 32, None, fused=True),
    "loader_slow": lambda: loaded(0, 32, 0.0005),
    "loader_workers": lambda: loaded(4, 64, 0.0005),
    "bert": bert,
    "llama": llama,
    "lstm": lstm,
    "infer_eager": lambda: inference("resnet50", 32, "eager"),
    "infer_graphs": lambda: inference("convnext_tiny", 64, "reduce-overhead"),
}
OF_RANKS: dict[str, Callable[[], Step]] = {
    "ddp": lambda: of_ranks(sharded=False),
    "fsdp2": lambda: of_ranks(sharded=True),
}
STEP_ON = {
    "gpt_whole_in_graph": ":end_of_step",
    "infer_eager": "forward",
    "infer_graphs": "forward",
}
"""What ends a step of those that have no optimizer's step of their own."""


def counted_steps(step: Step, steps: int) -> Iterator[float]:
    """Yield the time of a step, of some blocks of steps without a wait within them."""
    for _ in range(WARM):
        step()
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(steps // BLOCKS):
            step()
        torch.cuda.synchronize()
        yield (time.perf_counter() - begun) / (steps // BLOCKS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*LOOPS, *OF_RANKS])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--timed", action="store_true", help="print what a step takes")
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    step = (LOOPS | OF_RANKS)[asked.name]()
    if asked.timed:
        blocks = [1e9 * each for each in counted_steps(step, asked.steps)]
        if int(os.environ.get("RANK", "0")) == 0:
            print(json.dumps({"loop": asked.name, "step_ns": blocks}), flush=True)
    else:
        marks = [time.perf_counter_ns()]
        for _ in range(asked.steps):
            step()
            marks.append(time.perf_counter_ns())
        if int(os.environ.get("RANK", "0")) == 0:
            print(json.dumps({"loop": asked.name, "marks_ns": marks}), flush=True)
    torch.cuda.synchronize()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
