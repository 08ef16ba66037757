"""A generated Triton kernel, parsed: what each statement reads and assigns, loads and stores."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

LOADS = frozenset({"load"})
STORES = frozenset({"store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg"})
_REDUCTIONS = frozenset(
    {
        *("sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum", "prod", "any", "all"),
        *("max2", "min2", "max_with_index", "min_with_index", "welford", "promote_to_tensor"),
        *("online_softmax_reduce", "bucketize_binary_search"),
    }
)
_VARYING = frozenset({"load", "arange", "program_id", "rand", "randn", "randint64"})
_NEUTRAL = frozenset({"broadcast_to", "full", "zeros", "expand_dims", "reshape", "arange"})
VALUE = re.compile(r"_?tmp\d")  # as Inductor names what it computes
_STORE_LINE = re.compile(rf"\s*tl\.(?:{'|'.join(sorted(STORES))})\(")


def is_store(line: str) -> bool:
    """Tell whether a line of a kernel writes memory."""
    return _STORE_LINE.match(line) is not None


class NotTakenOutError(Exception):
    """The reason why lines cannot be taken out of a kernel."""


@dataclass(frozen=True, slots=True)
class Statement:
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
        function = next((each for each in functions if each.name == name), None)
        if function is None:
            raise NotTakenOutError(f"its text has no function {name}")
        self.function = function
        self.statements = tuple(_statements(function.body, None))
        self._constants = self._constant_names()
        self._addresses = self._address_names()
        self._indices = self._index_names()
        self.pointers = tuple(
            each for each, kind in self.signature().items() if str(kind).startswith("*")
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the function's arguments, in order."""
        return tuple(each.arg for each in self.function.args.args)

    def is_address(self, names: Iterable[str]) -> bool:
        """Tell whether an address or a mask of an access depends on a variable."""
        return not self._addresses.isdisjoint(names)

    def is_constant(self, name: str) -> bool:
        """Tell whether a variable holds a constant."""
        return name in self._constants

    def carried(self, statement: Statement) -> frozenset[str]:
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
        return self._indices.get(name, frozenset())

    def _index_names(self) -> dict[str, frozenset[str]]:
        """The index variables that each variable varies with."""
        found = dict[str, frozenset[str]]()
        while True:
            before = dict(found)
            for each in self.statements:
                if each.value is None:
                    continue
                read = {index for name in each.reads for index in found.get(name, ())}
                is_reduced = is_reduction(each.value)
                for name in each.targets:
                    is_value = VALUE.match(name) is not None
                    own = {name} if not is_value and name.endswith("index") else set[str]()
                    gone = {index for index in read if is_value and is_reduced and index[0] == "r"}
                    found[name] = found.get(name, frozenset()) | own | (read - gone)
            if found == before:
                return found

    def _constant_names(self) -> frozenset[str]:
        assigned = {name for each in self.statements for name in each.targets}
        varying = {name for name, kind in self.signature().items() if kind != "constexpr"}
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

    def accesses(self) -> Iterator[tuple[Statement, ast.Call]]:
        """Yield the loads and stores, each with its statement."""
        for each in self.statements:
            if each.value is not None:
                yield from ((each, call) for call in calls(each.value, LOADS | STORES))

    def _address_names(self) -> frozenset[str]:
        names = {name for _, call in self.accesses() for name in names_of_access(call)}
        return frozenset(self.read_by(names, {}))

    def signature(self) -> dict[str, object]:
        """Return the type of each argument, as Triton names it."""
        for keyword in self.decorator().keywords:
            if keyword.arg == "triton_meta":
                found = entry(keyword.value, "signature")
                if isinstance(found, ast.Dict):
                    return {text_of(key): text_of(value) for key, value in
                            zip(found.keys, found.values, strict=True)}  # fmt: skip
        raise NotTakenOutError("its signature is not in its text")

    def decorator(self) -> ast.Call:
        """Return what says how it is launched; raises NotTakenOutError where there is none."""
        for each in self.function.decorator_list:
            if isinstance(each, ast.Call) and any(k.arg == "triton_meta" for k in each.keywords):
                return each
        raise NotTakenOutError("it is no kernel that Inductor generated")


def _renamed(value: ast.expr, names: Mapping[str, str]) -> str:
    """Return the text of an expression with other names for its variables."""
    return re.sub(r"\w+", lambda match: names.get(match[0], match[0]), ast.unparse(value))


def _statements(body: Sequence[ast.stmt], loop: ast.For | None) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, ast.For):
            yield from _statements(node.body, node)
        elif isinstance(node, ast.If | ast.While | ast.With):
            yield from _statements(node.body, loop)
            yield from _statements(getattr(node, "orelse", []), loop)
        else:
            value = getattr(node, "value", None)
            reads = _names(value) if isinstance(value, ast.expr) else frozenset()
            yield Statement(node, reads, _targets(node), loop)


def _targets(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.Assign):
        first = node.targets[0]
        names = first.elts if isinstance(first, ast.Tuple) else [first]
        return tuple(each.id for each in names if isinstance(each, ast.Name))
    if isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Name):
        return (node.target.id,)
    return ()


def _varies(value: ast.expr | None) -> bool:
    return value is not None and next(calls(value, _VARYING), None) is not None


def is_reduction(value: ast.expr) -> bool:
    """Tell whether an expression reduces a block to fewer elements."""
    return next(calls(value, _REDUCTIONS), None) is not None


def is_neutral(value: ast.expr) -> bool:
    """Tell whether an expression changes only a value's shape or type, or is a constant."""
    if isinstance(value, ast.Name | ast.Constant | ast.Subscript):
        return not (isinstance(value, ast.Subscript) and is_reduction(value))
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "to":
            return is_neutral(value.func.value)
        return value.func.attr in _NEUTRAL
    return False


def calls(value: ast.expr, names: Set[str]) -> Iterator[ast.Call]:
    """Yield the calls of functions of Triton's by these names."""
    for each in ast.walk(value):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            owner = each.func.value
            is_of_triton = isinstance(owner, ast.Name) and owner.id in ("tl", "triton_helpers")
            if is_of_triton and each.func.attr in names:
                yield each


def names_of_access(call: ast.Call) -> frozenset[str]:
    """Return the variables of the address and the mask of an access."""
    return _names(call.args[0]) | _names(mask_of(call) or call.args[0])


def mask_of(call: ast.Call) -> ast.expr | None:
    """Return the mask of an access."""
    given = next((each.value for each in call.keywords if each.arg == "mask"), None)
    assert isinstance(call.func, ast.Attribute)
    at = 1 if call.func.attr in LOADS else 2
    return call.args[at] if given is None and len(call.args) > at else given


def _names(value: ast.expr) -> frozenset[str]:
    return frozenset(in_order(value))


def in_order(value: ast.expr) -> list[str]:
    """Return the variables of an expression, in the order of its text."""
    names = [each for each in ast.walk(value) if isinstance(each, ast.Name)]
    names.sort(key=lambda each: (each.lineno, each.col_offset))
    return list(dict.fromkeys(each.id for each in names))


def entry(value: ast.expr, key: str) -> ast.expr | None:
    """Return the entry of a dictionary's text."""
    if not isinstance(value, ast.Dict):
        return None
    pairs = zip(value.keys, value.values, strict=True)
    return next((each for name, each in pairs if name is not None and text_of(name) == key), None)


def text_of(value: ast.expr | None) -> str:
    """Return what a constant holds, as text; nothing of any other expression."""
    return str(value.value) if isinstance(value, ast.Constant) else ""
