"""The search of our source for reads of torch's private names that go round the accessor.

What comes from torch is followed through each function: parameters annotated ``Any``, what the
accessor returns, and what is taken out of those. Reading an attribute of such a thing is a read
that nobody declared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

PUBLIC_MODULES = {
    "torch",
    "torch.accelerator",
    "torch.autograd.graph",
    "torch.compiler",
    "torch.distributed",
    "torch.fx",
    "torch.nn",
    "torch.profiler",
}
"""What may be imported: modules whose names torch documents."""

OWN_READS = {"get", "maybe", "of", "given", "put", "set", "is_type_of"}
"""What the accessor's names are asked."""

BUILTIN = {name for kind in (dict, list, tuple, set, str, bytes, int) for name in dir(kind)}
"""Attributes of Python's own containers, which much of torch's is kept in."""

_BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "getattr_static", "attrgetter"}
_BY_KEY = {"get", "pop", "setdefault"}


@dataclass
class Scan:
    """What is looked for in a file.

    Attributes:
        keys: texts that torch uses as keys.
        allowed: attributes that may be read of what is not known, and texts that are not torch's.
    """

    keys: frozenset[str]
    allowed: frozenset[str]
    found: list[str] = field(default_factory=list)

    def of(self, source: str) -> list[str]:
        """Return what goes round the accessor, each as ``line: what``."""
        tree = ast.parse(source)
        texts = _docstrings(tree)
        for node in ast.walk(tree):
            for rule in (_imported, _chained, _named, _keyed, _typed):
                self._note(node, rule(node))
            if isinstance(node, ast.Constant) and node.value in self.keys and node not in texts:
                self._note(node, [f"key {node.value!r}"])
            if isinstance(node, ast.FunctionDef):
                self._followed(node)
        return sorted(set(self.found), key=lambda each: int(each.partition(":")[0]))

    def _note(self, node: ast.AST, found: Iterator[str] | list[str]) -> None:
        for each in found:
            if each.rpartition(" ")[2].strip("'") not in self.allowed:
                self.found.append(f"{node.lineno}: {each}")

    def _followed(self, function: ast.FunctionDef) -> None:
        foreign = _parameters(function)
        for _ in range(3):  # what is taken out of what was taken out
            for node in ast.walk(function):
                foreign |= _taken(node, foreign)
        foreign -= _known(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and _is_foreign(node.value, foreign):
                is_pythons = node.attr in BUILTIN or node.attr.startswith("__")
                self._note(node, [] if is_pythons else [f"attribute {node.attr}"])


def _docstrings(tree: ast.Module) -> set[ast.AST]:
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {node.value for node in statements}


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _imported(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module]
    for name in names:
        if name.partition(".")[0] == "torch" and name not in PUBLIC_MODULES:
            yield f"import {name}"
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
        yield from (f"import {alias.name}" for alias in node.names if _is_private(alias.name))


def _chained(node: ast.AST) -> Iterator[str]:
    """A private name after a dot on ``torch``."""
    if isinstance(node, ast.Attribute):
        text = ast.unparse(node)
        if text.startswith("torch.") and _is_private(text):
            yield f"attribute {text}"


def _named(node: ast.AST) -> Iterator[str]:
    """``getattr(x, "name")`` and its kin; names in double underscores are Python's."""
    if not isinstance(node, ast.Call):
        return
    called = ast.unparse(node.func).rpartition(".")[2]
    if called in _BY_NAME:
        for text in (a.value for a in node.args if isinstance(a, ast.Constant)):
            if isinstance(text, str) and not text.startswith("__"):
                yield f"{called} {text!r}"
    if called == "import_module" or ast.unparse(node.func).startswith("sys.modules"):
        for argument in node.args:
            if isinstance(argument, ast.Constant) and str(argument.value).startswith("torch"):
                yield f"import {argument.value!r}"


def _keyed(node: ast.AST) -> Iterator[str]:
    """A text as a key into what an object, a frame or a module holds, if it is not Python's own."""
    holder, key = None, None
    if isinstance(node, ast.Subscript):
        holder, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        holder, key = (node.func.value if node.func.attr in _BY_KEY else None), node.args[0]
    if holder is None or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return
    if key.value.startswith("__") and key.value.endswith("__"):
        return
    text = ast.unparse(holder)
    if text.startswith("vars(") or text.endswith(("__dict__", "f_locals", "f_globals")):
        yield f"held {key.value!r}"


def _typed(node: ast.AST) -> Iterator[str]:
    """The name of a class compared with a text."""
    if not isinstance(node, ast.Compare) or "__name__" not in ast.unparse(node.left):
        return
    if "type(" in ast.unparse(node.left):
        for each in node.comparators:
            texts = (n.value for n in ast.walk(each) if isinstance(n, ast.Constant))
            yield from (f"class {text!r}" for text in texts)


def _parameters(function: ast.FunctionDef) -> set[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return {a.arg for a in every if a.annotation and _is_any(ast.unparse(a.annotation))}


def _known(function: ast.FunctionDef) -> set[str]:
    """The variables of which an annotation or ``isinstance`` says what they are."""
    every = list(ast.walk(function))
    reported = (node for node in every if isinstance(node, ast.AnnAssign))
    typed = {n.target for n in reported if not _is_any(ast.unparse(n.annotation))}
    calls = (node for node in every if isinstance(node, ast.Call) and node.args)
    asked = {call.args[0] for call in calls if ast.unparse(call.func) == "isinstance"}
    return {node.id for node in typed | asked if isinstance(node, ast.Name)}


def _is_any(annotation: str) -> bool:
    return annotation in {"Any", "Iterable[Any]", "Iterator[Any]", "list[Any]", "tuple[Any, ...]"}


def _is_foreign(value: ast.AST, foreign: set[str]) -> bool:
    """Tell whether a thing comes from torch, and nothing says what it is."""
    if isinstance(value, ast.Name):
        return value.id in foreign
    if isinstance(value, ast.Subscript | ast.Starred):
        return _is_foreign(value.value, foreign)
    if isinstance(value, ast.IfExp):
        return _is_foreign(value.body, foreign) or _is_foreign(value.orelse, foreign)
    if isinstance(value, ast.BoolOp):
        return any(_is_foreign(each, foreign) for each in value.values)
    if isinstance(value, ast.Call):
        return _is_asked(value.func) or _is_foreign(value.func, foreign)
    return isinstance(value, ast.Attribute) and _is_foreign(value.value, foreign)


def _is_asked(called: ast.AST) -> bool:
    """Tell whether a declared name is asked: ``kernel_names.ORIGINS.of``."""
    if not isinstance(called, ast.Attribute) or called.attr not in OWN_READS - {"is_type_of"}:
        return False
    return ast.unparse(called.value).rpartition(".")[2].isupper()


def _taken(node: ast.AST, foreign: set[str]) -> set[str]:
    """Return the names that a statement binds to what comes from torch."""
    pairs: list[tuple[ast.AST, ast.AST]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign) and _is_any(ast.unparse(node.annotation)) and node.value:
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.NamedExpr | ast.For | ast.comprehension):
        value = node.value if isinstance(node, ast.NamedExpr) else node.iter
        pairs = [(node.target, value)]
    return {name for pair in pairs for name in _bound(*pair, foreign)}


def _bound(target: ast.AST, value: ast.AST, foreign: set[str]) -> Iterator[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, other in zip(target.elts, value.elts, strict=False):
            yield from _bound(one, other, foreign)
    elif _is_foreign(value, foreign):
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        yield from (part.id for part in parts if isinstance(part, ast.Name))
