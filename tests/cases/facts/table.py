"""The facts of each case, by its name.

They come of the sources of the models and of torch's rules of differentiation alone.
"""

from __future__ import annotations

from tests.cases.facts.claims import Fact, Order
from tests.cases.facts.eager import EAGER
from tests.cases.facts.gpt import (
    ATTENDED,
    FED,
    GELU,
    HEAD,
    LINEAR_LINES,
    LINEARS,
    Facts,
    blocks,
    of_attention,
    of_blocks,
    of_embedding,
    of_gpt,
    of_gpt_but_sums,
    of_linears,
    of_loss,
    of_mean_square,
    of_mlp,
    of_norms,
    of_one_mlp,
    of_parameters,
    of_sums,
    within,
)
from tests.cases.facts.libraries import BERT, CONVNEXT, LLAMA, RESNET
from tests.cases.facts.mechanisms import MECHANISMS, each, of_optimized


def facts_of(name: str) -> Facts:
    """Return the facts of a case, or of a rank of one (``ddp.rank_1``)."""
    return FACTS.get(name.partition(".")[0], ())


COPY = "aten::_foreach_copy_"
CONVOLUTIONS = ("conv_1", "conv_2", "conv_3")
SQUARED = "model(x).square().mean()"

FACTS: dict[str, Facts] = {
    "repeated_layers": of_gpt(12),
    "nested_region": (
        *of_attention(blocks(4))[:4],
        *of_linears(blocks(4), head=HEAD),
        *of_embedding(),
        *of_loss(),
        Fact("aten.erf.default", "forward", (GELU,), each(4, "blocks.{}.mlp")),
        Fact(
            "aten.rsqrt.default",
            "forward",
            (ATTENDED, FED),
            within(blocks(4), "norm_1", "norm_2"),
        ),
    ),
    "after_reset": of_gpt(2),
    "autocast": of_gpt(2, "cudnn"),
    "tied_weights": of_gpt(2),
    "micro_batches": of_gpt(2),
    "compiled_autograd": (*of_gpt_but_sums(2), *of_parameters(blocks(2))),
    "whole_step": of_gpt(2),
    "selective_checkpoint": of_gpt(2),
    "checkpoint": (
        *of_gpt(2),
        Fact("aten.gelu.default", "recompute", (GELU,), each(2, "blocks.{}.mlp")),
        Fact(
            "aten._scaled_dot_product_efficient_attention.default",
            "recompute",
            ("F.scaled_dot_product_attention(q, k, v",),
            each(2, "blocks.{}.attention"),
        ),
    ),
    "cudagraphs": (
        *of_gpt(2),
        Fact(COPY, "forward", ("def forward(self, tokens, targets):",)),
        Fact(COPY, "backward", ("F.cross_entropy(",)),
        Fact(
            "aten.native_dropout.default",
            "forward",
            ("self.dropout(self.attention(", "self.dropout(self.mlp("),
            each(2, "blocks.{}.dropout"),
        ),
    ),
    "cudagraphs_autocast": of_gpt(4, "cudnn"),
    "cudagraphs_sizes": of_gpt(3),
    "cudagraphs_seen_late": (
        *of_mlp(blocks(3)),
        *of_norms(blocks(3)),
        *of_embedding(),
        *of_loss(),
        *of_sums(blocks(3)),
    ),
    # Here blocks are frames of their own, of which only the lines are checked.
    "cudagraphs_in_parts": (
        Fact("aten.addmm.default", "forward", LINEAR_LINES),
        Fact("aten.mm.default", "backward", LINEAR_LINES, (), ("addmm",)),
        Fact("aten.gelu.default", "forward", (GELU,)),
        Fact("aten.gelu_backward.default", "backward", (GELU,)),
        *of_loss(modules=()),
    ),
    "cudagraphs_resnet": RESNET,
    "bert": BERT,
    "llama": LLAMA,
    "ddp": of_gpt_but_sums(4),
    "ddp_buckets": of_gpt_but_sums(4, "cudnn"),
    "fsdp2": (*of_blocks(blocks(4)), *of_loss(modules=())),
    "blocks_one_by_one": of_blocks(blocks(4)),
    "compiled_autograd_blocks": of_blocks(blocks(4)),
    "compiled_autograd_hooks": (
        *of_attention(("block.",)),
        *of_mlp(("block.",)),
        Fact("aten.silu.default", "forward", ("F.silu(x) + x",)),
        Fact(
            "aten.silu_backward.default", "backward", ("F.silu(x) + x",), (), ("div",)
        ),  # x / (1 + exp(-x))
        Fact("aten.clamp_min.default", "backward", ("gradient.clamp(-1.0, 1.0)",)),
        Fact("aten.clamp_max.default", "backward", ("gradient.clamp(-1.0, 1.0)",)),
        Fact("aten.sub.Tensor", "backward", ("inputs[0] - 0.25",)),
        Order("aten.addmm.default", "forward", (*within(("block.",), *LINEARS), "end")),
        Order("aten.mm.default", "backward", (*within(("block.",), *LINEARS), "end")[::-1]),
    ),
    "in_a_thread": (*of_blocks(("",)), *of_mean_square(SQUARED)),
    "dynamic_shapes": (*of_one_mlp(), *of_mean_square(SQUARED)),
    "recompilations": (*of_one_mlp(), *of_mean_square(SQUARED)),
    "side_stream": (*of_one_mlp(), *of_mean_square(SQUARED)),
    "cpp_wrapper": (*of_one_mlp(), *of_mean_square(SQUARED)),
    "tensor_parallel": (
        *of_one_mlp(),
        *of_mean_square(SQUARED),
        Fact("_c10d_functional.all_reduce.default", "forward", (GELU,)),
    ),
    "eager_loss": of_one_mlp(),
    "adamw_eager": of_optimized(),
    "adamw_fused": of_optimized(),
    "convnext": CONVNEXT,
    "rotary_dynamic": (
        Fact("aten.addmm.default", "forward", ("h = self.project(x)",), ("project",)),
        Fact("aten.mm.default", "backward", ("h = self.project(x)",), ("project",), ("addmm",)),
        Fact("aten.cos.default", "forward", ("both.cos() * self.scaling",), ("rotary",)),
        Fact("aten.sin.default", "forward", ("both.sin() * self.scaling",), ("rotary",)),
        Fact("aten.mean.default", "forward", (".square().mean()",), ("",)),
        Fact("aten.pow.Tensor_Scalar", "backward", (".square().mean()",), ("",)),
        Fact("aten.neg.default", "forward", ("torch.cat((-far, near), -1)",), ("",)),
    ),
    "pooling": (
        Fact(
            "aten.convolution.default",
            "forward",
            ("self.conv_1(images)", "self.near(self.conv_2(x))", "self.conv_3(x)"),
            CONVOLUTIONS,
        ),
        Order("aten.convolution.default", "forward", CONVOLUTIONS),
        Fact(
            "aten.convolution_backward.default",
            "backward",
            ("self.conv_1(images)", "self.near(self.conv_2(x))", "self.conv_3(x)"),
            CONVOLUTIONS,
            ("convolution",),
        ),
        Order("aten.convolution_backward.default", "backward", CONVOLUTIONS[::-1]),
        Fact(
            "aten.max_pool2d_with_indices.default",
            "forward",
            ("self.near(self.conv_2(x))", "x = self.wide(x)"),
            ("near", "wide"),
        ),
        Fact(
            "aten.max_pool2d_with_indices_backward.default",
            "backward",
            ("self.near(self.conv_2(x))", "x = self.wide(x)"),
            ("near", "wide"),
        ),
        Fact("aten.avg_pool2d.default", "forward", ("F.avg_pool2d(self.conv_3(x), 2)",), ("",)),
        Fact("aten.avg_pool2d_backward.default", "backward", ("F.avg_pool2d(self.conv_3(x), 2)",)),
        Fact("aten.mm.default", "forward", ("self.head(x.flatten(1))",), ("head",)),
        Fact("aten.mm.default", "backward", ("self.head(x.flatten(1))",), ("head",), ("mm",)),
    ),
    "flex_masks": (
        Fact("aten.addmm.default", "forward", ("project(x)",)),
        Fact("aten.mm.default", "backward", ("project(x)",), (), ("addmm",)),
        Fact(
            "flex_attention",
            "forward",
            ("flex_attention(q, k, v, score_mod=alibi", "flex_attention(first, k, v"),
        ),
    ),
    "traced_fsdp": (
        Fact("aten.tanh.default", "forward", ("torch.tanh(layer(x)) * 1.25",)),
        Fact("aten.tanh_backward.default", "backward", ("torch.tanh(layer(x)) * 1.25",)),
        Fact("aten.mm.default", "forward", ("torch.tanh(layer(x)) * 1.25",), each(4, "{}")),
        Fact("aten.mm.default", "backward", ("torch.tanh(layer(x)) * 1.25",), each(4, "{}")),
        Order("aten.mm.default", "forward", ("0", "1", "2", "3")),
        Order("aten.mm.default", "backward", ("3", "2", "1", "0")),
        Fact(
            "_c10d_functional.all_gather_into_tensor.default",
            "forward",
            ("weight.redistribute(self.mesh, [Replicate()])",),
            each(4, "{}.parametrizations.weight.0"),
        ),
    ),
    **MECHANISMS,
    **EAGER,
}
