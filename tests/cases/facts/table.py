"""Owns the facts of each case, by its name.

They come of the sources of the models and of torch's rules of differentiation alone.
"""

from __future__ import annotations

from tests.cases.facts.claims import Fact, Order
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


def facts_of(name: str) -> Facts:
    """Return the facts of a case, or of a rank of one (``ddp.rank_1``)."""
    return FACTS.get(name.partition(".")[0], ())


def each(count: int, path: str) -> tuple[str, ...]:
    """Return a path for each number."""
    return tuple(path.format(number) for number in range(count))


def _of_optimized() -> Facts:
    """Facts of a Sequential of stock layers: all of it stands on the line that calls it."""
    line = "model(x).square().mean()"
    return (
        Fact("aten.addmm.default", "forward", (line,), ("0", "2")),
        Order("aten.addmm.default", "forward", ("0", "2")),
        Fact("aten.mm.default", "backward", (line,), ("0", "2"), ("addmm",)),
        Order("aten.mm.default", "backward", ("2", "0")),
        Fact("aten.tanh.default", "forward", (line,), ("1",)),
        Fact("aten.tanh_backward.default", "backward", (line,), ("1",), ("tanh",)),
        *of_mean_square(line),
    )


COPY = "aten::_foreach_copy_"
SPEED_RUN = ("whiten", *(f"stages.{at}.conv_{n}" for at in (0, 1) for n in (1, 2)))
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
    "adamw_eager": _of_optimized(),
    "adamw_fused": _of_optimized(),
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
    "channels_last": (
        Fact(
            "aten.convolution.default",
            "forward",
            ("self.conv_1(images)", "self.conv_2(x)"),
            ("conv_1", "conv_2"),
        ),
        Order("aten.convolution.default", "forward", ("conv_1", "conv_2")),
        Fact(
            "aten.convolution_backward.default",
            "backward",
            ("self.conv_1(images)", "self.conv_2(x)"),
            ("conv_1", "conv_2"),
            ("convolution",),
        ),
        Order("aten.convolution_backward.default", "backward", ("conv_2", "conv_1")),
        Fact(
            "aten.threshold_backward.default",
            "backward",
            ("F.relu(self.bn_1(", "F.relu(self.bn_2("),
            ("",),
            ("relu",),
        ),
        Fact(
            "aten.native_batch_norm_backward.default",
            "backward",
            ("self.bn_1(", "self.bn_2("),
            ("bn_1", "bn_2"),
        ),
        Fact("aten.addmm.default", "forward", ("self.fc(x.mean((2, 3)))",), ("fc",)),
        Fact("aten.mm.default", "backward", ("self.fc(x.mean((2, 3)))",), ("fc",), ("addmm",)),
    ),
    "flex_attention": (
        Fact("aten.addmm.default", "forward", ("project(x)",)),
        Fact("aten.mm.default", "backward", ("project(x)",), (), ("addmm",)),
        Fact("flex_attention", "forward", ("flex_attention(q, k, v, score_mod=_score",)),
        Fact("flex_attention_backward", "backward", ("flex_attention(q, k, v, score_mod=_score",)),
        Fact("aten.mul.Tensor", "forward", ("distance = (q - k) * 0.0625",)),
        Fact(
            "aten.sub.Tensor", "forward", ("distance = (q - k) * 0.0625", "return score - distance")
        ),
        Fact("aten.ge.Tensor", "forward", ("return q >= k",)),
    ),
    "mix_order": (
        Fact("aten.gelu.default", "forward", ("F.gelu(norm(x)).sum()",)),
        Fact("aten.gelu_backward.default", "backward", ("F.gelu(norm(x)).sum()",)),
        Fact("aten.native_layer_norm.default", "forward", ("F.gelu(norm(x)).sum()",)),
        Fact("aten.native_layer_norm_backward.default", "backward", ("F.gelu(norm(x)).sum()",)),
        Fact("aten.sum.default", "forward", ("F.gelu(norm(x)).sum()",)),
    ),
    "one_graph": (
        Fact("aten.mm.default", "forward", ("torch.tanh(x @ weight)",)),
        Fact("aten.tanh.default", "forward", ("torch.tanh(x @ weight)",)),
        Fact("aten.mm.default", "backward", ("torch.tanh(x @ weight)",)),
        Fact("aten.tanh_backward.default", "backward", ("torch.tanh(x @ weight)",)),
        Fact("aten.mean.default", "forward", ("(h * 1.25).square().mean()",)),
        Fact("aten.mul.Tensor", "backward", ("(h * 1.25).square().mean()",)),
        Fact("aten.sub.Tensor", "forward", ("weight.sub_(gradient * 0.125)",)),
        Fact("aten.copy_.default", "forward", ("weight.sub_(gradient * 0.125)",)),
    ),
    "partitioned": (
        Fact("aten.addmm.default", "forward", ("layer(x).relu() * 1.25",)),
        Fact("aten.relu.default", "forward", ("layer(x).relu() * 1.25",)),
        Fact("aten.mean.default", "forward", ("h.mean().cpu() * 0.5",)),
        Fact("aten.tanh.default", "forward", ("(h * scale.to(h.device)).tanh()",)),
        Fact("aten.tanh_backward.default", "backward", ("(h * scale.to(h.device)).tanh()",)),
        Fact("aten.div.Scalar", "backward", ("h.mean().cpu() * 0.5",)),
        Fact("aten.threshold_backward.default", "backward", ("layer(x).relu() * 1.25",)),
        Fact("aten.mm.default", "backward", ("layer(x).relu() * 1.25",), (), ("addmm",)),
        Fact("aten.add.Tensor", "gradient_accumulation", ("h = layer(x).relu() * 1.25",)),
    ),
    "scan": (
        Fact("aten.addmm.default", "forward", ("scanned(turn, layer(x[0]), x)",)),
        Fact("aten.tanh.default", "forward", ("torch.tanh(h + row)",)),
        Fact("aten.mul.Tensor", "forward", ("kept = h * 1.25",)),
        Fact("aten.sum.default", "forward", ("last.square().sum() + rows.sum()",)),
        Fact("aten.pow.Tensor_Scalar", "forward", ("last.square().sum() + rows.sum()",)),
    ),
    "split_k": (
        Fact("aten.mm.default", "forward", ("layer(x).square().sum()",)),
        Fact("aten.mm.default", "backward", ("layer(x).square().sum()",), (), ("mm",)),
        Fact("aten.pow.Tensor_Scalar", "backward", ("layer(x).square().sum()",)),
        Fact("aten.sum.default", "forward", ("layer(x).square().sum()",)),
    ),
    "regional": tuple(
        Fact(op, phase, (GELU,), tuple(m for m in within(blocks(4), *LINEARS) if ".mlp." in m))
        for op, phase in (("aten.addmm.default", "forward"), ("aten.mm.default", "backward"))
    ),
    "while_loop": (Fact("aten.mm.default", "forward", ("branch(h @ x.t() @ x)",)),),
    "cnn": (
        Order("aten.convolution.default", "forward", ("conv_1", "conv_2")),
        Order("aten.convolution_backward.default", "backward", ("conv_2", "conv_1")),
        Fact(
            "aten.convolution_backward.default",
            "backward",
            ("self.conv_1(images)", "self.conv_2(x)"),
            ("conv_1", "conv_2"),
        ),
        Fact("aten.addmm.default", "forward", ("self.fc(x.mean((2, 3)))",), ("fc",)),
    ),
    "combo_kernels": (
        Fact("aten.sin.default", "forward", ("b.sin() * 2.5",)),
        Fact("aten.cos.default", "backward", ("b.sin() * 2.5",)),
        Fact("aten.exp.default", "forward", ("c.exp() - 3.5",)),
        Fact("aten.exp.default", "recompute", ("c.exp() - 3.5",)),
        Fact("aten.sub.Tensor", "forward", ("c.exp() - 3.5",)),
        Fact("aten.mul.Tensor", "forward", ("a * 1.25 + 1", "b.sin() * 2.5")),
        Fact("aten.sum.default", "forward", ("x.sum() + y.sum() + z.sum()",)),
    ),
    "graph_break": (
        Fact("aten.addmm.default", "forward", ("model.up(x).relu()", "model.down(h * 0.5)")),
        Fact("aten.mm.default", "backward", ("model.up(x).relu()", "model.down(h * 0.5)")),
        Fact("aten.relu.default", "forward", ("model.up(x).relu()",)),
        Fact("aten.threshold_backward.default", "backward", ("model.up(x).relu()",)),
    ),
    "cond": (
        Fact("aten.sin.default", "forward", ("lambda h: h.sin() * 1.25",)),
        Fact("aten.cos.default", "backward", ("lambda h: h.sin() * 1.25",)),
        Fact("aten.cos.default", "forward"),
        Fact("aten.sin.default", "backward"),
        Fact("aten.mm.default", "backward", ("h = layer(x)",)),
    ),
    "library_calls": (
        Fact("aten.sort.default", "forward", ("x.sort(dim=0)",)),
        Fact("aten.scatter.src", "backward", ("x.sort(dim=0)",)),
        Fact("aten.scatter_add.default", "forward", ("scatter_add(0, where, ordered)",)),
        Fact("aten.gather.default", "backward", ("scatter_add(0, where, ordered)",)),
        Fact("aten.native_dropout.default", "forward", ("F.dropout(scattered, 0.25)",)),
        Fact("aten.native_dropout_backward.default", "backward", ("F.dropout(scattered",)),
        Fact("aten.mm.default", "forward", ("dropped.t() @ x.relu()",)),
        Fact("aten.mm.default", "backward", ("dropped.t() @ x.relu()",)),
        Fact("aten.embedding_dense_backward.default", "backward", ("x = embed(ids)",)),
        Fact("aten.index_add.default", "backward", ("x.index_select(0, ids % 64)",)),
        Fact("aten.flip.default", "backward", ("wide.cumsum(0)",)),
    ),
    "user_triton": (
        Fact("aten.sin.default", "forward", ("layer(x).sin()",)),
        Fact("aten.cos.default", "forward", ("h.cos()",)),
        Fact("aten.cos.default", "backward", ("layer(x).sin()",)),
        Fact("aten.sin.default", "backward", ("h.cos()",)),
        Fact("aten.tanh_backward.default", "backward", ("h.tanh().sum()",)),
    ),
    "adamw_foreach": (
        *_of_optimized(),
        Fact(
            "aten._foreach_sqrt.default",
            "optimizer",
            ("torch._foreach_sqrt(device_exp_avg_sqs)", "torch._foreach_sqrt_(bias_correction2)"),
        ),
        Fact("aten._foreach_addcmul.Scalar", "optimizer", ("torch._foreach_addcmul_(",)),
    ),
    "max_autotune": (
        Fact("aten.gelu.default", "forward", (GELU,)),
        Fact("aten.gelu_backward.default", "backward", (GELU,)),
    ),
    "cudagraphs_cnn": (
        Order("aten.convolution.default", "forward", SPEED_RUN),
        Order("aten.convolution_backward.default", "backward", SPEED_RUN[::-1]),
        Fact(
            "aten.convolution_backward.default",
            "backward",
            ("self.conv_1(x)", "self.conv_2(x)", "self.whiten(images)"),
            ("whiten", *each(2, "stages.{}.conv_1"), *each(2, "stages.{}.conv_2")),
        ),
    ),
    "fp8": (
        Fact("aten._scaled_mm.default", "forward", ("torch._scaled_mm(quantised",)),
        Fact("aten.addmm.default", "forward", ("h = layer(x)",)),
        Fact("aten.mm.default", "backward", ("h = layer(x)",), (), ("addmm",)),
        Fact("aten.clamp.default", "forward", ("h.detach().clamp(-448, 448)",)),
    ),
    "compiled_in_op": tuple(
        Fact(
            "aten._scaled_mm.default",
            phase,
            tuple(f"{out} = torch._scaled_mm(" for out in outs),
            tuple(f"{at}.{linear}" for at in range(2) for linear in ("up", "down")),
        )
        for phase, outs in (("forward", ("out",)), ("backward", ("grad_x", "grad_w")))
    ),
}
