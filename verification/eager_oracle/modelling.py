"""The blocks of modules: nested, in loops, in sequences, used twice, with hooks."""

from __future__ import annotations

from verification.eager_oracle.draft import PASSES, Draft, indented


class _Members:
    """The tensors of a class of modules."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.made: list[str] = []

    def weight(self, made: str) -> str:
        """Return a new tensor of the class."""
        name = self._draft.name("w")
        made = made.replace(", device=device, requires_grad=True", "")
        made = made.replace(", device=device", "")
        learns = made.startswith("torch.rand((")
        kept = f"nn.Parameter({made})" if learns else made
        as_member = f"self.{name} = {kept}"
        self.made.append(as_member if learns else f"self.register_buffer('{name}', {made})")
        return f"self.{name}"

    def of_instance(self, number: int) -> str:
        """Return what is added of a tensor that has the number of the instance."""
        name = self._draft.name("w")
        self.made.append(f"self.{name} = nn.Parameter(torch.rand(number, {number}))")
        return f"self.{name}.sum(0, keepdim=True)"


def _class(draft: Draft, child: str = "") -> str:
    """Write a class of modules; its instances are made with a number each."""
    name, members = draft.name("Part"), _Members(draft)
    expression, mark = draft.work("x", members.weight, members.of_instance)
    body = [f"x = {expression}{mark}"]
    if child:
        body += ["x = self.child(x)", draft.line("x", members.weight)]
    made = [f"self.child = {child}"] if child else []
    init = ["def __init__(self, number):", "    super().__init__()"]
    lines = [*init, *indented(members.made + made), "", "def forward(self, x):"]
    draft.add(
        "\n".join(
            [f"class {name}(nn.Module):", *indented([*lines, *indented(body)]), "        return x"]
        )
    )
    return name


def _instance(draft: Draft, name: str, path: str) -> str:
    number = draft.number()
    draft.modules[number] = path
    return f"{name}({number})"


def module(draft: Draft) -> list[str]:
    name = _class(draft)
    path = draft.next_member()
    called = draft.member(_instance(draft, name, path))
    return [f"x = {called}(x)", draft.line()]


def module_used_twice(draft: Draft) -> list[str]:
    name = _class(draft)
    path = draft.next_member()
    called = draft.member(_instance(draft, name, path))
    return [f"x = {called}(x)", f"x = {called}({called}(x))"]


def module_in_a_module(draft: Draft) -> list[str]:
    inner = _class(draft)
    path = draft.next_member()
    child = _instance(draft, inner, f"{path}.child")
    called = draft.member(_instance(draft, _class(draft, child), path))
    return [f"x = {called}(x)"]


def modules_in_a_loop(draft: Draft) -> list[str]:
    name, path = _class(draft), draft.next_member()
    each = [_instance(draft, name, f"{path}.{at}") for at in range(3)]
    called = draft.member(f"nn.ModuleList([{', '.join(each)}])")
    return [f"for part in {called}:", "    x = part(x)"]


def sequence(draft: Draft) -> list[str]:
    path = draft.next_member()
    each = [_instance(draft, _class(draft), f"{path}.{at}") for at in range(2)]
    called = draft.member(f"nn.Sequential({', '.join(each)})")
    return [f"x = {called}(x)"]


def module_with_hooks(draft: Draft) -> list[str]:
    name, path = _class(draft), draft.next_member()
    called = draft.member(_instance(draft, name, path))
    before = draft.function("part, given", ["x, = given", draft.line(), "return (x,)"])
    after = draft.function("part, given, x", [draft.line(), "return x"])
    first = f"before = {called}.register_forward_pre_hook({before})"
    last = f"after = {called}.register_forward_hook({after})"
    return [first, last, f"x = {called}(x)", "before.remove()", "after.remove()"]


def checkpointed_module(draft: Draft) -> list[str]:
    name, path = _class(draft), draft.next_member()
    called = draft.member(_instance(draft, name, path))
    is_reentrant = draft.rng.random() < 0.5
    return [f"x = checkpoint({called}, x, use_reentrant={is_reentrant})  {PASSES} aten::detach"]


BLOCKS = (
    module,
    module_used_twice,
    module_in_a_module,
    modules_in_a_loop,
    sequence,
    module_with_hooks,
    checkpointed_module,
)
