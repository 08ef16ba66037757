"""What the text of lines says: whether calls need each other, what is computed from sizes alone."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeGuard

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WEIGHT = re.compile(r"weight|bias|param|quant|scale|kernel|state|code", re.I)
# They make a tensor of numbers that depend on nothing but sizes
_FACTORIES = frozenset(
    {"arange", "eye", "linspace", "logspace", "tril_indices", "triu_indices", "hann_window"}
)
_FILLED = frozenset({"ones", "full"})  # constants only where they become a mask
_MASKS = frozenset({"tril", "triu"})
_PRODUCTS = frozenset({"einsum", "matmul", "bmm", "mm", "tensordot", "linear"})
_JOINS = frozenset({"cat", "concat", "concatenate", "stack"})
_VIEWS = frozenset(
    {"transpose", "permute", "view", "reshape", "flatten", "unflatten", "t", "contiguous", "to"}
)
# Their results are mostly zeros
_DIAGONAL = frozenset({"diag", "diag_embed", "diagflat", "eye"})
_SPARSE = frozenset({"to_dense", "block_diag"})
_ADJACENCY = re.compile(r"(?:\w+_)?(?:adj|adjacency|laplacian)(?:_\w+)?", re.I)
# What of a tensor is no value
_SIZES = frozenset({"device", "dtype", "shape", "size", "numel", "dim", "ndim", "len"})
# What programs call sizes, where no line says what they are
_NAMED_SIZE = re.compile(
    r"[BLNT]|(?:\w+_)?(?:seq_?len|length|size|device|dtype|height|width)|num_\w+"
)
# A call or a loop of several lines
_ASSIGNS = re.compile(r"\s*(?:for\b(.+?)\bin\b|([\w\s.,*\[\]()]+?)[-+*/@|&]?=[^=])")
# What modules call what training alone changes, and what they keep from call to call
_LEARNED = re.compile(
    r"weight|bias|param|quant|scale|zero|pos|embed|codebook|table|lora|gamma|beta|a_log|"
    r"freq|filter",
    re.I,
)
# Methods that return a weight, whatever the attributes are called that they make it of
_RETURNS_WEIGHT = re.compile(r"(?:.+_)?weights?|(?:.+_)?dequantized?(?:_.+)?", re.I)
# What a name says is changed from call to call, or where it is given
KEPT = re.compile(
    r"(?i)cache|state|hidden|buffer|queue|memory|running|last|past|prev|position_ids|env|loader|iter"
)
# What they name is no tensor of the step, as a rule
_MODULES = frozenset({"torch", "np", "math", "self", "F", "config"})


def constant_lines(codes: Mapping[int, str]) -> set[int]:
    """Return the lines of a function that compute tensors from sizes and such tensors alone."""
    constant: set[str] = set()
    lines: set[int] = set()
    for line in sorted(codes):
        statement = _statement(codes[line])
        value = getattr(statement, "value", None)
        if statement is None or not isinstance(value, ast.AST):
            continue
        names, called = set(_values(value)), _called(value)
        is_made = bool(called & _FACTORIES) or bool(called & _FILLED and called & _MASKS)
        if names <= constant and (is_made or names):
            lines.add(line)
            constant |= {each for target in _targets(statement) for each in _names(target)}
    return lines


def calls_of_constants(codes: Mapping[int, str]) -> dict[int, tuple[bool, frozenset[str]]]:
    """Return the lines that assign what a function returns, or of sizes a method of ``self``.

    For each whether its arguments are sizes alone, and the names among them whose values are used.
    """
    lines: dict[int, tuple[bool, frozenset[str]]] = {}
    for line in sorted(codes):
        statement = _statement(codes[line])
        value = getattr(statement, "value", None)
        if not isinstance(statement, ast.Assign) or not isinstance(value, ast.Call):
            continue
        given = [*value.args, *(each.value for each in value.keywords)]
        names = {name for each in given for name in _values(each)}
        names -= {each for each in names if _NAMED_SIZE.fullmatch(each)}
        # A method of something else computes with it
        is_function = isinstance(value.func, ast.Name)
        read = {name for each in given for name in _read_of_self(each)}
        is_of_sizes = not names and not read and (is_function or _root(value.func) == "self")
        # What a method or a weight is differs from layer to layer
        is_shared = is_function and not (names and read) and not any(map(_WEIGHT.search, read))
        if given and (is_of_sizes or is_shared) and not _callee(value) & _FACTORIES:
            lines[line] = is_of_sizes, frozenset(names)
    return lines


def passes_on(code: str | None, names: frozenset[str]) -> bool:
    """Tell whether a line gives a call these names, and assigns none of them."""
    statement = _statement(code or "")
    if statement is None:
        return False
    given = {name for own in _calls_with_arguments(statement).values() for name in own}
    return names <= given and not names & _changed(statement)


def _read_of_self(node: ast.AST) -> Iterator[str]:
    """Yield the attributes of ``self`` that an expression reads, but for sizes of them."""
    if isinstance(node, ast.Call) and _callee(node) & _SIZES:
        return
    if isinstance(node, ast.Attribute) and _root(node) == "self":
        yield from () if node.attr in _SIZES else (node.attr,)
        return
    for each in ast.iter_child_nodes(node):
        yield from _read_of_self(each)


def lines_from(codes: Mapping[int, str], made_by: str) -> tuple[set[int], bool]:
    """Return the lines with what a function returned, up to products, and whether one reads it."""
    made, on_the_way = set[str](), set[int]()
    is_multiplied = False
    for line in sorted(codes):
        statement = _statement(codes[line])
        value = getattr(statement, "value", None)
        if statement is None or not isinstance(value, ast.AST):
            continue
        is_read, is_product = bool(_names(value) & made), _multiplies(value)
        if is_read and is_product:
            is_multiplied = True
        elif is_read or made_by in _called(value):
            on_the_way.add(line)
            made |= {each for target in _targets(statement) for each in _names(target)}
    return on_the_way, is_multiplied


def products_of_patches(codes: Mapping[int, str]) -> set[int]:
    """Return the lines that multiply what ``unfold`` returned by a weight of ``self``."""
    patches: set[str] = set()
    weights: set[str] = set()
    lines: set[int] = set()

    def is_patches(node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            is_view = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS
            return "unfold" in _callee(node) or (is_view and is_patches(node.func))
        if isinstance(node, ast.Attribute):  # ``patches.mT``
            return is_patches(node.value)
        return isinstance(node, ast.Name) and node.id in patches

    def is_weight(node: ast.AST) -> bool:
        names = set(_values(node))
        return names <= weights and bool(names or {*_attributes_of_self(node)})

    for line in sorted(codes):
        statement = _statement(codes[line])
        value = getattr(statement, "value", None)
        if statement is None or not isinstance(value, ast.AST):
            continue
        operands = [*_operands(statement)]
        if any(map(is_patches, operands)) and any(map(is_weight, operands)):
            lines.add(line)
        targets = {name for target in _targets(statement) for name in _names(target)}
        made = is_patches(value), is_weight(value)
        patches = patches | targets if made[0] else patches - targets
        weights = weights | targets if made[1] else weights - targets
    return lines


def products_with_zeros(codes: Mapping[int, str]) -> dict[int, bool]:
    """Return the lines of products with a matrix that is mostly zeros by its text.

    For each whether the matrix is diagonal.
    """
    made: dict[str, bool] = {}
    lines: dict[int, bool] = {}
    for line in sorted(codes):
        statement = _statement(codes[line])
        if statement is None:
            continue
        kinds = [_zeros(each, made) for each in _operands(statement)]
        known = [each for each in kinds if each is not None]
        if known:
            lines[line] = known[0]
        value = getattr(statement, "value", None)
        is_diagonal = _zeros(value, made) if isinstance(value, ast.Call) else None
        for name in {name for target in _targets(statement) for name in _names(target)}:
            made.pop(name, None)
            if is_diagonal is not None:
                made[name] = is_diagonal
    return lines


def _operands(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the operands of the products of a statement."""
    for each in ast.walk(statement):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.MatMult):
            yield from (each.left, each.right)
        elif isinstance(each, ast.Call) and _callee(each) & _PRODUCTS:
            yield from each.args
            yield from [each.func.value] if isinstance(each.func, ast.Attribute) else []


def _zeros(operand: ast.expr, made: Mapping[str, bool]) -> bool | None:
    """Tell whether a matrix is diagonal; ``None`` where nothing says that it is mostly zeros."""
    if isinstance(operand, ast.Call):
        if _callee(operand) & _DIAGONAL:
            return True
        return False if _callee(operand) & _SPARSE else None
    if isinstance(operand, ast.Attribute) and operand.attr in ("T", "mT"):
        return _zeros(operand.value, made)
    if isinstance(operand, ast.Name) and operand.id in made:
        return made[operand.id]
    name = getattr(operand, "attr", getattr(operand, "id", ""))
    return False if _ADJACENCY.fullmatch(name) else None


def _multiplies(value: ast.AST) -> bool:
    operators = (each.op for each in ast.walk(value) if isinstance(each, ast.BinOp))
    is_operator = any(isinstance(each, ast.MatMult) for each in operators)
    return is_operator or bool(_called(value) & _PRODUCTS)


def lines_of_weights(codes: Mapping[int, str], function: str = "") -> set[int]:
    """Return the lines of a function that compute with learned attributes of ``self`` alone."""
    is_of_weight = _RETURNS_WEIGHT.fullmatch(function) is not None
    statements = {line: _statement(codes[line]) for line in sorted(codes)}
    changed = {
        attribute
        for each in statements.values()
        if each is not None
        for target in _changed_targets(each)
        for attribute in _attributes_of_self(target)
    }
    made: set[str] = set()
    lines: set[int] = set()
    for line, statement in statements.items():
        value = getattr(statement, "value", None)
        if statement is None or not isinstance(value, ast.AST):
            continue
        read, names = set(_attributes_of_self(value)), set(_values(value))
        is_learned = is_of_weight or all(map(_LEARNED.search, read))
        is_learned &= not any(map(KEPT.search, read))
        targets = {name for each in _targets(statement) for name in _names(each)}
        is_known = bool(read or names) and is_learned and not read & changed and names <= made
        if is_known:
            lines.add(line)
        made = made | targets if is_known else made - targets
    return lines


def _attributes_of_self(node: ast.AST) -> Iterator[str]:
    """Yield what an expression reads of ``self``, by its last name: ``weight`` of ``self.up``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        called = node.func
        if not isinstance(called.value, ast.Name):  # a method of an attribute
            yield from _attributes_of_self(called.value)
        elif called.value.id == "self":
            yield called.attr
        for each in (*node.args, *(word.value for word in node.keywords)):
            yield from _attributes_of_self(each)
    elif isinstance(node, ast.Attribute) and _root(node) == "self":
        yield node.attr
    else:
        for child in ast.iter_child_nodes(node):
            yield from _attributes_of_self(child)


def _called(value: ast.AST) -> set[str]:
    """Return the names of the functions and methods that are called."""
    called = (each for each in ast.walk(value) if isinstance(each, ast.Call))
    return {name for each in called for name in _callee(each)}


def _callee(call: ast.Call) -> set[str]:
    return {getattr(call.func, "attr", getattr(call.func, "id", ""))}


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _values(node: ast.AST) -> Iterator[str]:
    """Yield the names whose values are used; of a module, ``self`` and sizes none."""
    if isinstance(node, ast.Compare):  # with ``self.at``, say, which may change
        attributes = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
        yield from (each.attr for each in attributes if _root(each) == "self")
    if isinstance(node, ast.Name):
        yield node.id
    for each in _parts(node):
        yield from _values(each)


def _parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of an expression that may be values of tensors."""
    if isinstance(node, ast.Attribute):
        return [] if node.attr in _SIZES or _root(node) in _MODULES else [node.value]
    if not isinstance(node, ast.Call):
        return list(ast.iter_child_nodes(node))
    if _callee(node) & (_SIZES | _FACTORIES | _FILLED):
        return []
    of_method = [] if isinstance(node.func, ast.Name) else [node.func]
    return [*of_method, *node.args, *(each.value for each in node.keywords)]


def _root(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return _root(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def is_independent(code: str | None, *, is_joined: bool) -> bool:
    """Tell by a line's text whether none of its calls takes what another returned."""
    # is_joined: its function joins a list of tensors. ``x = layer(x)`` and what cannot be read are
    # no such lines.
    statement = _statement(code or "")
    if statement is None:
        return False
    loops = [each for each in ast.walk(statement) if isinstance(each, _COMPREHENSIONS)]
    if any(map(_calls_its_targets, loops)):
        return True
    if isinstance(statement, ast.AugAssign):
        return not _names(statement.target) & _names(statement.value)
    if isinstance(statement, ast.Assign):
        return _writes_by_index(statement)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not is_joined or not isinstance(call, ast.Call):
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr == "append":
        return not _names(call.func.value) & {name for each in call.args for name in _names(each)}
    return True  # the element of a comprehension that takes several lines


def carries_on(codes: Mapping[int, str]) -> bool:
    """Tell whether a round of these lines may read what the round before assigned or appended.

    So it is where a line cannot be read.
    """
    statements = [_statement(codes[line]) for line in sorted(codes)]
    known = [each for each in statements if each is not None]
    if len(known) < len(statements):
        return True
    written = [_written(each) for each in known]
    every, before = {name for names in written for name in names}, set[str]()
    for statement, names in zip(known, written, strict=True):
        reads = Counter(each.id for each in _reads(statement))
        reads.subtract(names if isinstance(statement, ast.Expr) else ())  # what it is appended to
        read = {name for name, count in reads.items() if count > 0}
        if isinstance(statement, ast.AugAssign) or read & (every - before):
            return True
        before |= names
    return False


def _written(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns, or appends to."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return _names(call.func.value) if call.func.attr == "append" else set()
    return {name for target in _targets(statement) for name in _names(target)}


def _writes_by_index(statement: ast.Assign) -> bool:
    """Tell whether a line writes at an index what it calls with values of that index alone."""
    target, *others = statement.targets
    if others or not isinstance(target, ast.Subscript):
        return False
    index, value = _names(target.slice), statement.value
    calls = (each for each in ast.walk(value) if isinstance(each, ast.Call))
    read = [names for call in calls for each in call.args if (names := _names(each))]
    is_of_index = bool(read) and all(names & index for names in read)
    return is_of_index and not _names(target.value) & _names(value)


def _statement(code: str) -> ast.stmt | None:
    """Return the innermost statement of a line; ``None`` where it is no whole one."""
    try:
        parsed = ast.parse(code.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return (parsed[0].body[0] if isinstance(parsed[0], ast.For) else parsed[0]) if parsed else None


def _calls_its_targets(loop: ast.AST) -> bool:
    """Tell whether a comprehension calls what it loops over, or what that selects."""
    generators: list[ast.comprehension] = getattr(loop, "generators", [])
    targets = {name for each in generators for name in _names(each.target)}
    called = [each.func for each in ast.walk(loop) if isinstance(each, ast.Call)]
    return any(_names(each) & targets for each in called if not isinstance(each, ast.Attribute))


def number_joined(code: str) -> int | None:
    """Return how many tensors a line's ``cat`` or ``stack`` joins, where its text tells."""
    parts = ast.walk(_statement(code) or ast.Pass())
    calls = (each for each in parts if isinstance(each, ast.Call) and _callee(each) & _JOINS)
    given = [each.args[0] for each in calls if each.args]
    return len(given[0].elts) if given and isinstance(given[0], ast.Tuple | ast.List) else None


def is_mapped(code: str) -> bool:
    """Tell whether a comprehension of a line calls something with what it loops over."""
    statement = _statement(code)
    loops = (
        each for each in ast.walk(statement or ast.Pass()) if isinstance(each, _COMPREHENSIONS)
    )
    for loop in loops:
        generators: list[ast.comprehension] = getattr(loop, "generators", [])
        targets = {name for each in generators for name in _names(each.target)}
        calls = (each for each in ast.walk(loop) if isinstance(each, ast.Call))
        if any(_names(argument) & targets for each in calls for argument in each.args):
            return True
    return False


def _names(node: ast.AST) -> set[str]:
    """Return the names in an expression, without ``self``."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {"self"}


def first_values_of(codes: Mapping[int, str], makers: frozenset[str]) -> set[int]:
    """Return the lines that call one of these, and of whose result only first values are read."""
    made: dict[str, int] = {}
    lines: set[int] = set()
    whole: set[int] = set()
    for line in sorted(codes):
        statement = _statement(codes[line])
        if statement is None:
            continue
        sliced = [each.value for each in ast.walk(statement) if _takes_first(each)]
        lines |= {line for each in sliced if _called(each) & makers}
        first = Counter(each.id for of in sliced for each in _reads(of))
        for name, count in Counter(each.id for each in _reads(statement)).items():
            if name in made:
                (lines if count == first[name] else whole).add(made[name])
        targets = {name for target in _targets(statement) for name in _names(target)}
        made = {name: at for name, at in made.items() if name not in targets}
        value = getattr(statement, "value", None)
        if isinstance(value, ast.AST) and _called(value) & makers and line not in lines:
            made |= dict.fromkeys(targets, line)
    return lines - whole


def _reads(node: ast.AST) -> Iterator[ast.Name]:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    yield from (each for each in names if isinstance(each.ctx, ast.Load))


def _takes_first(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Tell whether an expression takes the first or last values of the dimension it names last."""
    if not isinstance(node, ast.Subscript):
        return False
    is_of_many = isinstance(node.slice, ast.Tuple)
    last = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
    if not isinstance(last, ast.Slice):  # of one dimension it may be a part of a tuple
        return is_of_many and _is_number(last)
    is_first = last.lower is None and last.upper is not None
    is_last = isinstance(last.lower, ast.UnaryOp) and last.upper is None
    return is_last or (is_first and not isinstance(last.upper, ast.UnaryOp))


def _is_number(node: ast.AST) -> bool:
    operand = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(operand, ast.Constant) and isinstance(operand.value, int)


def independent_calls(codes: Mapping[int, str]) -> dict[str, dict[int, int]]:
    """Return what lines of a function call twice or more, none with what another returned.

    For each callee the number of its calls at each line.
    """
    calls: dict[str, dict[int, int]] = {}
    returned: dict[str, set[str]] = {}
    for line in sorted(codes):
        statement = _statement(codes[line])
        if statement is None:
            continue
        targets = {name for each in _targets(statement) for name in _names(each)}
        read = _names(statement) - targets | _read_again(statement, targets)
        for callee, own in _called_alike(statement).items():
            if any(_names(each) & returned.get(callee, set()) for each in own):
                returned[callee] = set()  # one after the other
                calls.pop(callee, None)
            else:
                calls.setdefault(callee, {})[line] = len(own)
                returned.setdefault(callee, set()).update(targets)
        for names in returned.values():
            if read & names:
                names |= targets
    return {callee: own for callee, own in calls.items() if sum(own.values()) > 1}


def _read_again(statement: ast.stmt, targets: set[str]) -> set[str]:
    value = getattr(statement, "value", None)
    return _names(value) & targets if isinstance(value, ast.AST) else set()


def _called_alike(statement: ast.stmt) -> dict[str, list[ast.Call]]:
    """Return the calls of each name or attribute, without those within another of the same."""
    nodes = list(ast.walk(statement))
    if any(isinstance(each, ast.IfExp) for each in nodes):  # one or the other
        return {}
    every = [each for each in nodes if isinstance(each, ast.Call)]
    alike: dict[str, list[ast.Call]] = {}
    for each in every:
        if isinstance(each.func, (ast.Name, ast.Attribute)) and each.args:
            alike.setdefault(ast.unparse(each.func), []).append(each)
    return {callee: own for callee, own in alike.items() if not _is_nested(callee, own)}


def calls_of_one_input(codes: Mapping[int, str]) -> list[list[tuple[str, int]]]:
    """Return the attributes of ``self`` that a function calls with one argument, the same for all.

    Each group has the names of what is called, and the line. An argument that is assigned, or
    changed in place, is another one afterwards.
    """
    known: dict[str, list[tuple[str, int]]] = {}
    groups: list[list[tuple[str, int]]] = []
    for line in sorted(codes):
        statement = _statement(codes[line])
        if statement is not None:
            for name, argument in _calls_of_self(statement):
                known.setdefault(argument, []).append((name, line))
        changed = assigned(codes[line])
        for argument in [each for each in known if set(re.findall(r"\w+", each)) & changed]:
            groups.append(known.pop(argument))
    groups += known.values()
    return [each for each in groups if len({name for name, _ in each}) == len(each) > 1]


def _calls_of_self(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield the name of each attribute of ``self`` that is called, and its one argument."""
    for each in ast.walk(statement):
        if not isinstance(each, ast.Call) or len(each.args) != 1 or each.keywords:
            continue
        called = each.func
        is_of_self = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
        is_simple = isinstance(each.args[0], (ast.Name, ast.Attribute))
        if is_of_self and is_simple and _root(called) == "self":
            yield getattr(called, "attr", ""), ast.unparse(each.args[0])


def _is_nested(callee: str, calls: list[ast.Call]) -> bool:
    inner = (each for call in calls for each in ast.walk(call) if each is not call)
    return any(isinstance(each, ast.Call) and ast.unparse(each.func) == callee for each in inner)


def equal_calls(codes: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Return what several lines of a function call alike, with the same arguments.

    For each such call its text and the lines. What a line between them assigns, or changes in
    place, is not the same afterwards.
    """
    known: dict[str, tuple[set[str], list[int]]] = {}
    ended: list[tuple[str, list[int]]] = []
    for line in sorted(codes):
        statement = _statement(codes[line])
        if statement is not None:
            for text, names in _calls_with_arguments(statement).items():
                known.setdefault(text, (names, []))[1].append(line)
        changed = assigned(codes[line])
        for text in [each for each, (names, _) in known.items() if names & changed]:
            ended.append((text, known.pop(text)[1]))
    ended += [(text, lines) for text, (_, lines) in known.items()]
    return [(text, lines) for text, lines in ended if len(lines) > 1]


def _calls_with_arguments(statement: ast.stmt) -> dict[str, set[str]]:
    """Return the text of each call that has a name among its arguments, and all of its names."""
    every = [each for each in ast.walk(statement) if isinstance(each, ast.Call)]
    return {
        ast.unparse(each): _names(each)
        for each in every
        if any(_names(of) for of in (*each.args, *(word.value for word in each.keywords)))
    }


def _changed(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns, or whose value it changes in place."""
    return {name for each in _changed_targets(statement) for name in _names(each)}


def _changed_targets(statement: ast.stmt) -> list[ast.expr]:
    """Return what a statement assigns, or changes in place."""
    nodes = list(ast.walk(statement))
    assigned = (each for each in nodes if isinstance(each, ast.stmt))
    targets = [target for each in assigned for target in _targets(each)]
    targets += [each.target for each in nodes if isinstance(each, (ast.AugAssign, ast.NamedExpr))]
    methods = (each.func for each in nodes if isinstance(each, ast.Call))
    targets += [
        each.value
        for each in methods
        if isinstance(each, ast.Attribute) and each.attr.endswith("_")
    ]
    return targets


def assigned(code: str) -> set[str]:
    """Return the names that a line assigns or changes in place; it may be no whole statement."""
    statement = _statement(code)
    if statement is not None:
        return _changed(statement)
    found = _ASSIGNS.match(code)
    return set(re.findall(r"\w+", found[1] or found[2])) if found else set()
