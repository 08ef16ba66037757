"""Owns the catalogue of cases, by the numbers and words of what real training does."""

from __future__ import annotations

import contextlib
import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import checkpoint as checkpoints

from tests.cases import Case
from tests.cases.models import CNN, GPT, MLP, Block, tokens, training

FULL = ("forward", "backward", "optimizer")


def repeated_layers(device):
    model = GPT(layers=12).to(device)
    return Case(training(model, *tokens(device)))


def cnn(device):
    model = CNN().to(device)
    images, labels = torch.randn(8, 3, 32, 32, device=device), torch.arange(8, device=device)
    return Case(training(model, images, labels))


def channels_last(device):
    model = CNN().to(device, memory_format=torch.channels_last)
    images = torch.randn(8, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    return Case(training(model, images, torch.arange(8, device=device)))


def bert(device):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=256,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    model = BertForMaskedLM(config).to(device)
    ids, _ = tokens(device)
    compiled = torch.compile(model)
    return Case(training(model, compiled=lambda: compiled(input_ids=ids, labels=ids).loss))


def llama(device):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config).to(device)
    ids, _ = tokens(device)
    compiled = torch.compile(model)
    return Case(training(model, compiled=lambda: compiled(input_ids=ids, labels=ids).loss))


def cudagraphs(device):
    model = GPT(dropout=0.1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=device == "cuda")
    compiled = torch.compile(model, mode="reduce-overhead")
    update = torch.compile(optimizer.step, mode="reduce-overhead")
    one = training(model, *tokens(device), compiled=compiled, update=update)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        one()

    return Case(step, warmup=6, phases=FULL, coverage=0.99)


def cudagraphs_autocast(device):
    model = GPT(layers=4).to(device)
    compiled = torch.compile(model, mode="reduce-overhead")
    step = training(model, *tokens(device), compiled=compiled, enabled=True)
    return Case(step, warmup=6, coverage=0.99)


def max_autotune(device):
    torch._inductor.config.max_autotune_gemm_backends = "TRITON"
    model = MLP(64).to(device)
    x = torch.randn(256, 64, device=device, requires_grad=True)
    compiled = torch.compile(
        lambda x: F.relu(model(x * 1.5)).sum(), mode="max-autotune-no-cudagraphs"
    )
    return Case(training(model, x, compiled=compiled), lines=("F.gelu(self.up(x))",))


def _score(score, batch, head, q, k):
    distance = (q - k) * 0.0625
    return score - distance


def _causal(batch, head, q, k):
    return q >= k


def flex_attention(device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(_causal, None, None, 256, 256, device=device)
    project = nn.Linear(64, 192).to(device)

    def attend(x):
        q, k, v = project(x).view(2, 256, 3, 2, 32).permute(2, 0, 3, 1, 4)
        return flex_attention(q, k, v, score_mod=_score, block_mask=mask).sum()

    x = torch.randn(2, 256, 64, device=device, requires_grad=True)
    return Case(training(project, x, compiled=torch.compile(attend)), lines=("distance",))


def library_calls(device):
    embed = nn.Embedding(512, 64).to(device)
    ids = torch.randint(512, (64,), device=device)

    def work(ids):
        x = embed(ids)
        ordered, where = x.sort(dim=0)
        scattered = torch.zeros_like(x).scatter_add(0, where, ordered)
        dropped = F.dropout(scattered, 0.25)
        wide = dropped.t() @ x.relu()
        return wide.cumsum(0).sum() + x.index_select(0, ids % 64).sum()

    return Case(training(embed, ids, compiled=torch.compile(work)))


def split_k(device):
    layer = nn.Linear(16384, 64, bias=False).to(device)
    x = torch.randn(32, 16384, device=device)
    return Case(training(layer, x, compiled=torch.compile(lambda x: layer(x).square().sum())))


def _optimizer(device, fused, **options):
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64)).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        fused=fused,
        foreach=not fused,
        capturable=device == "cuda" and not fused,
    )
    compiled = torch.compile(lambda x: model(x).square().mean())
    update = torch.compile(optimizer.step) if options.get("compiled", True) else optimizer.step
    x = torch.randn(32, 64, device=device)
    return Case(training(model, x, compiled=compiled, update=update), phases=FULL)


def adamw_foreach(device):
    return _optimizer(device, fused=False)


def adamw_fused(device):
    return _optimizer(device, fused=True)


def adamw_eager(device):
    return _optimizer(device, fused=False, compiled=False)


def combo_kernels(device):
    torch._inductor.config.combo_kernels = True

    def work(a, b, c):
        x = a * 1.25 + 1
        y = b.sin() * 2.5
        z = c.exp() - 3.5
        return x.sum() + y.sum() + z.sum()

    inputs = [torch.randn(size, 64, device=device, requires_grad=True) for size in (64, 96, 128)]
    holder = nn.Linear(1, 1).to(device)
    return Case(training(holder, *inputs, compiled=torch.compile(work)))


def mix_order(device):
    norm = nn.LayerNorm(1024).to(device)
    x = torch.randn(32768, 1024, device=device, requires_grad=True)
    return Case(training(norm, x, compiled=torch.compile(lambda x: F.gelu(norm(x)).sum())))


@functools.cache
def _triton_kernels():
    import triton
    import triton.language as tl

    @triton.jit
    def scale_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) * 2.5, mask=at < n)

    def scale(x):
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out

    @torch.library.triton_op("profiler_ext_cases::scale", mutates_args=())
    def scale_op(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        torch.library.wrap_triton(scale_kernel)[grid](x, out, x.numel(), BLOCK=256)
        return out

    scale_op.register_autograd(lambda ctx, grad: scale_op(grad))

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return scale(x)

        @staticmethod
        def backward(ctx, grad):
            return scale(grad)

    return scale_op, Scale.apply


def user_triton(device):
    scale_op, scale_function = _triton_kernels()
    layer = nn.Linear(64, 64).to(device)

    def work(x):
        h = scale_function(layer(x).sin())
        h = scale_op(h.cos())
        return h.tanh().sum()

    x = torch.randn(64, 64, device=device)
    return Case(
        training(layer, x, compiled=torch.compile(work)), lines=("scale_kernel", "scale_op")
    )


class Checkpointed(GPT):
    def around(self, block, x):
        return checkpoints.checkpoint(block, x, use_reentrant=False)


def checkpoint(device):
    model = Checkpointed().to(device)
    phases = ("forward", "backward", "recompute")
    return Case(training(model, *tokens(device)), phases=phases)


def _save_matmuls(context, op, *args, **kwargs):
    policy = checkpoints.CheckpointPolicy
    is_matmul = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return policy.MUST_SAVE if is_matmul else policy.PREFER_RECOMPUTE


class Selective(GPT):
    def around(self, block, x):
        contexts = functools.partial(
            checkpoints.create_selective_checkpoint_contexts, _save_matmuls
        )
        return checkpoints.checkpoint(block, x, use_reentrant=False, context_fn=contexts)


def selective_checkpoint(device):
    model = Selective().to(device)
    phases = ("forward", "backward", "recompute")
    return Case(training(model, *tokens(device)), phases=phases)


def dynamic_shapes(device):
    model = MLP(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean(), dynamic=True)
    sizes = iter([16, 24, 40, 56, 72, 88, 104, 120, 136, 152])

    def step():
        model.zero_grad()
        compiled(torch.randn(next(sizes), 64, device=device)).backward()

    return Case(step)


def recompilations(device):
    model = MLP(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean(), dynamic=False)

    def step():
        model.zero_grad()
        for size in (16, 48):
            compiled(torch.randn(size, 64, device=device)).backward()

    return Case(step)


def graph_break(device):
    model = MLP(64).to(device)

    def work(x):
        h = model.up(x).relu()
        torch._dynamo.graph_break()
        return model.down(h * 0.5).sum()

    x = torch.randn(32, 64, device=device)
    return Case(training(model, x, compiled=torch.compile(work)))


def blocks_one_by_one(device):
    model = GPT(layers=4).to(device)
    for block in model.blocks:
        block.compile()
    return Case(training(model, *tokens(device), compiled=model))


def nested_region(device):
    class Regional(GPT):
        @torch.compiler.nested_compile_region
        def around(self, block, x):
            return block(x)

    model = Regional(layers=4).to(device)
    compiled = torch.compile(model, fullgraph=True)
    return Case(training(model, *tokens(device), compiled=compiled))


def cond(device):
    layer = nn.Linear(64, 64).to(device)

    def work(x):
        h = layer(x)
        h = torch.cond(h.sum() > 0, lambda h: h.sin() * 1.25, lambda h: h.cos() * 2.5, (h,))
        return h.square().sum()

    x = torch.randn(64, 64, device=device)
    return Case(training(layer, x, compiled=torch.compile(work)))


def one_graph(device):
    torch.manual_seed(0)
    weight = torch.randn(64, 64, device=device)
    x = torch.randn(32, 64, device=device)

    def loss_of(weight, x):
        h = torch.tanh(x @ weight)
        return (h * 1.25).square().mean()

    @torch.compile
    def step(weight, x):
        gradient, loss = torch.func.grad_and_value(loss_of)(weight, x)
        weight.sub_(gradient * 0.125)
        return loss

    return Case(lambda: step(weight, x), phases=("forward", "backward"), coverage=0.3)


def autocast(device):
    model = GPT().to(device)
    return Case(training(model, *tokens(device), enabled=True))


def tied_weights(device):
    model = GPT().to(device)
    model.head.weight = model.token.weight
    return Case(training(model, *tokens(device)))


def micro_batches(device):
    model = GPT().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    compiled, batch = torch.compile(model), tokens(device)

    def step():
        for _ in range(2):
            (compiled(*batch) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return Case(step, phases=(*FULL, "gradient_accumulation"))


def eager_loss(device):
    model = MLP(64).to(device)
    compiled = torch.compile(model)
    x = torch.randn(32, 64, device=device)
    return Case(training(model, x, compiled=lambda x: F.mse_loss(compiled(x), x)))


def fp8(device):
    weight = torch.randn(64, 64, device=device).to(torch.float8_e4m3fn)
    layer = nn.Linear(64, 64).to(device, torch.bfloat16)
    one = torch.ones((), device=device)

    def work(x):
        h = layer(x)
        quantised = h.detach().clamp(-448, 448).to(torch.float8_e4m3fn)
        y = torch._scaled_mm(quantised, weight.t(), one, one, out_dtype=torch.bfloat16)
        return (y + h).float().sum()

    x = torch.randn(64, 64, device=device, dtype=torch.bfloat16)
    return Case(training(layer, x, compiled=torch.compile(work)))


def side_stream(device):
    model = MLP(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean())
    x = torch.randn(64, 64, device=device)
    stream = torch.cuda.Stream() if device == "cuda" else None

    def step():
        model.zero_grad()
        with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
            compiled(x).backward()
        torch.cuda.synchronize() if stream else None

    return Case(step)


def cpp_wrapper(device):
    torch._inductor.config.cpp_wrapper = True
    model = MLP(64).to(device)
    x = torch.randn(32, 64, device=device)
    compiled = torch.compile(lambda x: model(x).square().mean())
    return Case(training(model, x, compiled=compiled))


def in_a_thread(device):
    import threading

    model = Block(64).to(device)
    compiled = torch.compile(lambda x: model(x).square().mean())
    x = torch.randn(2, 16, 64, device=device)
    one = training(model, x, compiled=compiled)

    def step():
        worker = threading.Thread(target=one)
        worker.start()
        worker.join()

    return Case(step)


CASES = {
    case.__name__: case
    for case in (
        repeated_layers,
        cnn,
        channels_last,
        bert,
        llama,
        cudagraphs,
        cudagraphs_autocast,
        max_autotune,
        flex_attention,
        library_calls,
        split_k,
        adamw_foreach,
        adamw_fused,
        adamw_eager,
        combo_kernels,
        mix_order,
        user_triton,
        checkpoint,
        selective_checkpoint,
        dynamic_shapes,
        recompilations,
        graph_break,
        blocks_one_by_one,
        nested_region,
        cond,
        one_graph,
        autocast,
        tied_weights,
        micro_batches,
        eager_loss,
        fp8,
        side_stream,
        cpp_wrapper,
        in_a_thread,
    )
}
GPU_ONLY = frozenset(
    {
        "user_triton",
        "max_autotune",
        "fp8",
        "cudagraphs",
        "cudagraphs_autocast",
        "combo_kernels",
        "mix_order",
    }
)
