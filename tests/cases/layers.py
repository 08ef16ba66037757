"""The cases of layers whose work is not plainly theirs: ops in ops, masks, floats, pools."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from tests.cases import Case
from tests.cases.models import training


@functools.cache
def _scaled_matmul():
    """Return a matrix product in fp8, whose op runs functions that are compiled themselves."""

    @torch.library.custom_op("profiler_ext_cases::scaled_mm", mutates_args=())
    def scaled_mm(
        x: torch.Tensor, w: torch.Tensor, x_s: float, w_s: float, grad_s: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        @torch.compile
        def product(x, w):
            x_f8 = x.div(x_s).to(torch.float8_e4m3fn)
            w_f8 = w.div(w_s).to(torch.float8_e4m3fn)
            out = torch._scaled_mm(
                x_f8,
                w_f8.T,
                out_dtype=torch.bfloat16,
                scale_a=x.new_tensor(x_s, dtype=torch.float32),
                scale_b=x.new_tensor(w_s, dtype=torch.float32),
                use_fast_accum=True,
            )
            return out, x_f8, w_f8

        return product(x, w)

    @scaled_mm.register_fake
    def _(x, w, *_):
        return x @ w.T, x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)

    @torch.library.custom_op("profiler_ext_cases::scaled_mm_backward", mutates_args=())
    def scaled_mm_backward(
        g: torch.Tensor,
        x_f8: torch.Tensor,
        w_f8: torch.Tensor,
        x_s: float,
        w_s: float,
        grad_s: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        @torch.compile
        def products(grad, x_f8, w_f8):
            x_scale = grad.new_tensor(x_s, dtype=torch.float32)
            w_scale = grad.new_tensor(w_s, dtype=torch.float32)
            grad_scale = grad.new_tensor(grad_s, dtype=torch.float32)
            grad_f8 = grad.div(grad_s).to(torch.float8_e5m2)
            grad_x = torch._scaled_mm(
                grad_f8,
                w_f8.T.contiguous().T,
                out_dtype=torch.bfloat16,
                scale_a=grad_scale,
                scale_b=w_scale,
            )
            grad_w = torch._scaled_mm(
                x_f8.T.contiguous(),
                grad_f8.T.contiguous().T,
                out_dtype=torch.float32,
                scale_a=x_scale,
                scale_b=grad_scale,
            ).T
            return grad_x, grad_w

        return products(g, x_f8, w_f8)

    @scaled_mm_backward.register_fake
    def _(g, x_f8, w_f8, *_):
        return x_f8.to(torch.bfloat16), w_f8.T.contiguous().T.to(torch.float32)

    def setup(ctx, inputs, output):
        *_, x_s, w_s, grad_s = inputs
        _, x_f8, w_f8 = output
        ctx.save_for_backward(x_f8, w_f8)
        ctx.scales = x_s, w_s, grad_s
        ctx.set_materialize_grads(False)

    def backward(ctx, grad, *_):
        return *scaled_mm_backward(grad, *ctx.saved_tensors, *ctx.scales), None, None, None

    scaled_mm.register_autograd(backward, setup_context=setup)
    return scaled_mm


class Fp8Linear(nn.Linear):
    def forward(self, x):
        rows = x.flatten(0, -2)
        out = _scaled_matmul()(rows, self.weight.bfloat16(), 0.05, 0.02, 0.75)[0]
        return out.reshape(*x.shape[:-1], -1)


class Fp8Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = Fp8Linear(width, 4 * width, bias=False)
        self.down = Fp8Linear(4 * width, width, bias=False)

    def forward(self, x):
        inner = self.up(self.norm(x))
        return x + self.down(F.relu(inner).square())


def compiled_in_op(device):
    model = nn.Sequential(Fp8Block(256), Fp8Block(256)).to(device, torch.bfloat16)
    x = torch.randn(4, 256, 256, device=device, dtype=torch.bfloat16)
    compiled = torch.compile(model)
    return Case(training(model, x, compiled=lambda x: compiled(x).float().square().mean()))


def flex_masks(device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    documents = torch.arange(256, device=device) // 96
    slopes = torch.rand(2, device=device)

    def alibi(score, batch, head, q, k):
        distance = (q - k) * 0.0625
        bias = slopes[head] * distance
        return torch.tanh((score - bias) / 20) * 20

    def within_documents(batch, head, q, k):
        causal = q >= k
        same = documents[q] == documents[k]
        return causal & same

    mask = create_block_mask(within_documents, None, None, 256, 256, device=device)
    project = nn.Linear(64, 192).to(device)

    def attend(x):
        q, k, v = project(x).view(2, 256, 3, 2, 32).permute(2, 0, 3, 1, 4)
        first = flex_attention(q, k, v, score_mod=alibi, block_mask=mask)
        return flex_attention(first, k, v, block_mask=mask).sum()

    x = torch.randn(2, 256, 64, device=device, requires_grad=True)
    return Case(
        training(project, x, compiled=torch.compile(attend)),
        lines=("distance", "same = documents"),
        coverage=0.97,  # the derivative of several lines has none
    )


class Rotary(nn.Module):
    """The angles of a rotary embedding, scaled by a float that is an input under dynamic=True."""

    def __init__(self, width, scaling=0.875):
        super().__init__()
        self.scaling = scaling
        self.register_buffer("frequencies", 10000.0 ** -(torch.arange(0, width, 2) / width))

    def forward(self, positions):
        angles = positions[:, None].float() * self.frequencies
        both = torch.cat((angles, angles), -1)
        cos = both.cos() * self.scaling
        sin = both.sin() * self.scaling
        return cos, sin


class Rotated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rotary = Rotary(width)
        self.project = nn.Linear(width, width)

    def forward(self, x):
        cos, sin = self.rotary(torch.arange(x.shape[1], device=x.device))
        h = self.project(x)
        near, far = h.chunk(2, -1)
        return (h * cos + torch.cat((-far, near), -1) * sin).square().mean()


def rotary_dynamic(device):
    model = Rotated(64).to(device)
    x = torch.randn(4, 128, 64, device=device, requires_grad=True)
    return Case(
        training(model, x, compiled=torch.compile(model, dynamic=True)),
        lines=("both.cos() * self.scaling", "both.sin() * self.scaling"),
    )


class Pooled(nn.Module):
    """Convolutions with pools between them, in half precision."""

    def __init__(self, width=32):
        super().__init__()
        self.conv_1 = nn.Conv2d(3, width, 2, bias=False)
        self.conv_2 = nn.Conv2d(width, width, 3, padding="same", bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.conv_3 = nn.Conv2d(width, width, 3, padding="same", bias=False)
        self.near, self.wide = nn.MaxPool2d(2), nn.MaxPool2d(3)
        self.head = nn.Linear(width * 4, 10, bias=False)

    def forward(self, images):
        x = F.gelu(self.conv_1(images))
        x = F.gelu(self.bn(self.near(self.conv_2(x))))
        x = F.avg_pool2d(self.conv_3(x), 2)
        x = self.wide(x)
        return self.head(x.flatten(1)).float()


def pooling(device):
    dtype = torch.float16 if device == "cuda" else torch.float32
    model = Pooled().to(device, dtype, memory_format=torch.channels_last)
    images = torch.randn(64, 3, 32, 32, device=device, dtype=dtype)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.arange(64, device=device) % 10
    compiled = torch.compile(model)
    return Case(training(model, images, compiled=lambda x: F.cross_entropy(compiled(x), labels)))


def convnext(device):
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        num_channels=3, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], image_size=64
    )
    model = ConvNextForImageClassification(config).to(device)
    images = torch.randn(8, 3, 64, 64, device=device)
    labels = torch.arange(8, device=device) % 2
    compiled = torch.compile(model)
    return Case(training(model, images, compiled=lambda x: compiled(x, labels=labels).loss))


CASES = (compiled_in_op, flex_masks, rotary_dynamic, pooling, convnext)
