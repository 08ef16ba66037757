"""The cases of kernels that are not plain: templates, libraries, users' own, grouped ones."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from tests.cases import Case
from tests.cases.models import MLP, training


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


def padded(device):
    torch._inductor.config.force_shape_pad = True  # else a benchmark at compile time decides
    model = MLP(63).to(device)
    x = torch.randn(33, 63, device=device, requires_grad=True)
    return Case(training(model, x, compiled=torch.compile(lambda x: model(x).square().mean())))


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


def cpp_wrapper(device):
    torch._inductor.config.cpp_wrapper = True
    model = MLP(64).to(device)
    x = torch.randn(32, 64, device=device)
    compiled = torch.compile(lambda x: model(x).square().mean())
    return Case(training(model, x, compiled=compiled))


CASES = (
    max_autotune,
    flex_attention,
    library_calls,
    split_k,
    combo_kernels,
    mix_order,
    padded,
    user_triton,
    fp8,
    cpp_wrapper,
)
