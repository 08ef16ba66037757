"""Owns what a person read in the models' sources: where the work of an operator belongs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiler_ext.session import Session


@dataclass(frozen=True, slots=True)
class Fact:
    """All time of an operator in a phase belongs to these lines and modules, some to each.

    Attributes:
        op: the operator.
        phase: the phase.
        code: for each line a text that stands in it; none means that the operator has no time.
        modules: paths of the modules; not checked where empty.
    """

    op: str
    phase: str
    code: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


def broken(name: str, session: Session) -> list[str]:
    """Return what a case's attribution says against the facts."""
    table = session.attribution()
    return [text for fact in FACTS.get(name, ()) for text in _broken(fact, table)]


def _broken(fact, table) -> Iterator[str]:
    rows = table[(table.aten_op == fact.op) & (table.phase == fact.phase) & table.line.notna()]
    codes, modules = set(rows.code.dropna()), set(rows.module.dropna())
    stray = [code for code in codes if not any(text in code for text in fact.code)]
    absent = [text for text in fact.code if not any(text in code for code in codes)]
    if stray or absent:
        yield f"{fact.op} in {fact.phase}: {stray} is wrong, {absent} is missing"
    if fact.modules and modules != set(fact.modules):
        yield f"{fact.op} in {fact.phase}: {sorted(modules ^ set(fact.modules))} differ"


def _each(count: int, path: str) -> tuple[str, ...]:
    return tuple(path.format(number) for number in range(count))


_SDPA = "aten._scaled_dot_product_efficient_attention.default"
_SDPA_BACKWARD = "aten._scaled_dot_product_efficient_attention_backward.default"
_LINEARS = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
_GELU = "F.gelu(self.up(x))"
_LINEAR_LINES = ("self.qkv(x)", "self.out(attended", _GELU)
_COPY = "aten::_foreach_copy_"


def _of_blocks(count: int) -> tuple[Fact, ...]:
    """Facts of the blocks of a GPT: each has a part, none has another's line."""
    attended = ("F.scaled_dot_product_attention(q, k, v",)
    linears = _of_linears(count)
    return (
        Fact(_SDPA, "forward", attended, _each(count, "blocks.{}.attention")),
        Fact(_SDPA_BACKWARD, "backward", attended, _each(count, "blocks.{}.attention")),
        Fact("aten.addmm.default", "forward", _LINEAR_LINES, linears),
    )


def _of_gpt(count: int) -> tuple[Fact, ...]:
    """Facts of a whole GPT, which its head and its embeddings belong to."""
    lines, modules = (*_LINEAR_LINES, "self.head("), (*_of_linears(count), "head")
    return (
        *_of_blocks(count),
        Fact("aten.mm.default", "backward", lines, modules),
        Fact("aten.mm.default", "forward", ("self.head(",), ("head",)),
        Fact("aten.embedding.default", "forward", ("self.token(tokens)",), ("token",)),
    )


def _of_linears(count: int) -> tuple[str, ...]:
    return tuple(f"blocks.{at}.{linear}" for at in range(count) for linear in _LINEARS)


FACTS = {
    "repeated_layers": _of_gpt(12),
    "nested_region": _of_gpt(4),
    "after_reset": _of_gpt(2),
    "compiled_autograd_blocks": (
        *_of_blocks(4),
        Fact("aten.mm.default", "backward", _LINEAR_LINES, _of_linears(4)),
    ),
    "regional": tuple(
        Fact(op, phase, (_GELU,), tuple(m for m in _of_linears(4) if ".mlp." in m))
        for op, phase in (("aten.addmm.default", "forward"), ("aten.mm.default", "backward"))
    ),
    "ddp_buckets": (
        Fact("aten.addmm.default", "forward", _LINEAR_LINES, _of_linears(4)),
        Fact(
            "aten.mm.default", "backward", (*_LINEAR_LINES, "self.head("), (*_of_linears(4), "head")
        ),
    ),
    "cudagraphs": (
        *_of_gpt(2),
        Fact(_COPY, "forward", ("def forward(self, tokens, targets):",)),
        Fact(_COPY, "backward", ("F.cross_entropy(",)),
    ),
    "while_loop": (Fact("aten.mm.default", "forward", ("branch(h @ x.t() @ x)",)),),
    "cnn": (
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
    "recompilations": (
        Fact("aten.addmm.default", "forward", (_GELU,), ("up", "down")),
        Fact("aten.mm.default", "backward", (_GELU,), ("up", "down")),
        Fact("aten.mean.default", "forward", ("model(x).square().mean()",)),
    ),
    "graph_break": (
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
        Fact(
            "aten._foreach_sqrt.default",
            "optimizer",
            ("torch._foreach_sqrt(device_exp_avg_sqs)", "torch._foreach_sqrt_(bias_correction2)"),
        ),
        Fact("aten._foreach_addcmul.Scalar", "optimizer", ("torch._foreach_addcmul_(",)),
    ),
    "max_autotune": (
        Fact("aten.gelu.default", "forward", (_GELU,)),
        Fact("aten.gelu_backward.default", "backward", (_GELU,)),
    ),
    "cudagraphs_cnn": (
        Fact(
            "aten.convolution_backward.default",
            "backward",
            ("self.conv_1(x)", "self.conv_2(x)", "self.whiten(images)"),
            ("whiten", *_each(2, "stages.{}.conv_1"), *_each(2, "stages.{}.conv_2")),
        ),
    ),
    "fp8": (Fact("aten._scaled_mm.default", "forward", ("torch._scaled_mm(quantised",)),),
    "compiled_in_op": tuple(
        Fact(
            "aten._scaled_mm.default",
            phase,
            tuple(f"{out} = torch._scaled_mm(" for out in outs),
            tuple(f"{at}.{linear}" for at in range(2) for linear in ("up", "down")),
        )
        for phase, outs in (("forward", ("out",)), ("backward", ("grad_x", "grad_w")))
    ),
    "checkpoint": (
        Fact("aten.gelu.default", "recompute", (_GELU,), _each(2, "blocks.{}.mlp")),
        Fact(_SDPA, "recompute", ("F.scaled_dot_product_attention(q, k, v",)),
    ),
}
"""By the name of the case."""
