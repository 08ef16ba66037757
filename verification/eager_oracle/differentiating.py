"""The blocks that tell autograd what to do: functions of the program, checkpoints, hooks."""

from __future__ import annotations

from verification.eager_oracle.draft import PASSES, Draft, indented, rand


def own_function(draft: Draft) -> list[str]:
    """An autograd function: each line of its backward has numbers of its own."""
    name, made, own = draft.name("Function"), draft.number(), draft.number()
    first, last, back = draft.weight(rand(1, own)), draft.weight(rand(made, own)), draft.number()
    taken, given = draft.weight(rand(1, back)), draft.weight(rand(1, back))
    forward = f"({last} * (x * {first}).sum(0, keepdim=True)).sum(1, keepdim=True)"
    backward = f"(x * {taken} * (gradient * {given}).sum(0, keepdim=True)).sum(1, keepdim=True)"
    body = ["@staticmethod", "def forward(ctx, x):", "    ctx.save_for_backward(x)"]
    body += [f"    y = {forward}  #@ {made} {own}", "    return y", ""]
    body += ["@staticmethod", "def backward(ctx, gradient):", "    x, = ctx.saved_tensors"]
    body += [f"    gradient = {backward}  #@ {draft.number()} {back}", "    return gradient"]
    draft.add("\n".join([f"class {name}(torch.autograd.Function):", *indented(body)]))
    return [f"x = {name}.apply(x)  {PASSES} aten::detach", draft.line()]


def _checkpointed(draft: Draft, is_reentrant: bool) -> list[str]:
    inner = draft.function("x", [draft.line(), "return x"])
    name = draft.function("x", [draft.line(), f"x = {inner}(x)", draft.line(), "return x"])
    called = f"x = checkpoint({name}, x, use_reentrant={is_reentrant})"
    return [f"{called}  {PASSES} aten::detach", draft.line()]


def checkpointed(draft: Draft) -> list[str]:
    return _checkpointed(draft, is_reentrant=False)


def checkpointed_by_a_function(draft: Draft) -> list[str]:
    return _checkpointed(draft, is_reentrant=True)


def hook_of_a_tensor(draft: Draft) -> list[str]:
    own = draft.number()
    first, last = draft.weight(rand(1, own)), draft.weight(rand(1, own))
    work = f"(gradient * {first} * {last}).sum(1, keepdim=True)"
    body = ["if gradient is None:", "    return None"]  # as where a gradient is differentiated
    body += [f"gradient = {work}  #@ {draft.number()} {own}", "return gradient"]
    name = draft.function("gradient", body)
    return [draft.line(), f"x.register_hook({name})", draft.line()]


def without_gradients(draft: Draft) -> list[str]:
    return ["with torch.no_grad():", *indented(draft.lines(2)), "x.requires_grad_()", draft.line()]


def gradient_within(draft: Draft) -> list[str]:
    """The gradient of a gradient: what the first backward made is differentiated as well."""
    taken = "torch.autograd.grad(y, x, torch.rand_like(y), create_graph=True)[0]"
    taken += f"  {PASSES} aten::rand_like"
    own, made = draft.number(), draft.number()
    one, out = draft.weight(rand(1, own)), draft.weight(rand(made, own))
    work = f"({out} * (g * {one}).sum(0, keepdim=True)).sum(1, keepdim=True)"
    return [draft.line(), draft.line(to="y"), f"g = {taken}", f"x = {work}  #@ {made} {own}"]


def backward_kept(draft: Draft) -> list[str]:
    called = "x.backward(torch.ones_like(x), retain_graph=True)"
    return [draft.line(), f"{called}  {PASSES} aten::ones_like"]


def backward_of_two(draft: Draft) -> list[str]:
    called = "torch.autograd.backward([x], [torch.ones_like(x)], retain_graph=True)"
    return [draft.line(), f"{called}  {PASSES} aten::ones_like"]


def vjp(draft: Draft) -> list[str]:
    name = draft.function("x", [draft.line(), draft.line(), "return x"])
    made = [f"y, back = torch.func.vjp({name}, x)  {PASSES} aten::view_as aten::detach"]
    made.append(f"g, = back(torch.ones_like(y))  {PASSES} aten::ones_like aten::detach")
    own, out = draft.number(), draft.number()
    one, last = draft.weight(rand(1, own)), draft.weight(rand(out, own))
    work = f"({last} * (g * {one}).sum(0, keepdim=True)).sum(1, keepdim=True)"
    return [*made, f"x = {work}  #@ {out} {own}"]


def jvp(draft: Draft) -> list[str]:
    name = draft.function("x", [draft.line(), draft.line(), "return x"])
    called = f"x, _ = torch.func.jvp({name}, (x,), (torch.ones_like(x),))"
    passes = "aten::ones_like aten::view_as aten::detach aten::_make_dual aten::_unpack_dual"
    return [f"{called}  {PASSES} {passes}", draft.line()]


def vmap(draft: Draft) -> list[str]:
    name = draft.function("x", [draft.line(), "return x"])
    passes = "aten::unsqueeze aten::select aten::squeeze aten::select_backward"
    return [
        f"x = torch.func.vmap({name}, randomness='different')(x[None])[0]  {PASSES} {passes}",
        draft.line(),
    ]


def thread(draft: Draft) -> list[str]:
    """Threads that train at the same time, each with lines of its own."""
    ending = f"x.backward(torch.ones_like(x))  {PASSES} aten::ones_like"
    makers = [draft.function("x", [*draft.lines(2), ending]) for _ in range(2)]
    started = [f"threading.Thread(target={name}, args=(x.detach(),))" for name in makers]
    made = [f"threads = [{', '.join(started)}]  {PASSES} aten::detach"]
    made.append("for each in threads: each.start()")
    return [*made, draft.line(), "for each in threads: each.join()"]


BLOCKS = (
    own_function,
    checkpointed,
    checkpointed_by_a_function,
    hook_of_a_tensor,
    without_gradients,
    gradient_within,
    backward_kept,
    backward_of_two,
    vjp,
    jvp,
    vmap,
    thread,
)
