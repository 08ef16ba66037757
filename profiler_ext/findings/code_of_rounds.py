"""What the text of a loop's lines says of its rounds: which need what the round before made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|#.*")
_BARE = re.compile(r"^(?:try|else|finally):")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SUMS = (ast.Add, ast.Sub, ast.BitOr, ast.BitAnd)
# They take a result so far and one more value, in any order
_FOLDS = frozenset({"minimum", "maximum", "min", "max", "cat", "concat", "logical_or", "add"})
_GROWS = frozenset({"append", "extend", "add"})
_MOVES = frozenset({"backward", "step"})
_COMPARES = frozenset({"eq", "ne", "ge", "gt", "le", "lt"})
# What one pass over a tensor does of all rounds: sums and counts of each value, and writes by it
_COUNTS = frozenset({"sum", "mean", "count_nonzero", "any", "all", "amax", "amin"})
_OF_NUMBERS = frozenset({"item", "int", "float", "bool", "max", "min", "clamp", "len"})


@dataclass(slots=True)
class _Accesses:
    """The names that a statement reads and changes; ``self.x`` for an attribute of ``self``."""

    reads: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)  # in place, or in part
    summed: set[str] = field(default_factory=set)  # with what else the statement reads


def statement_text(lines: Sequence[str]) -> str:
    """Return the text of a statement of several lines, of which those that ran nothing are missing.

    What they close is closed at the end.
    """
    text = "\n".join(lines)
    return text + "".join(_CLOSED_BY[each] for each in reversed(_open_brackets(text)))


def is_open(code: str) -> bool:
    """Tell whether a statement goes on in the next line."""
    return bool(_open_brackets(code))


def _open_brackets(text: str) -> list[str]:
    opened: list[str] = []
    for each in _QUOTED.sub("", text):
        if each in _CLOSED_BY:
            opened.append(each)
        elif opened and each == _CLOSED_BY[opened[-1]]:
            opened.pop()
    return opened


def statements_in_turn(header: str, body: Sequence[str]) -> set[int] | None:
    """Return which statements of a loop's round need what the round before made, by their index.

    ``None`` where the text of one cannot be read, or may train or move what it has. Sums over the
    rounds so far can be computed at once, too.
    """
    parsed = [_parsed(each) for each in (header, *body)]
    known = [each for each in parsed if each is not None]
    if len(known) < len(parsed) or any(map(_is_stateful, known)):
        return None
    own = {name for each in ast.walk(known[0]) for name in _loop_targets(each)}
    items = {text for each in known for text in _items_written(each, own)}
    accesses = [_accesses_of(each, items) for each in known]
    carried = {name for each in accesses for name in each.assigned | each.changed | each.summed}
    while True:
        in_turn, fed = _followed(accesses, carried)
        if fed == carried:
            return {at - 1 for at in in_turn if at}
        carried = fed


def statements_of_state(methods: Mapping[str, Sequence[str]]) -> dict[str, set[int]]:
    """Return which statements of a module's methods need what its call before kept in ``self``.

    The membrane of a spiking neuron is such a state: ``self.mem = self.decay * self.mem + x``.
    """
    parsed = {name: map(_parsed, body) for name, body in methods.items()}
    accesses = {
        name: [_Accesses() if each is None else _accesses_of(each, set()) for each in body]
        for name, body in parsed.items()
    }
    written = [each.assigned | each.changed for body in accesses.values() for each in body]
    carried = {name for each in written for name in each if name.startswith("self.")}
    carried |= {f"self.{name}" for name in methods}
    while True:
        followed = {name: _followed(each, carried) for name, each in accesses.items()}
        fed = {name for _, names in followed.values() for name in names}
        fed |= {f"self.{name}" for name, (in_turn, _) in followed.items() if in_turn}
        if fed == carried:
            return {name: in_turn for name, (in_turn, _) in followed.items()}
        carried = fed


def _is_stateful(statement: ast.stmt) -> bool:
    calls = (each for each in ast.walk(statement) if isinstance(each, ast.Call))
    return any(_callee(each) in _MOVES for each in calls)


def _followed(accesses: Sequence[_Accesses], carried: set[str]) -> tuple[set[int], set[str]]:
    """Return the statements that read carried names, and the names that they carry on."""
    bound, fed = set(carried), set[str]()
    in_turn: set[int] = set()
    for at, each in enumerate(accesses):
        written = each.assigned | each.changed | each.summed
        if each.reads & bound:
            in_turn.add(at)
            bound, fed = bound | written, fed | written
        else:
            bound, fed = bound - each.assigned, fed - each.assigned
    return in_turn, carried & fed


def statements_of_masks(header: str, body: Sequence[str]) -> set[int]:
    """Return which statements of a round compare whole tensors with its own value, or use that.

    No round changes the tensors. What is counted, summed or written where they are equal, or in
    bounds, takes one pass over them for all rounds: by a histogram, or an index of the values.
    """
    known = [each for each in map(_parsed, (header, *body)) if each is not None]
    if len(known) < 1 + len(body):
        return set()
    accesses = [_accesses_of(each, set()) for each in known]
    changed = {name for each in accesses for name in each.assigned | each.changed | each.summed}
    own, masks, found = set(accesses[0].assigned), set[str](), set[int]()
    for at, (statement, each) in enumerate(zip(known[1:], accesses[1:], strict=True)):
        called = {_callee(one) for one in ast.walk(statement) if isinstance(one, ast.Call)}
        is_mask = not called - _COMPARES and _is_compared(statement, own, changed)
        is_use = bool(masks & _all_read(statement)) and not called - _COUNTS - _OF_NUMBERS
        if is_mask or is_use:
            found.add(at)
        masks = masks | each.assigned if is_mask else masks - each.assigned
        own |= each.assigned if each.reads & own else set()
    return found if masks else set()


def _all_read(statement: ast.stmt) -> set[str]:
    names = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
    return {each.id for each in names if isinstance(each.ctx, ast.Load)}


def _callee(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _is_compared(statement: ast.stmt, own: set[str], changed: set[str]) -> bool:
    """Tell whether a statement compares what no round changes with a round's own value."""
    if not isinstance(statement, ast.Assign):
        return False
    for each in ast.walk(statement.value):
        sides: list[ast.expr] = []
        if isinstance(each, ast.Compare):
            sides = [each.left, *each.comparators]
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            sides = [each.func.value, *each.args] if each.func.attr in _COMPARES else []
        reads = [set(_reads(side, set(), set())) for side in sides]
        if any(one and not one & changed for one in reads) and any(one & own for one in reads):
            return True
    return False


def _parsed(code: str) -> ast.stmt | None:
    code = code.strip()
    code = code.removeprefix("el") if code.startswith("elif") else _BARE.sub("pass", code)
    for text in (code, f"{code} pass"):
        try:
            parsed = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return parsed[0] if len(parsed) == 1 else None
    return None


def _loop_targets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.For | ast.AsyncFor):
        yield from (each.id for each in ast.walk(node.target) if isinstance(each, ast.Name))


def _items_written(statement: ast.stmt, own: set[str]) -> Iterator[str]:
    """Yield the items that a round writes at an index of its own: no other round has them."""
    for each in ast.walk(statement):
        if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store):
            names = {name.id for name in ast.walk(each.slice) if isinstance(name, ast.Name)}
            yield from [ast.unparse(each)] if names & own else []


def _accesses_of(statement: ast.stmt, items: set[str]) -> _Accesses:
    found = _Accesses()
    if isinstance(statement, ast.For | ast.AsyncFor):  # what it loops over is read once
        found.assigned.update(_loop_targets(statement))
        return found
    for each in ast.walk(statement):
        if isinstance(each, ast.Name | ast.Attribute | ast.Subscript):
            if isinstance(each.ctx, ast.Store):
                is_part = not (isinstance(each, ast.Name) or _is_of_self(each))
                (found.changed if is_part else found.assigned).update(_named(each))
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            if each.func.attr in _GROWS:
                found.changed.update(_named(each.func.value))
            elif each.func.attr.endswith("_"):
                found.summed.update(_named(each.func.value))
    found.reads.update(_reads(statement, items, _summed_into(statement, found)))
    found.assigned -= found.summed
    return found


def _summed_into(statement: ast.stmt, found: _Accesses) -> set[int]:
    """Note what a statement adds to itself; return the nodes that read it for that alone."""
    if isinstance(statement, ast.AugAssign):
        is_part = isinstance(statement.target, ast.Subscript)
        found.summed.update(() if is_part else _named(statement.target))
        return set()
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(value, ast.expr):
        return set()
    terms = [each for each in _terms(value) if _named(each) & found.assigned]
    found.summed.update(name for each in terms[:1] for name in _named(each))
    return {id(each) for each in terms[:1]}


def _terms(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the names that a value is the sum, or another fold, of."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, _SUMS):
        yield from (*_terms(value.left), *_terms(value.right))
    elif isinstance(value, ast.Call):
        if getattr(value.func, "attr", getattr(value.func, "id", "")) in _FOLDS:
            for each in value.args:
                parts = each.elts if isinstance(each, ast.List | ast.Tuple) else [each]
                yield from (part for part in parts if _is_name(part))
    elif _is_name(value):
        yield value


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _named(node: ast.AST) -> set[str]:
    """Return the name that an expression is of: ``x`` of ``x[0].y``, ``self.x`` of ``self.x.y``."""
    path: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        path += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    if not isinstance(node, ast.Name):
        return set()
    return {f"self.{path[-1]}"} if node.id == "self" and path else {node.id}


def _reads(node: ast.AST, items: set[str], without: set[int]) -> Iterator[str]:
    """Yield the names that are read; ``without`` are nodes that are left out."""
    if id(node) in without:
        return
    if isinstance(node, ast.Subscript) and ast.unparse(node) in items:
        yield from _reads(node.slice, items, without)
        return
    if isinstance(node, ast.Name):
        yield from () if isinstance(node.ctx, ast.Store) else (node.id,)
    elif isinstance(node, ast.Attribute) and _is_of_self(node):
        yield from () if isinstance(node.ctx, ast.Store) else _named(node)
    else:
        inner = _read_parts(node)
        names = {name for each in inner for name in _reads(each, items, without)}
        yield from names - _bound_in(node)


def _is_of_self(node: ast.AST) -> bool:
    of = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(of, ast.Name) and of.id == "self"


def _read_parts(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a node that are read."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return [node.slice]
    if isinstance(node, ast.AugAssign):
        target = [node.target.slice] if isinstance(node.target, ast.Subscript) else []
        return [*target, node.value]
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(called, ast.Attribute):
        changes = called.attr in _GROWS or called.attr.endswith("_")
        return [*([] if changes else [called]), *node.args, *node.keywords]
    return ast.iter_child_nodes(node)


def _bound_in(node: ast.AST) -> set[str]:
    """Return the names that a comprehension loops with, which are its own."""
    if not isinstance(node, _COMPREHENSIONS):
        return set()
    targets = (each.target for each in node.generators)
    names = (name for each in targets for name in ast.walk(each))
    return {each.id for each in names if isinstance(each, ast.Name)}
