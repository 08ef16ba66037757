"""What a person read in ``tests/cases/models.py``: facts of the GPT and of its parts.

Order is data flow. A forward runs block by block, and in a block qkv, out, up, down; a backward
runs the other way round, since a layer's gradients need those of the layer after it.
"""

from __future__ import annotations

from tests.cases.facts.claims import Fact, Order

Facts = tuple[Fact | Order, ...]

GELU = "F.gelu(self.up(x))"
LINEARS = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
LINEAR_LINES = ("self.qkv(x)", "self.out(attended", GELU)
EMBEDDED = "self.token(tokens) + self.position"
ATTENDED = "x + self.dropout(self.attention(self.norm_1(x)))"
FED = "x + self.dropout(self.mlp(self.norm_2(x)))"
HEAD = "self.head(self.norm(x))"
LOSS = "F.cross_entropy("


def blocks(count: int) -> tuple[str, ...]:
    """Return the path of each block, with a dot behind."""
    return tuple(f"blocks.{number}." for number in range(count))


def within(prefixes: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Return paths of modules, block by block."""
    return tuple(f"{prefix}{name}" for prefix in prefixes for name in names)


def of_attention(prefixes: tuple[str, ...], kind: str = "efficient") -> Facts:
    """Return facts of attention; ``kind`` is the one that torch chooses for these inputs."""
    op, modules = f"_scaled_dot_product_{kind}_attention", within(prefixes, "attention")
    line = ("F.scaled_dot_product_attention(q, k, v",)
    forward, backward = f"aten.{op}.default", f"aten.{op}_backward.default"
    return (
        Fact(forward, "forward", line, modules),
        Order(forward, "forward", modules),
        Fact(backward, "backward", line, modules, (op,)),
        Order(backward, "backward", modules[::-1]),
        Fact("aten.select_backward.default", "backward", ("q, k, v = self.qkv(x)",), modules),
    )


def of_mlp(prefixes: tuple[str, ...]) -> Facts:
    """Return facts of the part of an MLP that Inductor generates."""
    modules = within(tuple(f"{prefix}mlp" for prefix in prefixes), "")
    return (
        Fact("aten.gelu.default", "forward", (GELU,), modules),
        Fact("aten.gelu_backward.default", "backward", (GELU,), modules),
    )


def of_linears(prefixes: tuple[str, ...], head: str | None = None) -> Facts:
    """Return facts of linear layers; ``head`` is the line of a head without bias."""
    modules, lines = within(prefixes, *LINEARS), (*LINEAR_LINES, *((head,) if head else ()))
    heads = ("head",) if head else ()
    return (
        Fact("aten.addmm.default", "forward", LINEAR_LINES, modules),
        Order("aten.addmm.default", "forward", modules),
        Fact("aten.mm.default", "backward", lines, (*modules, *heads)),
        Order("aten.mm.default", "backward", (*modules, *heads)[::-1]),
        *((Fact("aten.mm.default", "forward", (head,), heads),) if head else ()),
    )


def of_blocks(prefixes: tuple[str, ...], kind: str = "efficient") -> Facts:
    """Return facts of blocks: each has a part, none has another's line."""
    return (*of_attention(prefixes, kind), *of_mlp(prefixes), *of_linears(prefixes))


def of_norms(prefixes: tuple[str, ...], last: str = HEAD) -> Facts:
    """Return facts of layer norms; ``last`` is the line of the one behind the blocks."""
    modules, lines = (*within(prefixes, "norm_1", "norm_2"), "norm"), (ATTENDED, FED, last)
    return tuple(
        Fact(f"aten.native_layer_norm{end}.default", phase, lines, modules)
        for end, phase in (("", "forward"), ("_backward", "backward"))
    )


def of_loss(modules: tuple[str, ...] = ("",)) -> Facts:
    """Return facts of the loss, which is the model's own work."""
    ops = {"forward": ("_log_softmax", "nll_loss_forward")}
    ops["backward"] = ("_log_softmax_backward_data", "nll_loss_backward")
    return tuple(
        Fact(f"aten.{op}.default", phase, (LOSS,), modules) for phase in ops for op in ops[phase]
    )


def of_embedding() -> Facts:
    """Return facts of the token embedding."""
    line = (EMBEDDED,)
    return (
        Fact("aten.embedding.default", "forward", line, ("token",)),
        Fact("aten.embedding_dense_backward.default", "backward", line, ("token",), ("embedding",)),
    )


def of_sums(prefixes: tuple[str, ...]) -> Facts:
    """Return facts of sums of gradients: those of values that are used more than once.

    What runs into a block is used by its norm and by the sum around it, and so is what runs
    into its MLP; q, k and v are parts of one value. Each stands where the value was made.
    """
    made = (EMBEDDED, ATTENDED, *((FED,) if len(prefixes) > 1 else ()), "q, k, v = self.qkv(x)")
    own = tuple(prefix.removesuffix(".") for prefix in prefixes)
    modules = ("", *own, *within(prefixes, "attention"))
    return (Fact("aten.add.Tensor", "gradient_accumulation", made, modules),)


def of_parameters(prefixes: tuple[str, ...]) -> Facts:
    """Return facts of adding to each parameter's gradient: it stands where that is first used."""
    lines = (EMBEDDED, ATTENDED, FED, HEAD, *LINEAR_LINES)
    modules = (*within(prefixes, "norm_1", "norm_2", *LINEARS), "norm", "head", "token", "")
    return (Fact("aten.copy_.default", "gradient_accumulation", lines, modules),)


def of_gpt(count: int, kind: str = "efficient") -> Facts:
    """Return facts of a whole GPT that is compiled as one."""
    return (*of_gpt_but_sums(count, kind), *of_sums(blocks(count)))


def of_gpt_but_sums(count: int, kind: str = "efficient") -> Facts:
    """Return facts of a whole GPT whose gradients are summed in another way."""
    prefixes = blocks(count)
    return (
        *of_attention(prefixes, kind),
        *of_mlp(prefixes),
        *of_linears(prefixes, head=HEAD),
        *of_norms(prefixes),
        *of_embedding(),
        *of_loss(),
    )


def of_one_mlp(prefix: str = "") -> Facts:
    """Return facts of an MLP that is compiled by itself."""
    up, down = f"{prefix}up", f"{prefix}down"
    return (
        Fact("aten.addmm.default", "forward", (GELU,), (up, down)),
        Order("aten.addmm.default", "forward", (up, down)),
        Fact("aten.mm.default", "backward", (GELU,), (up, down), ("addmm",)),
        Order("aten.mm.default", "backward", (down, up)),
        Fact("aten.gelu.default", "forward", (GELU,), (prefix.removesuffix("."),)),
        Fact("aten.gelu_backward.default", "backward", (GELU,), (prefix.removesuffix("."),)),
        Fact("aten.sum.dim_IntList", "backward", (GELU,), (up, down)),
    )


def of_mean_square(line: str) -> Facts:
    """Return facts of a loss ``.square().mean()`` on a line outside every module."""
    return (
        Fact("aten.pow.Tensor_Scalar", "forward", (line,)),
        Fact("aten.mean.default", "forward", (line,)),
        Fact("aten.pow.Tensor_Scalar", "backward", (line,)),
        Fact("aten.mul.Scalar", "backward", (line,)),
        Fact("aten.div.Scalar", "backward", (line,)),
    )
