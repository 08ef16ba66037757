"""The facts of the cases that run eagerly: an op has the name that the dispatcher gives it."""

from __future__ import annotations

from tests.cases.facts.claims import Fact
from tests.cases.facts.gpt import (
    ATTENDED,
    FED,
    GELU,
    HEAD,
    LINEAR_LINES,
    LINEARS,
    LOSS,
    Facts,
    blocks,
    within,
)

_BLOCKS = blocks(4)
_LAYERS = (*within(_BLOCKS, *LINEARS), "head")
_PARTS = ("plain", "again", "late")
_GATED, _ADDED = "hidden = Gate.apply(self.up(x))", "return x + self.down(hidden)"
_ENDS = within(tuple(f"{part}." for part in _PARTS), "up", "down")
_HOOKED = ("first", "second")
_HOOKED_PARTS = ("first.", "second.")
_PRE_HOOK, _HOOK = "part.register_forward_pre_hook(", "part.register_forward_hook("

EAGER: dict[str, Facts] = {
    "eager": (
        Fact("aten::linear", "forward", (*LINEAR_LINES, HEAD), _LAYERS),
        Fact("aten::mm", "backward", (*LINEAR_LINES, HEAD), _LAYERS),
        Fact("aten::gelu", "forward", (GELU,), within(_BLOCKS, "mlp")),
        Fact("aten::gelu_backward", "backward", (GELU,), within(_BLOCKS, "mlp"), ("aten::gelu",)),
        Fact("aten::layer_norm", "forward", (ATTENDED, FED, HEAD)),
        Fact("aten::native_layer_norm_backward", "backward", (ATTENDED, FED, HEAD)),
        Fact("aten::cross_entropy_loss", "forward", (LOSS,), ("",)),
        Fact("aten::nll_loss_backward", "backward", (LOSS,), ("",)),
        Fact("aten::_foreach_addcdiv_", "optimizer", ("optimizer.step()",)),
    ),
    "eager_functions": (
        Fact("aten::linear", "forward", (_GATED, _ADDED), _ENDS),
        # The kind without reentry ends as soon as the backward has what it needs.
        Fact("aten::linear", "recompute", (_GATED, _ADDED)),
        Fact("aten::mm", "backward", (_GATED, _ADDED), _ENDS),
        Fact("aten::sigmoid", "forward", ("return x * x.sigmoid()",), _PARTS),
        Fact("aten::sigmoid", "recompute", ("return x * x.sigmoid()",), _PARTS[1:]),
        Fact("aten::sigmoid", "backward", ("gate = x.sigmoid()",), _PARTS),
        Fact("aten::rsub", "backward", ("return grad * (gate + x * gate * (1 - gate))",), _PARTS),
        Fact("aten::clamp", "backward", ("x.register_hook(lambda grad",), ("",)),
        Fact("aten::mean", "forward", ("return x.square().mean()",), ("",)),
    ),
    "eager_hooks": (
        Fact("aten::tanh", "forward", (_PRE_HOOK,), _HOOKED),
        Fact("aten::tanh", "recompute", (_PRE_HOOK,), _HOOKED[:1]),
        Fact("aten::tanh_backward", "backward", (_PRE_HOOK,), _HOOKED, ("aten::tanh",)),
        Fact("aten::exp", "forward", (_HOOK,), _HOOKED),
        Fact("aten::exp", "recompute", (_HOOK,), _HOOKED[:1]),
        Fact("aten::clamp", "backward", ("part.register_full_backward_hook(",), _HOOKED),
        Fact("aten::mul_", "gradient_accumulation", ("parameter.grad.mul_(0.5)",)),
        Fact("aten::linear", "recompute", (_GATED, _ADDED), ("first.up", "first.down")),
        Fact("aten::mm", "backward", (_GATED, _ADDED), within(_HOOKED_PARTS, "up", "down")),
    ),
    "eager_loader": (
        Fact("aten::to", "other", ("x = next(batches).to(", "x = torch.log1p(x).float()")),
        Fact("aten::log1p", "other", ("x = torch.log1p(x).float()",)),
        Fact("aten::linear", "forward", (_GATED, _ADDED), ("up", "down")),
        Fact("aten::mm", "backward", (_GATED, _ADDED), ("up", "down")),
    ),
    "eager_triton": (
        Fact("aten::linear", "forward", ("F.silu(halve(layer(x)))",), ("",)),
        Fact("aten::silu", "forward", ("F.silu(halve(layer(x)))",)),
        Fact("aten::silu_backward", "backward", ("F.silu(halve(layer(x)))",), (), ("aten::silu",)),
    ),
}
