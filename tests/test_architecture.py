"""The shape of the code: who may import whom, and what loads what."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import pytest

from profiler_ext.sessions.session import Session, load
from tests.analyses import gpu_step

ROOT = Path(__file__).parents[1]

# Each room, and the rooms it may import. A room under exporters may import those of exporters too.
ALLOWED = {
    "printable": "",
    "version": "",
    "signals": "",
    "source_paths": "",
    "records": "version",
    "renaming": "",
    "errors": "printable",
    "file_io": "errors",
    "isolation": "errors",
    "kineto": "errors file_io records version",
    "attribution": "kineto records source_paths",
    "store": "errors file_io records version",
    "recall": "errors file_io records source_paths store",
    "torch_compat": "errors isolation",
    "capture": "errors file_io isolation kineto recall records source_paths store torch_compat",
    "rooflines": "kineto records",
    "findings": "isolation kineto records rooflines source_paths",
    "comparison": "attribution errors findings kineto recall records",
    "exporters": "comparison errors file_io findings kineto printable records rooflines "
    "source_paths",
    "sessions": "attribution comparison errors exporters file_io findings isolation kineto "
    "records source_paths",
    "cluster": "attribution errors exporters file_io findings kineto printable records sessions "
    "version",
    "serving": "comparison errors exporters isolation records sessions version",
    "python_lines": "errors file_io isolation records source_paths",
    "profiling": "attribution capture errors exporters file_io findings isolation kineto "
    "python_lines records sessions source_paths torch_compat",
    "autostart": "profiling renaming",
    "run": "autostart capture errors exporters file_io isolation profiling python_lines records "
    "sessions signals source_paths torch_compat",
    "integrations": "errors exporters isolation profiling sessions",
    "attaching": "attribution errors file_io kineto recall records source_paths store",
    "joint_table": "attribution capture errors exporters file_io recall records source_paths "
    "torch_compat",
    "cli": "attaching cluster comparison errors exporters file_io findings isolation joint_table "
    "kineto printable records renaming run serving sessions signals source_paths store "
    "torch_compat version",
    "__main__": "cli",
    "__init__": "autostart joint_table profiling sessions version",
}
# The rooms within a room: each may import those before it, and the files beside them.
INNER = {
    "attribution": ("trace", "alignment", "launches", "idle"),
    "findings": ("rules",),
    "capture": ("traces", "lineage", "graphs", "hooks"),
}
OWNERS = {
    "torch": {
        "torch_compat",
        "capture",
        "profiling",
        "run",
        "integrations",
        "cli",
    },
    "pandas": {"profiler_ext.exporters.tables", "profiler_ext.cluster.tables"},
    "rich": {"profiler_ext.exporters.terminal"},
    "dask": {"cluster"},
    "distributed": {"cluster"},
    "fsspec": {"cluster"},
    "pyarrow": {"profiler_ext.exporters.tables"},
    "perfetto": {"profiler_ext.exporters.perfetto"},
    "transformers": {"integrations"},
    "lightning": {"integrations"},
    "wandb": {"integrations"},
    "mlflow": {"integrations"},
    "mcp": {"serving"},
    "anyio": {"serving"},
}


@dataclass
class Module:
    """A source file: its dotted name, the names it imports, and those it imports to run."""

    name: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def room(self) -> str:
        return (self.name.split(".")[1:] or ["__init__"])[0]


def test_each_room_imports_only_what_lies_below_it():
    wrong = {
        f"{module.name} imports {name}"
        for module in modules().values()
        for name in targets(module)
        if modules()[name].room not in {module.room, *ALLOWED[module.room].split()}
    }
    assert wrong == set()


@pytest.mark.parametrize("outer", INNER)
def test_rooms_within_a_room_import_only_those_before_them(outer: str):
    order = INNER[outer]
    rooms = {name: name.split(".")[2] for name in modules() if name.count(".") == 3}
    inner = {name: rooms[name] for name in rooms if modules()[name].room == outer}
    assert set(inner.values()) == set(order)
    wrong = {
        f"{name} imports {target}"
        for name, room in inner.items()
        for target in targets(modules()[name])
        if target in inner and order.index(inner[target]) > order.index(room)
    }
    assert wrong == set()


def test_no_module_imports_itself_round_a_corner():
    graph = {name: targets(module) for name, module in modules().items()}
    assert set(graphlib.TopologicalSorter(graph).static_order()) == set(modules())


def test_torch_pandas_and_perfetto_are_imported_where_they_belong_only():
    wrong = {
        f"{module.name} imports {name}"
        for module in modules().values()
        for name in module.needs
        if (owners := OWNERS.get(name.split(".")[0]))
        and not {module.room, ".".join(module.name.split(".")[:3])} & owners
    }
    assert wrong == set()


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
    typing_only = {
        inner
        for node in module.nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in module.nodes:
        names = imported(node)
        module.imports |= names
        module.needs |= set() if node in typing_only else names
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
