"""The text of a generated Triton kernel with the work of some of its lines taken out.

Loads and stores are masked out at run time by an argument that is zero, which the compiler cannot
know: so layouts, registers and all other code stay. An op passes its operand on, a reduction gives
a value derived from the index. What computes an address or a mask stays, so that no variant touches
memory that the kernel would not. What only the removed lines read is not loaded; values that others
computed for them are stored, masked out.

A program without an op still reads the operand that is passed on: its load is told apart, as a
store is, so that what stays without the op is what stays without the line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence, Set

from profiler_ext.inside.kernel_text import (
    LOADS,
    STORES,
    VALUE,
    Kernel,
    NotTakenOutError,
    Statement,
    calls,
    entry,
    in_order,
    is_neutral,
    is_reduction,
    mask_of,
    names_of_access,
    text_of,
)

NOTHING_TO_TAKE_OUT = "its lines compute addresses, masks or types only"
_ZERO = "knock_out_zero"  # the argument's name

_HELPERS = f"""
@triton.jit
def _knock_out_pass(value, like):
    value, like = tl.broadcast(value, like)
    return value.to(like.dtype)

@triton.jit
def _knock_out_distinct(value, like, {_ZERO}):
    return _knock_out_pass(value + {_ZERO}, like)

@triton.jit
def _knock_out_reduced(index, like):
    bits = (tl.reshape(index, like.shape).to(tl.int32) & 0x7FFFFF) | 0x3F800000
    return _knock_out_pass(bits.to(tl.float32, bitcast=True), like)

@triton.jit
def _knock_out_index(offset, low: tl.constexpr, count: tl.constexpr):
    return low + ((offset.to(tl.int32) * 1103515245) & 0x7FFFFFFF) % count

@triton.jit
def _knock_out_keep(pointer, value, {_ZERO}):
    value = value.to(tl.int32) if value.dtype.is_int() else value.to(tl.float32)
    tl.inline_asm_elementwise(
        "{{ .reg .pred p; setp.ne.b32 p, $2, 0; @p st.global.b32 [$3], $1; mov.b32 $0, $1; }}",
        "=r,r,r,l", [value, {_ZERO}, pointer.to(tl.int64)], tl.int32, is_pure=False, pack=1,
    )

"""


def whole_text(kernel: Kernel, config: Mapping[str, object], suffix: str) -> str:
    """Return a kernel's text with nothing taken out, of one launch configuration."""
    return _assembled(kernel, {}, config, suffix)


def text_without(
    kernel: Kernel,
    lines: Set[int],
    config: Mapping[str, object],
    suffix: str,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> str:
    """Return a kernel's text without the work of some lines.

    Args:
        kernel: the kernel.
        lines: numbers of the lines, from 1.
        config: the launch configuration, as Triton's ``Config`` has it.
        suffix: of the kernel's name, so that launches can be told apart.
        ranges: of arguments that hold integers, the least and the largest of them.

    Raises:
        NotTakenOutError: Nothing of these lines can be taken out.
    """
    return _assembled(kernel, _Removal(kernel, lines, ranges or {}).edits(), config, suffix)


def passed_loads(kernel: Kernel, lines: Set[int]) -> frozenset[int]:
    """Return which of some lines load what their ops pass on.

    They are all of the lines where the others change no more than types.
    """
    return _Removal(kernel, lines, {}).passed_loads()


def _assembled(
    kernel: Kernel,
    edits: Mapping[int, tuple[int, str]],
    config: Mapping[str, object],
    suffix: str,
) -> str:
    """Return the text with edits: by first line, the last line and what stands there."""
    lines = kernel.text.split("\n")
    decorator, function = kernel.decorator(), kernel.function
    changed = dict(edits)
    changed[decorator.lineno] = (decorator.end_lineno or 0, _fixed(decorator, config))
    changed[function.lineno] = (function.body[0].lineno - 1, _head(kernel))
    first = min(each.lineno for each in function.decorator_list)
    out, at = list[str](), 1
    while at <= len(lines):
        if at == first:
            out.append(_HELPERS)
        last, text = changed.get(at, (at, lines[at - 1]))
        out.append(text)
        at = last + 1
    return re.sub(rf"\b{re.escape(kernel.name)}\b", f"{kernel.name}{suffix}", "\n".join(out))


def _fixed(decorator: ast.Call, config: Mapping[str, object]) -> str:
    """Return the decorator, of one configuration, with the added argument."""
    meta = next(each.value for each in decorator.keywords if each.arg == "triton_meta")
    given = {each.arg: each.value for each in decorator.keywords}
    signature = entry(meta, "signature")
    assert isinstance(signature, ast.Dict)
    at = _added_at([text_of(value) for value in signature.values])
    signature.keys.insert(at, ast.Constant(_ZERO))
    signature.values.insert(at, ast.Constant("i32"))
    inductor = ast.unparse(given["inductor_meta"]) if "inductor_meta" in given else "{}"
    text = (
        f"@triton_heuristics.fixed_config({dict(config)!r}, filename=__file__, "
        f"triton_meta={ast.unparse(meta)}, inductor_meta={{**{inductor}, "
        "'coordinate_descent_tuning': False, 'dynamic_scale_rblock': False, "
        "'combo_tuning_groups': None})"
    )
    del signature.keys[at], signature.values[at]
    return text


def _added_at(kinds: Sequence[str]) -> int:
    """Return the place of the added argument: after the last that is no constant."""
    return max((at + 1 for at, kind in enumerate(kinds) if kind != "constexpr"), default=0)


def _head(kernel: Kernel) -> str:
    at = _added_at([str(kind) for kind in kernel.signature().values()])
    arguments = [ast.unparse(each) for each in kernel.function.args.args]
    arguments.insert(at, _ZERO)
    return f"def {kernel.name}({', '.join(arguments)}):"


class _Removal:
    """The edits that take lines out of a kernel."""

    def __init__(
        self, kernel: Kernel, lines: Set[int], ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        self._kernel, self._ranges = kernel, ranges
        self._own = [each for each in kernel.statements if each.node.lineno in lines]
        self._texts: dict[int, tuple[Statement, list[str]]] = {}
        self._dropped: dict[int, frozenset[str]] = {}  # reads that are gone, by line

    def edits(self) -> dict[int, tuple[int, str]]:
        """Return what stands at each changed statement; raises NotTakenOutError."""
        for each in self._own:
            self._take_out(each)
        if not self._texts:
            raise NotTakenOutError(NOTHING_TO_TAKE_OUT)
        self._keep_values()
        return {
            at: (each.node.end_lineno or at, _indented(each.node.col_offset, lines))
            for at, (each, lines) in self._texts.items()
        }

    def passed_loads(self) -> frozenset[int]:
        """Return the lines that load what stands for the values which other lines read."""
        loads = [each for each in self._own if _is_load(each)]
        if len(loads) == len(self._own):
            is_gather = any(self._kernel.is_address(each.targets) for each in loads)
            return frozenset() if is_gather else _lines_of(self._own)
        names = self._passed_on()
        passed = [each for each in loads if not names.isdisjoint(each.targets)]
        rest = [each for each in self._own if each not in passed]
        is_whole = passed and all(each.value and is_neutral(each.value) for each in rest)
        return _lines_of(self._own if is_whole else passed)

    def _passed_on(self) -> set[str]:
        """The variables that stand for a value, in the variant, where other lines read it."""
        others = (each for each in self._kernel.statements if each not in self._own)
        waiting, passed = {name for each in others for name in each.reads}, set[str]()
        seen = set[str]()
        while waiting:
            name = waiting.pop()
            seen.add(name)
            makers = (each for each in self._own if name in each.targets)
            operands = {operand for each in makers for operand in self._operands_passed(each)}
            passed |= operands
            waiting |= operands - seen
        return passed

    def _operands_passed(self, each: Statement) -> list[str]:
        """Return what a statement passes on; nothing where it has its own value in the variant."""
        is_own = each.value is None or _is_load(each) or is_reduction(each.value)
        if is_own or self._kernel.is_address(each.targets):
            return []
        operand = self._operand(each, self._kernel.carried(each))
        return [] if operand is None else [operand]

    def _take_out(self, each: Statement) -> None:
        value = each.value
        if value is None:
            return
        if isinstance(each.node, ast.Expr):
            self._take_out_call(each, value)
        elif _is_load(each):
            self._take_out_load(each)
        elif each.targets and not self._kernel.is_address(each.targets) and not is_neutral(value):
            self._take_out_op(each, value)

    def _take_out_call(self, each: Statement, value: ast.expr) -> None:
        """Mask a store out, and leave an assertion out."""
        if store := next(calls(value, STORES), None):
            condition = _never(store)
            others = [k for k in store.keywords if k.arg != "mask"]
            words = [*map(ast.unparse, store.args[:2]), condition, *map(ast.unparse, others)]
            self._change(each, [f"{ast.unparse(store.func)}({', '.join(words)})"], frozenset())
        elif next(calls(value, frozenset({"device_assert"})), None):
            self._change(each, ["pass"], each.reads)

    def _take_out_load(self, each: Statement) -> None:
        """Mask loads out; their values are then others, which the compiler does not know."""
        assert each.value is not None
        masking = _Masking(self._replacements(each))
        value = masking.visit(ast.parse(ast.unparse(each.value), mode="eval").body)
        if masking.count:
            self._change(each, [f"{', '.join(each.targets)} = {ast.unparse(value)}"], frozenset())

    def _replacements(self, each: Statement) -> Callable[[str, str], str | None]:
        """Return what gives the value in the place of a load, by its pointer and its offset.

        An address that depends on it has to stay within what the kernel touches. It is spread
        over that only where such an access stays, as this costs arithmetic.
        """
        is_address = self._kernel.is_address(each.targets)
        is_accessed = is_address and not self._standing().isdisjoint(each.targets)

        def replacement(pointer: str, offset: str) -> str | None:
            if not is_address:
                return "1"
            if pointer not in self._ranges:
                return None
            low, high = self._ranges[pointer]
            if not is_accessed:
                return f"{low}"
            return f"_knock_out_index({offset} + {_ZERO}, {low}, {high - low + 1})"

        return replacement

    def _standing(self) -> set[str]:
        """The variables that the addresses and masks of accesses that stay are made of."""
        own = {each.node.lineno for each in self._own}
        names = {
            name
            for each, call in self._kernel.accesses()
            if each.node.lineno not in own or not self._is_masked_out(each, call)
            for name in names_of_access(call)
        }
        return self._kernel.read_by(names, {})

    def _is_masked_out(self, each: Statement, call: ast.Call) -> bool:
        """Tell whether an access of a removed line has something in its place."""
        is_value = isinstance(each.node, ast.Expr) or not self._kernel.is_address(each.targets)
        return is_value or _pointer_and_offset(call.args[0])[0] in self._ranges

    def _take_out_op(self, each: Statement, value: ast.expr) -> None:
        likes = [f"{self._like(each)}{at or ''}" for at in range(len(each.targets))]
        carried = self._kernel.carried(each)
        operand = self._operand(each, carried)
        if is_reduction(value):
            made = [f"_knock_out_reduced(xindex + {_ZERO}, {like})" for like in likes]
            self._assign(each, made, each.reads)
        elif carried and len(each.targets) == 1:
            return  # it adds to a partial value: one operation, which what replaces it would be
        elif carried and operand is not None:
            own = [name for name in in_order(value) if name in carried]
            if len(own) < len(likes):
                return
            passed = [f"{own[0]} + {operand}", *own[1 : len(likes)]]
            made = [f"_knock_out_pass({p}, {k})" for p, k in zip(passed, likes, strict=True)]
            self._assign(each, made, each.reads - {operand, *own})
        elif operand is not None:
            made = [self._passed(name, operand, like)
                    for name, like in zip(each.targets, likes, strict=True)]  # fmt: skip
            self._assign(each, made, each.reads - {operand})

    def _passed(self, target: str, operand: str, like: str) -> str:
        """Return an operand in the place of a value; one operation more where others would fold."""
        if self._kernel.folds(target, operand):
            return f"_knock_out_distinct({operand}, {like}, {_ZERO})"
        return f"_knock_out_pass({operand}, {like})"

    def _operand(self, each: Statement, carried: Set[str]) -> str | None:
        """Return the operand that varies with most indices.

        Of equal ones it is no condition, then none that the lines make: without them it is there.
        """
        assert each.value is not None
        made = {name for own in self._own for name in own.targets}
        choices = calls(each.value, frozenset({"where"}))
        conditions = {name for call in choices for name in in_order(call.args[0])}
        names = [
            name
            for name in in_order(each.value)
            if VALUE.match(name) and name not in carried and not self._kernel.is_constant(name)
        ]

        def preference(name: str) -> tuple[int, bool, bool]:
            indices = len(self._kernel.indices(name))
            return indices, name not in conditions, name not in made

        return max(names, key=preference, default=None)

    @staticmethod
    def _like(each: Statement) -> str:
        return f"knocked_out_{each.node.lineno}_"

    def _assign(self, each: Statement, made: Sequence[str], dropped: Set[str]) -> None:
        """Keep what a statement computed, which nothing reads, for its type and shape."""
        assert each.value is not None
        likes = ", ".join(f"{self._like(each)}{at or ''}" for at in range(len(made)))
        is_tuple = isinstance(each.node, ast.Assign) and isinstance(each.node.targets[0], ast.Tuple)
        lines = [f"{likes}{',' * is_tuple} = {ast.unparse(each.value)}"]
        lines += [f"{name} = {text}" for name, text in zip(each.targets, made, strict=True)]
        self._change(each, lines, dropped)

    def _change(self, each: Statement, lines: list[str], dropped: Set[str]) -> None:
        self._texts[each.node.lineno] = (each, lines)
        self._dropped[each.node.lineno] = frozenset(dropped)

    def _keep_values(self) -> None:
        """Store what only removed lines read, under a mask that is false.

        But what they load: a program without them does not, so the compiler removes the load.
        """
        if not self._kernel.pointers:
            return
        loaded = {name for each in self._own if _is_load(each) for name in each.targets}
        live = self._kernel.live(self._dropped)
        for at, names in sorted(self._dropped.items()):
            computed = self._computed_by_others(names - live, self._texts[at][0].loop)
            lost = [name for name in sorted(computed - live - loaded) if self._is_worth(name)]
            live |= self._kernel.read_by(lost, self._dropped)
            pointer = self._kernel.pointers[0]
            keep = [f"_knock_out_keep({pointer}, {name}, {_ZERO})" for name in lost]
            self._texts[at][1][:0] = keep

    def _computed_by_others(self, names: Set[str], loop: ast.For | None) -> set[str]:
        """Return variables, and for what the lines make of others, in the variant, these others.

        What a pass of a loop adds to stays itself: that it is computed keeps all passes.
        """
        waiting, seen, found = set(names), set[str](), set[str]()
        while waiting:
            name = waiting.pop()
            seen.add(name)
            makers = [each for each in self._kernel.statements if name in each.targets]
            if all(each in self._own and self._passes_on(each, loop) for each in makers):
                for each in makers:
                    reads = each.reads - self._dropped.get(each.node.lineno, frozenset())
                    waiting |= reads - seen
            else:
                found.add(name)
        return found

    def _passes_on(self, each: Statement, loop: ast.For | None) -> bool:
        """Tell whether a statement of this loop computes nothing of its own in the variant."""
        is_elsewhere = each.loop is not loop or bool(self._kernel.carried(each))
        if each.value is None or is_elsewhere or _is_load(each):
            return False
        return each.node.lineno in self._dropped or is_neutral(each.value)

    def _is_worth(self, name: str) -> bool:
        return bool(VALUE.match(name)) and not self._kernel.is_constant(name)


def _is_load(each: Statement) -> bool:
    return each.value is not None and next(calls(each.value, LOADS), None) is not None


def _lines_of(statements: Sequence[Statement]) -> frozenset[int]:
    return frozenset(
        line
        for each in statements
        for line in range(each.node.lineno, (each.node.end_lineno or each.node.lineno) + 1)
    )


def _never(call: ast.Call) -> str:
    """Return the mask of an access, and false at run time."""
    mask = mask_of(call)
    if mask is None or (isinstance(mask, ast.Constant) and mask.value is None):
        return f"{_ZERO} != 0"
    return f"({ast.unparse(mask)}) & ({_ZERO} != 0)"


class _Masking(ast.NodeTransformer):
    """Masks the loads of an expression out."""

    def __init__(self, replacement: Callable[[str, str], str | None]) -> None:
        self._replacement = replacement
        self.count = 0

    def visit_Call(self, call: ast.Call) -> ast.expr:
        self.generic_visit(call)
        if not any(each is call for each in calls(call, LOADS)):
            return call
        other = self._replacement(*_pointer_and_offset(call.args[0]))
        if other is None:
            return call
        self.count += 1
        kept = [each for each in call.keywords if each.arg not in ("mask", "other")]
        words = [ast.unparse(call.args[0]), _never(call), f"other={other}", *map(ast.unparse, kept)]
        return ast.parse(f"{ast.unparse(call.func)}({', '.join(words)})", mode="eval").body


def _pointer_and_offset(pointer: ast.expr) -> tuple[str, str]:
    if isinstance(pointer, ast.BinOp) and isinstance(pointer.left, ast.Name):
        return pointer.left.id, f"({ast.unparse(pointer.right)})"
    return ast.unparse(pointer), "tl.program_id(0)"


def _indented(columns: int, lines: Sequence[str]) -> str:
    return "\n".join(f"{' ' * columns}{each}" for each in lines)
