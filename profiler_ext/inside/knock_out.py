"""The text of a generated Triton kernel with the work of some of its lines taken out.

Loads and stores are masked out at run time by an argument that is zero, which the compiler cannot
know: so layouts, registers and all other code stay. An op passes its operand on, a reduction gives
a value derived from the index. What computes an address or a mask stays, so that no variant touches
memory that the kernel would not. Values that only the removed lines read are stored, masked out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

_LOADS = frozenset({"load"})
_STORES = frozenset({"store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg"})
_REDUCTIONS = frozenset(
    {
        *("sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum", "prod", "any", "all"),
        *("max2", "min2", "max_with_index", "min_with_index", "welford", "promote_to_tensor"),
        *("online_softmax_reduce", "bucketize_binary_search"),
    }
)
_VARYING = frozenset({"load", "arange", "program_id", "rand", "randn", "randint64"})
_NEUTRAL = frozenset({"broadcast_to", "full", "zeros", "expand_dims", "reshape", "arange"})
_VALUE = re.compile(r"_?tmp\d")  # as Inductor names what it computes
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

_STORE_LINE = re.compile(rf"\s*tl\.(?:{'|'.join(sorted(_STORES))})\(")


def is_store(line: str) -> bool:
    """Tell whether a line of a kernel writes memory."""
    return _STORE_LINE.match(line) is not None


class NotTakenOutError(Exception):
    """The reason why lines cannot be taken out of a kernel."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement of a kernel, with what it reads and assigns."""

    node: ast.stmt
    reads: frozenset[str]
    targets: tuple[str, ...]
    loop: ast.For | None

    @property
    def value(self) -> ast.expr | None:
        """What it assigns or calls."""
        return self.node.value if isinstance(self.node, ast.Assign | ast.Expr) else None


class Kernel:
    """A generated kernel, parsed."""

    def __init__(self, text: str, name: str) -> None:
        """Parse the text of the module in which the kernel is; raises NotTakenOutError."""
        self.text, self.name = text, name
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise NotTakenOutError(f"its text is no Python: {error}") from error
        functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
        self._function = next((each for each in functions if each.name == name), None)
        if self._function is None:
            raise NotTakenOutError(f"its text has no function {name}")
        self.statements = tuple(_statements(self._function.body, None))
        self._constants = self._constant_names()
        self._addresses = self._address_names()
        self.pointers = tuple(
            each for each, kind in self._signature().items() if str(kind).startswith("*")
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the function's arguments, in order."""
        assert self._function is not None
        return tuple(each.arg for each in self._function.args.args)

    def whole(self, config: Mapping[str, object], suffix: str) -> str:
        """Return the text with nothing taken out, of one launch configuration."""
        return self._assembled({}, config, suffix)

    def without(
        self,
        lines: Set[int],
        config: Mapping[str, object],
        suffix: str,
        ranges: Mapping[str, tuple[int, int]] | None = None,
    ) -> str:
        """Return the text without the work of some lines.

        Args:
            lines: numbers of the lines, from 1.
            config: the launch configuration, as Triton's ``Config`` has it.
            suffix: of the kernel's name, so that launches can be told apart.
            ranges: of arguments that hold integers, the least and the largest of them.

        Raises:
            NotTakenOutError: Nothing of these lines can be taken out.
        """
        return self._assembled(_Removal(self, lines, ranges or {}).edits(), config, suffix)

    def is_address(self, names: Iterable[str]) -> bool:
        """Tell whether an address or a mask of an access depends on a variable."""
        return not self._addresses.isdisjoint(names)

    def is_constant(self, name: str) -> bool:
        """Tell whether a variable holds a constant."""
        return name in self._constants

    def carried(self, statement: _Statement) -> frozenset[str]:
        """Return the variables that a statement reads from the pass of its loop before."""
        if statement.loop is None:
            return frozenset()
        own = [each for each in self.statements if each.loop is statement.loop]
        at = own.index(statement)
        before = {name for each in own[:at] for name in each.targets}
        later = {name for each in own[at:] for name in each.targets}
        return frozenset((statement.reads & later) - before)

    def live(self, dropped: Mapping[int, Set[str]]) -> set[str]:
        """Return the variables that a store depends on, if some lines do not read some."""
        roots = {
            name
            for each in self.statements
            if isinstance(each.node, ast.Expr)
            for name in each.reads - dropped.get(each.node.lineno, frozenset())
        }
        return self.read_by(roots, dropped)

    def read_by(self, names: Iterable[str], dropped: Mapping[int, Set[str]]) -> set[str]:
        """Return variables with those that they are made of."""
        found = set(names)
        while True:
            read = {
                name
                for each in self.statements
                if not found.isdisjoint(each.targets)
                for name in each.reads - dropped.get(each.node.lineno, frozenset())
            }
            if read <= found:
                return found
            found |= read

    def folds(self, target: str, operand: str) -> bool:
        """Tell whether other statements would fold if one variable were equal to another.

        ``x - exp(x)`` becomes ``x - x``, and of ``sin(x)`` and ``sin(exp(x))`` one is left.
        """
        equal = {target: operand}
        known = dict[str, str]()
        for each in self.statements:
            if each.value is None or target in each.targets:
                continue
            if target in each.reads and operand in each.reads:
                return True
            text = _renamed(each.value, equal)
            if len(each.targets) == 1 and not is_reduction(each.value):
                first = known.setdefault(text, each.targets[0])
                if first != each.targets[0] and not each.reads.isdisjoint(equal):
                    return True
        return False

    def indices(self, name: str) -> frozenset[str]:
        """Return the index variables that a value varies with."""
        return self._indices(name, frozenset())

    def _indices(self, name: str, seen: frozenset[str]) -> frozenset[str]:
        if name in seen:
            return frozenset()
        found = set[str]()
        for each in self.statements:
            if name in each.targets and each.value is not None:
                if not _VALUE.match(name) and name.endswith("index"):
                    found.add(name)
                inner = {n for read in each.reads for n in self._indices(read, seen | {name})}
                is_reduced = _VALUE.match(name) and is_reduction(each.value)
                found |= {n for n in inner if not n.startswith("r")} if is_reduced else inner
        return frozenset(found)

    def _constant_names(self) -> frozenset[str]:
        assigned = {name for each in self.statements for name in each.targets}
        varying = {name for name, kind in self._signature().items() if kind != "constexpr"}
        varying = (varying - assigned) | {
            name for each in self.statements if each.loop is not None
            for name in _names(each.loop.target)
        }  # fmt: skip
        while True:
            added = {
                name
                for each in self.statements
                if not varying.isdisjoint(each.reads) or _varies(each.value)
                for name in each.targets
            }
            if added <= varying:
                return frozenset(assigned - varying)
            varying |= added

    def accesses(self) -> Iterator[tuple[_Statement, ast.Call]]:
        """Yield the loads and stores, each with its statement."""
        for each in self.statements:
            if each.value is not None:
                yield from ((each, call) for call in _calls(each.value, _LOADS | _STORES))

    def _address_names(self) -> frozenset[str]:
        names = {name for _, call in self.accesses() for name in _names_of_access(call)}
        return frozenset(self.read_by(names, {}))

    def _signature(self) -> dict[str, object]:
        for keyword in self._decorator().keywords:
            if keyword.arg == "triton_meta":
                found = _entry(keyword.value, "signature")
                if isinstance(found, ast.Dict):
                    return {_text(key): _text(value) for key, value in
                            zip(found.keys, found.values, strict=True)}  # fmt: skip
        raise NotTakenOutError("its signature is not in its text")

    def _decorator(self) -> ast.Call:
        assert self._function is not None
        for each in self._function.decorator_list:
            if isinstance(each, ast.Call) and any(k.arg == "triton_meta" for k in each.keywords):
                return each
        raise NotTakenOutError("it is no kernel that Inductor generated")

    def _assembled(
        self, edits: Mapping[int, tuple[int, str]], config: Mapping[str, object], suffix: str
    ) -> str:
        """Return the text with edits: by first line, the last line and what stands there."""
        lines = self.text.split("\n")
        decorator, function = self._decorator(), self._function
        assert function is not None
        changed = dict(edits)
        changed[decorator.lineno] = (decorator.end_lineno or 0, self._fixed(decorator, config))
        changed[function.lineno] = (function.body[0].lineno - 1, self._head(function))
        first = min(each.lineno for each in function.decorator_list)
        out, at = list[str](), 1
        while at <= len(lines):
            if at == first:
                out.append(_HELPERS)
            last, text = changed.get(at, (at, lines[at - 1]))
            out.append(text)
            at = last + 1
        return re.sub(rf"\b{re.escape(self.name)}\b", f"{self.name}{suffix}", "\n".join(out))

    def _fixed(self, decorator: ast.Call, config: Mapping[str, object]) -> str:
        """Return the decorator, of one configuration, with the added argument."""
        meta = next(each.value for each in decorator.keywords if each.arg == "triton_meta")
        given = {each.arg: each.value for each in decorator.keywords}
        signature = _entry(meta, "signature")
        assert isinstance(signature, ast.Dict)
        kinds = [_text(value) for value in signature.values]
        at = self._added_at(kinds)
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

    @staticmethod
    def _added_at(kinds: Sequence[str]) -> int:
        """Return the place of the added argument: after the last that is no constant."""
        return max((at + 1 for at, kind in enumerate(kinds) if kind != "constexpr"), default=0)

    def _head(self, function: ast.FunctionDef) -> str:
        at = self._added_at([str(kind) for kind in self._signature().values()])
        arguments = [ast.unparse(each) for each in function.args.args]
        arguments.insert(at, _ZERO)
        return f"def {function.name}({', '.join(arguments)}):"


class _Removal:
    """The edits that take lines out of a kernel."""

    def __init__(
        self, kernel: Kernel, lines: Set[int], ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        self._kernel, self._ranges = kernel, ranges
        self._own = [each for each in kernel.statements if each.node.lineno in lines]
        self._texts: dict[int, tuple[_Statement, list[str]]] = {}
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

    def _take_out(self, each: _Statement) -> None:
        value = each.value
        if value is None:
            return
        if isinstance(each.node, ast.Expr):
            self._take_out_call(each, value)
        elif next(_calls(value, _LOADS), None):
            self._take_out_load(each)
        elif each.targets and not self._kernel.is_address(each.targets) and not _is_neutral(value):
            self._take_out_op(each, value)

    def _take_out_call(self, each: _Statement, value: ast.expr) -> None:
        """Mask a store out, and leave an assertion out."""
        if store := next(_calls(value, _STORES), None):
            condition = _never(store)
            others = [k for k in store.keywords if k.arg != "mask"]
            words = [*map(ast.unparse, store.args[:2]), condition, *map(ast.unparse, others)]
            self._change(each, [f"{ast.unparse(store.func)}({', '.join(words)})"], frozenset())
        elif next(_calls(value, frozenset({"device_assert"})), None):
            self._change(each, ["pass"], each.reads)

    def _take_out_load(self, each: _Statement) -> None:
        """Mask loads out; their values are then others, which the compiler does not know."""
        assert each.value is not None
        masking = _Masking(self._replacements(each))
        value = masking.visit(ast.parse(ast.unparse(each.value), mode="eval").body)
        if masking.count:
            self._change(each, [f"{', '.join(each.targets)} = {ast.unparse(value)}"], frozenset())

    def _replacements(self, each: _Statement) -> Callable[[str, str], str | None]:
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
            for name in _names_of_access(call)
        }
        return self._kernel.read_by(names, {})

    def _is_masked_out(self, each: _Statement, call: ast.Call) -> bool:
        """Tell whether an access of a removed line has something in its place."""
        is_value = isinstance(each.node, ast.Expr) or not self._kernel.is_address(each.targets)
        return is_value or _pointer_and_offset(call.args[0])[0] in self._ranges

    def _take_out_op(self, each: _Statement, value: ast.expr) -> None:
        likes = [f"{self._like(each)}{at or ''}" for at in range(len(each.targets))]
        carried = self._kernel.carried(each)
        operand = self._operand(each, carried)
        if is_reduction(value):
            made = [f"_knock_out_reduced(xindex + {_ZERO}, {like})" for like in likes]
            self._assign(each, made, each.reads)
        elif carried and len(each.targets) == 1:
            return  # it adds to a partial value: one operation, which what replaces it would be
        elif carried and operand is not None:
            own = [name for name in _in_order(value) if name in carried]
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

    def _operand(self, each: _Statement, carried: Set[str]) -> str | None:
        """Return the operand that varies with most indices; of equal ones the first."""
        assert each.value is not None
        names = [
            name
            for name in _in_order(each.value)
            if _VALUE.match(name) and name not in carried and not self._kernel.is_constant(name)
        ]
        return max(names, key=lambda name: len(self._kernel.indices(name)), default=None)

    @staticmethod
    def _like(each: _Statement) -> str:
        return f"knocked_out_{each.node.lineno}_"

    def _assign(self, each: _Statement, made: Sequence[str], dropped: Set[str]) -> None:
        """Keep what a statement computed, which nothing reads, for its type and shape."""
        assert each.value is not None
        likes = ", ".join(f"{self._like(each)}{at or ''}" for at in range(len(made)))
        is_tuple = isinstance(each.node, ast.Assign) and isinstance(each.node.targets[0], ast.Tuple)
        lines = [f"{likes}{',' * is_tuple} = {ast.unparse(each.value)}"]
        lines += [f"{name} = {text}" for name, text in zip(each.targets, made, strict=True)]
        self._change(each, lines, dropped)

    def _change(self, each: _Statement, lines: list[str], dropped: Set[str]) -> None:
        self._texts[each.node.lineno] = (each, lines)
        self._dropped[each.node.lineno] = frozenset(dropped)

    def _keep_values(self) -> None:
        """Store what only removed lines read, under a mask that is false."""
        if not self._kernel.pointers:
            return
        live = self._kernel.live(self._dropped)
        for at, names in sorted(self._dropped.items()):
            lost = [name for name in sorted(names - live) if self._is_worth(name)]
            live |= self._kernel.read_by(lost, self._dropped)
            pointer = self._kernel.pointers[0]
            keep = [f"_knock_out_keep({pointer}, {name}, {_ZERO})" for name in lost]
            self._texts[at][1][:0] = keep

    def _is_worth(self, name: str) -> bool:
        return bool(_VALUE.match(name)) and not self._kernel.is_constant(name)


def _renamed(value: ast.expr, names: Mapping[str, str]) -> str:
    """Return the text of an expression with other names for its variables."""
    return re.sub(r"\w+", lambda match: names.get(match[0], match[0]), ast.unparse(value))


def _statements(body: Sequence[ast.stmt], loop: ast.For | None) -> Iterator[_Statement]:
    for node in body:
        if isinstance(node, ast.For):
            yield from _statements(node.body, node)
        elif isinstance(node, ast.If | ast.While | ast.With):
            yield from _statements(node.body, loop)
            yield from _statements(getattr(node, "orelse", []), loop)
        else:
            value = getattr(node, "value", None)
            reads = _names(value) if isinstance(value, ast.expr) else frozenset()
            yield _Statement(node, reads, _targets(node), loop)


def _targets(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.Assign):
        first = node.targets[0]
        names = first.elts if isinstance(first, ast.Tuple) else [first]
        return tuple(each.id for each in names if isinstance(each, ast.Name))
    if isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Name):
        return (node.target.id,)
    return ()


def _varies(value: ast.expr | None) -> bool:
    return value is not None and next(_calls(value, _VARYING), None) is not None


def is_reduction(value: ast.expr) -> bool:
    """Tell whether an expression reduces a block to fewer elements."""
    return next(_calls(value, _REDUCTIONS), None) is not None


def _is_neutral(value: ast.expr) -> bool:
    """Tell whether an expression changes only a value's shape or type, or is a constant."""
    if isinstance(value, ast.Name | ast.Constant | ast.Subscript):
        return not (isinstance(value, ast.Subscript) and is_reduction(value))
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "to":
            return _is_neutral(value.func.value)
        return value.func.attr in _NEUTRAL
    return False


def _calls(value: ast.expr, names: Set[str]) -> Iterator[ast.Call]:
    """Yield the calls of functions of Triton's by these names."""
    for each in ast.walk(value):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            owner = each.func.value
            is_of_triton = isinstance(owner, ast.Name) and owner.id in ("tl", "triton_helpers")
            if is_of_triton and each.func.attr in names:
                yield each


def _names_of_access(call: ast.Call) -> frozenset[str]:
    """Return the variables of the address and the mask of an access."""
    return _names(call.args[0]) | _names(_mask_of(call) or call.args[0])


def _mask_of(call: ast.Call) -> ast.expr | None:
    """Return the mask of an access."""
    given = next((each.value for each in call.keywords if each.arg == "mask"), None)
    assert isinstance(call.func, ast.Attribute)
    at = 1 if call.func.attr in _LOADS else 2
    return call.args[at] if given is None and len(call.args) > at else given


def _never(call: ast.Call) -> str:
    """Return the mask of an access, and false at run time."""
    mask = _mask_of(call)
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
        if not any(each is call for each in _calls(call, _LOADS)):
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


def _names(value: ast.expr) -> frozenset[str]:
    return frozenset(_in_order(value))


def _in_order(value: ast.expr) -> list[str]:
    """Return the variables of an expression, in the order of its text."""
    names = [each for each in ast.walk(value) if isinstance(each, ast.Name)]
    names.sort(key=lambda each: (each.lineno, each.col_offset))
    return list(dict.fromkeys(each.id for each in names))


def _entry(value: ast.expr, key: str) -> ast.expr | None:
    """Return the entry of a dictionary's text."""
    if not isinstance(value, ast.Dict):
        return None
    pairs = zip(value.keys, value.values, strict=True)
    return next((each for name, each in pairs if name is not None and _text(name) == key), None)


def _text(value: ast.expr | None) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _indented(columns: int, lines: Sequence[str]) -> str:
    return "\n".join(f"{' ' * columns}{each}" for each in lines)
