"""The facts of the cases that try one mechanism each: a layout, a loop, a kernel, a cache."""

from __future__ import annotations

from tests.cases.facts.claims import Fact, Order
from tests.cases.facts.gpt import GELU, LINEARS, Facts, blocks, of_mean_square, within


def each(count: int, path: str) -> tuple[str, ...]:
    """Return a path for each number."""
    return tuple(path.format(number) for number in range(count))


def of_optimized() -> Facts:
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


SPEED_RUN = ("whiten", *(f"stages.{at}.conv_{n}" for at in (0, 1) for n in (1, 2)))

MECHANISMS: dict[str, Facts] = {
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
    "padded": (
        Fact("aten.addmm.default", "forward", (GELU,), ("down", "up")),
        Fact("aten.mm.default", "backward", (GELU,), ("down", "up"), ("addmm",)),
        Order("aten.mm.default", "backward", ("down", "up")),
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
        *of_optimized(),
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
