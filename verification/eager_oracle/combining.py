"""The blocks that combine: checkpoints in checkpoints, threads that hand over, autocast."""

from __future__ import annotations

from verification.eager_oracle.differentiating import own_function
from verification.eager_oracle.draft import PASSES, Draft, indented


def nested_checkpoints(draft: Draft) -> list[str]:
    inner = draft.function("x", [draft.line(), draft.line(), "return x"])
    called = f"x = checkpoint({inner}, x, use_reentrant=False)  {PASSES} aten::detach"
    outer = draft.function("x", [draft.line(), called, draft.line(), "return x"])
    return [f"x = checkpoint({outer}, x, use_reentrant=False)  {PASSES} aten::detach", draft.line()]


def own_function_in_a_checkpoint(draft: Draft) -> list[str]:
    name = draft.function("x", [*own_function(draft), "return x"])
    is_reentrant = draft.rng.random() < 0.5
    called = f"x = checkpoint({name}, x, use_reentrant={is_reentrant})"
    return [f"{called}  {PASSES} aten::detach", draft.line()]


def hooked_layer_in_a_checkpoint(draft: Draft) -> list[str]:
    """What torch runs again itself, beside what a hook of the program's does."""
    hook, hooked = (
        draft.function("layer, given, x", [draft.line(), "return x"]),
        draft.name("hooked_"),
    )
    made = [f"def {hooked}(layer):", f"layer.register_forward_hook({hook})", "return layer"]
    draft.add("\n".join([made[0], *indented(made[1:])]))
    layer = draft.member(f"{hooked}(nn.Sequential(nn.Tanh(), nn.Identity()))")
    called = f"x = checkpoint({layer}, x, use_reentrant={draft.rng.random() < 0.5})"
    passed = f"{PASSES} aten::detach aten::tanh aten::tanh_backward"
    return [draft.line(), f"{called}  {passed}", draft.line()]


def forward_elsewhere(draft: Draft) -> list[str]:
    """A thread makes the value that this one goes on with."""
    name = draft.function("x, kept", [*draft.lines(2), "kept.append(x)"])
    made = ["kept = []", f"maker = threading.Thread(target={name}, args=(x, kept))"]
    return [*made, "maker.start()", draft.line(to="y"), "maker.join()", "x = kept.pop()"]


def backward_elsewhere(draft: Draft) -> list[str]:
    """A thread takes the gradient of what this one made, while it goes on."""
    called = f"x.backward(torch.ones_like(x), retain_graph=True)  {PASSES} aten::ones_like"
    name = draft.function("x", [called])
    made = [draft.line(), f"taker = threading.Thread(target={name}, args=(x,))", "taker.start()"]
    return [*made, f"with torch.no_grad(): {draft.line(to='y')}", "taker.join()", draft.line()]


def autocast(draft: Draft) -> list[str]:
    entered = "with torch.autocast(START.device.type, torch.bfloat16):"
    back = f"x = x.float()  {PASSES} aten::to"  # not every op takes two types
    with draft.without("scaled_dot_product"):
        return [entered, *indented([draft.line(), back, draft.line(), back]), draft.line()]


def in_place(draft: Draft) -> list[str]:
    own = draft.number()
    kept = draft.weight(f"torch.rand({own}, 4, device=device)")
    work = f"{kept}.mul_(0.5).add_({kept}).t()[1:3].relu_()"
    return [f"{work}  #@ {draft.number()} {own}", draft.line()]


def gradients_of_gradients(draft: Draft) -> list[str]:
    """A penalty on a gradient: what the first backward ran is differentiated in the second."""
    taken = "torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]"
    kept = [draft.line(to="y"), f"g = {taken}  {PASSES} aten::ones_like", draft.line("g", to="x")]
    return [draft.line(), *kept, draft.line()]


BLOCKS = (
    nested_checkpoints,
    own_function_in_a_checkpoint,
    hooked_layer_in_a_checkpoint,
    forward_elsewhere,
    backward_elsewhere,
    autocast,
    in_place,
    gradients_of_gradients,
)
