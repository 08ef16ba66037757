"""The shape of the code that import-linter does not hold: sizes, and what loads what."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from profiler_ext.sessions.session import Session, load
from tests.analyses import gpu_step

ROOT = Path(__file__).parents[1]


@dataclass
class Module:
    """A source file: its dotted name, and the names it imports."""

    name: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def room(self) -> str:
        return (self.name.split(".")[1:] or ["__init__"])[0]


def test_no_module_imports_itself_round_a_corner():
    graph = {name: targets(module) for name, module in modules().items()}
    assert set(graphlib.TopologicalSorter(graph).static_order()) == set(modules())


def test_private_names_of_torch_are_in_torch_compat_only():
    wrong = {
        f"{module.name}: {name}"
        for module in modules().values()
        if module.room != "torch_compat"
        for name in private_torch_names(module)
    }
    assert wrong == set()


def test_files_have_600_lines_at_most_and_functions_40():
    files = {name: len(path.read_text().splitlines()) for name, path in sources()}
    functions = {
        f"{module.name}.{node.name}": code_lines(node)
        for module in modules().values()
        for node in module.nodes
        if isinstance(node, ast.FunctionDef)
    }
    assert {name: lines for name, lines in files.items() if lines > 600} == {}
    assert {name: lines for name, lines in functions.items() if lines > 40} == {}


def test_importing_the_package_loads_no_heavy_library():
    code = """
import sys, profiler_ext
heavy = {"torch", "pandas", "perfetto", "numpy", "rich", "msgspec", "profiler_ext.exporters"}
print(sorted(heavy & set(sys.modules)))
"""
    assert python(code) == "[]\n"


def test_a_recording_is_read_reported_and_exported_without_torch(tmp_path):
    saved = Session(gpu_step().recording).save(tmp_path)
    code = f"""
import sys
class NoTorch:
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "torch":
            raise AssertionError("torch was imported")
sys.meta_path.insert(0, NoTorch())
import profiler_ext
session = profiler_ext.load({str(saved)!r})
for suffix in (".pftrace", ".json.gz", ".html", ".csv", ""):
    session.export({str(tmp_path / "export")!r} + suffix)
sys.stdout.write(session.report())
"""
    assert python(code) == load(saved).report()


def test_a_perfetto_trace_is_written_without_loading_pandas(tmp_path):
    code = f"""
import sys, profiler_ext
session = profiler_ext.load({str(Session(gpu_step().recording).save(tmp_path))!r})
session.export({str(tmp_path / "trace.pftrace")!r})
print("pandas" in sys.modules)
"""
    assert python(code) == "False\n"


def sources() -> Iterator[tuple[str, Path]]:
    for package in ("profiler_ext", "profiler_ext/exporters"):  # rglob follows no link
        folder = ROOT / package
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def modules() -> dict[str, Module]:
    """Return each module of the package by its name."""
    return {name: read(name, path) for name, path in sources()}


def read(name: str, path: Path) -> Module:
    module = Module(name, ast.parse(path.read_text()))
    for node in module.nodes:
        module.imports |= imported(node)
    return module


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute here"
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set()


def targets(module: Module) -> set[str]:
    """Return the project's modules that a module imports."""
    found = {
        name if name in modules() else name.rpartition(".")[0]
        for name in module.imports
        if name.split(".")[0] == "profiler_ext"
    }
    return found - {module.name}


def private_torch_names(module: Module) -> Iterator[str]:
    """Find private names in imports, in strings, and after a dot on what came from torch."""
    from_torch = {"torch"} | {
        (alias.asname or alias.name).split(".")[0]
        for node in module.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(name.split(".")[0] == "torch" for name in imported(node))
        for alias in node.names
    }
    yield from (name for name in module.imports if name.startswith("torch.") and is_private(name))
    for node in module.nodes:
        if isinstance(node, ast.Constant) and "torch._" in str(node.value):
            yield str(node.value)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name.split(".")[0] in from_torch and is_private(name):
                yield name


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def code_lines(function: ast.FunctionDef) -> int:
    """Return how many lines a function has, its docstring aside."""
    docstring = ast.get_docstring(function, clean=False)
    return function.end_lineno - function.lineno + 1 - len((docstring or "").splitlines())


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout + done.stderr
