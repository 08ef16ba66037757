"""The blocks of functions: calls in calls, loops, recursion, generators, exceptions."""

from __future__ import annotations

from verification.eager_oracle.draft import Draft, indented, rand


def plain_lines(draft: Draft) -> list[str]:
    return draft.lines()


def call(draft: Draft) -> list[str]:
    name = draft.function("x", [*draft.lines(), "return x"])
    return [f"x = {name}(x)"]


def nested_calls_on_one_line(draft: Draft) -> list[str]:
    inner = draft.function("x", [*draft.lines(2), "return x"])
    outer = draft.function("x", [*draft.lines(2), f"return {inner}(x)"])
    around, mark = draft.work(f"{outer}({inner}(x))")
    return [f"x = {around}{mark}"]


def work_in_a_return(draft: Draft) -> list[str]:
    expression, mark = draft.work("x")
    name = draft.function("x", [f"return {expression}{mark}"])
    return [f"x = {name}(x)", draft.line()]


def several_statements(draft: Draft) -> list[str]:
    inner = draft.function("x", [*draft.lines(2), "return x"])
    first, mark = draft.work("x")
    return [f"y = {inner}(x); x = {first}; x = {inner}(x) if y is None else x{mark}"]


def used_twice(draft: Draft) -> list[str]:
    """A value that two lines use: the engine adds up what they give it."""
    first, second = draft.line("x", to="a"), draft.line("x", to="b")
    together, mark = draft.work("a")
    other, its_mark = draft.work("b")
    return [first, second, f"a = {together}{mark}", f"b = {other}{its_mark}", *_joined(draft)]


def _joined(draft: Draft) -> list[str]:
    own, made = draft.number(), draft.number()
    names = [draft.weight(rand(1, own)) for _ in range(2)] + [draft.weight(rand(made, own))]
    one, other, out = names
    taken = f"(a * {one}).sum(0, keepdim=True) + (b * {other}).sum(0, keepdim=True)"
    return [f"x = ({out} * ({taken})).sum(1, keepdim=True)  #@ {made} {own}"]


def loop(draft: Draft) -> list[str]:
    body = draft.lines(2)
    return ["for _ in range(2):", *indented(body)]


def loop_with_else(draft: Draft) -> list[str]:
    return [
        "rounds = 0",
        "while (rounds := rounds + 1) < 3:",
        *indented([draft.line(), "if rounds == 2:", "    continue", draft.line()]),
        "else:",
        *indented([draft.line()]),
    ]


def recursion(draft: Draft) -> list[str]:
    name = draft.name("recursive_")
    body = ["if not depth:", "    return x", draft.line(), f"x = {name}(x, depth - 1)"]
    draft.add("\n".join([f"def {name}(x, depth):", *indented([*body, draft.line(), "return x"])]))
    return [f"x = {name}(x, 2)"]


def generator(draft: Draft) -> list[str]:
    inner = draft.function("x", [draft.line(), "yield x", draft.line(), "yield x"])
    outer = draft.function("x", [f"yield from {inner}(x)", draft.line(), "yield x"])
    return [f"for x in {outer}(x):", *indented([draft.line()])]


def generator_that_is_sent_to(draft: Draft) -> list[str]:
    body = ["while True:", *indented(["x = yield x", draft.line()])]
    name = draft.function("x", body)
    steps = [f"sent = {name}(x)", "next(sent)", "for _ in range(2):"]
    return [*steps, *indented([draft.line(), "x = sent.send(x)"]), "sent.close()"]


def coroutines(draft: Draft) -> list[str]:
    name = draft.name("coroutine_")
    body = [draft.line(), "await asyncio.sleep(0)", draft.line(), "return x"]
    draft.add("\n".join([f"async def {name}(x):", *indented(body)]))
    both = draft.name("together_")
    gathered = f"a, b = await asyncio.gather({name}(x), {name}(x))"
    body = [gathered, *_joined(draft), "kept.append(x)"]  # a result would be printed by asyncio
    draft.add("\n".join([f"async def {both}(x, kept):", *indented(body)]))
    return ["kept = []", f"asyncio.run({both}(x, kept))", "x = kept.pop()"]


def decorated(draft: Draft) -> list[str]:
    name = draft.name("decorator_")
    wrapper = ["@functools.wraps(function)", "def wrapper(x):"]
    wrapper += indented([draft.line(), "x = function(x)", draft.line(), "return x"])
    draft.add("\n".join([f"def {name}(function):", *indented([*wrapper, "return wrapper"])]))
    function = draft.function("x", [draft.line(), "return x"], decorator=f"@{name}")
    return [f"x = {function}(x)"]


def raised_in_the_frame(draft: Draft) -> list[str]:
    body = [draft.line(), "raise ValueError", draft.line()]
    caught = ["try:", *indented(body), "except ValueError:", *indented([draft.line()])]
    return [*caught, "finally:", *indented([draft.line()])]


def raised_through_calls(draft: Draft) -> list[str]:
    inner = draft.function("x", [draft.line(to="y"), "raise KeyError(y)"])
    outer = draft.function("x", [f"x = {inner}(x)", draft.line(), "return x"])
    caught = "except KeyError as error:"
    body = [f"x = {outer}(x)", draft.line()]
    return ["try:", *indented(body), caught, *indented(["x = error.args[0]", draft.line()])]


def raised_into_a_generator(draft: Draft) -> list[str]:
    caught = ["try:", "    yield x", "except ValueError:", *indented([draft.line(), "yield x"])]
    name = draft.function("x", [draft.line(), *caught])
    return [f"thrown = {name}(x)", "x = next(thrown)", "x = thrown.throw(ValueError())"]


def context(draft: Draft) -> list[str]:
    body = [draft.line(), "yield x", f"with torch.no_grad(): {draft.line()}"]
    name = draft.function("x", body, decorator="@contextlib.contextmanager")
    return [f"with {name}(x) as x:", *indented([draft.line()])]


def comprehension(draft: Draft) -> list[str]:
    expression, mark = draft.work("x")
    listed = f"values = [{expression} for _ in range(2)]{mark}"
    return [listed, "a, b = values", *_joined(draft)]


def expression_of_a_generator(draft: Draft) -> list[str]:
    expression, mark = draft.work("x")
    return [f"a, b = ({expression} for _ in range(2)){mark}", *_joined(draft)]


def mapped_lambda(draft: Draft) -> list[str]:
    expression, mark = draft.work("v")
    first = f"function = lambda v: {expression}{mark}"
    return [first, "a, b = map(function, [x, x])", *_joined(draft)]


def closure(draft: Draft) -> list[str]:
    body = ["def inner():", *indented(["nonlocal x", draft.line()]), "inner()", draft.line()]
    name = draft.function("x", [*body, "return x"])
    return [f"x = functools.partial({name}, x)()"]


def called_object(draft: Draft) -> list[str]:
    name = draft.name("Object")
    call = ["def __call__(self, x):", *indented([draft.line(), "return self.shared(x)"])]
    shared = ["@staticmethod", "def shared(x):", *indented([draft.line(), "return x"])]
    draft.add("\n".join([f"class {name}:", *indented([*call, "", *shared])]))
    return [f"x = {name}()(x)"]


def over_several_lines(draft: Draft) -> list[str]:
    """Calls on lines of their own, of which the outer runs when the inner ones are over."""
    inner = draft.function("x", [draft.line(), "return x"])
    (first, its_mark), name = draft.work("a"), draft.function("a", ["return a"])
    taken = [f"x = {name}(", f"    {inner}(", "        x", "    )", ")"]
    return [*taken, f"x = (lambda a: {first})({its_mark}", "    x", ")"]


BLOCKS = (
    plain_lines,
    call,
    nested_calls_on_one_line,
    work_in_a_return,
    several_statements,
    used_twice,
    loop,
    loop_with_else,
    recursion,
    generator,
    generator_that_is_sent_to,
    coroutines,
    decorated,
    raised_in_the_frame,
    raised_through_calls,
    raised_into_a_generator,
    context,
    comprehension,
    expression_of_a_generator,
    mapped_lambda,
    closure,
    called_object,
    over_several_lines,
)
