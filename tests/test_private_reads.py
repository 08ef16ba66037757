"""No read of torch's private names goes round the accessor, and each way to do so is found."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.torch_compat import names
from profiler_ext.torch_compat.private import Key
from tests.private_reads import Scan

PACKAGE = Path(profiler_ext.__file__).parent
NONE: frozenset[str] = frozenset()
KEYS = frozenset(name.name for name in names.ALL if isinstance(name, Key))
DECLARING = {"private.py", "points.py", "shapes.py", "names"}
TOUCHING = (
    "torch_compat",
    "capture",
    "isolation",
    "profiling",
    "run",
    "joint_table.py",
    "doctor.py",
)
NOT_TORCHS = {
    "capture/hooks/artifacts.py": {"_profiler_ext_original"},  # our own mark
    "capture/hooks/graphs.py": {"graph"},  # of a ``GraphModule``
    "isolation/user_state.py": {"moment", "SIGXFSZ", "_filters_mutated"},  # a thread's, Python's
    # What torch documents of a ``FunctionEvent``.
    "profiling/torch_views.py": {"name", "trace_name", "cpu_children", "cpu_parent"},
    # Of Python's syntax trees, and torch's public data loader
    "run/loops.py": {"", "attr", "id", "torch.utils.data", "DataLoader", "dataset"},
    "run/program.py": {"_run_module_as_main"},  # of ``runpy``
    # Of NVIDIA's driver
    "torch_compat/captured_nodes.py": {
        "cuFuncGetName",
        "cuGraphGetEdges",
        "cuGraphGetEdges_v2",
        "cuGraphGetNodes",
        "cuGraphKernelNodeGetParams_v2",
        "cuGraphNodeGetType",
        "cuKernelGetName",
        "cuStreamGetCaptureInfo_v2",
    },
    "torch_compat/device_memory.py": {"param_groups", "state", "name"},  # documented
    "torch_compat/import_hooks.py": {"_initializing"},  # of Python's import
    "torch_compat/compiled_autograd.py": {""},  # what a missing ``__name__`` is
    # Public, of a device's events and streams.
    "torch_compat/accelerator.py": {"query", "elapsed_time", "is_current_stream_capturing"},
    "torch_compat/profilers.py": {"on_exit"},  # of the C library
    "torch_compat/process.py": {"get_device_name"},  # public, and not of each device's module
}


def sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] in TOUCHING and not DECLARING & set(place.parts):
            yield place.as_posix(), path.read_text()


def test_no_read_goes_round_the_accessor():
    found = {
        f"{place}:{each}"
        for place, text in sources()
        for each in Scan(KEYS, frozenset(NOT_TORCHS.get(place, ()))).of(text)
    }
    assert found == set()


def test_what_is_not_torchs_is_there():
    assert {
        (place, text)
        for place, source in sources()
        for text in NOT_TORCHS.get(place, ())
        if not any(
            each.rpartition(" ")[2].strip("'") == text for each in Scan(KEYS, NONE).of(source)
        )
    } == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch._inductor.ir", ["1: import torch._inductor.ir"]),
        ("from torch._guards import CompileContext", ["1: import torch._guards"]),
        ("from torch import _C", ["1: import _C"]),
        ("import torch.utils.flop_counter", ["1: import torch.utils.flop_counter"]),
        ("import_module('torch._dynamo')", ["1: import 'torch._dynamo'"]),
        ("sys.modules.get('torch._dynamo.utils')", ["1: import 'torch._dynamo.utils'"]),
        ("torch._C", ["1: attribute torch._C"]),
        ("getattr(x, 'mutation_real_name', {})", ["1: getattr 'mutation_real_name'"]),
        ("hasattr(x, 'get_nodes')", ["1: hasattr 'get_nodes'"]),
        ("inspect.getattr_static(x, 'node')", ["1: getattr_static 'node'"]),
        ("vars(eval_frame)['_maybe_set_eval_frame']", ["1: held '_maybe_set_eval_frame'"]),
        ("frame.f_locals.get('hooks', ())", ["1: held 'hooks'"]),
        ("frame.f_globals['__compiled_fn_1']", ["1: held '__compiled_fn_1'"]),
        ("node.__dict__['origins']", ["1: held 'origins'"]),
        ("node.meta['seq_nr']", ["1: key 'seq_nr'"]),
        ("node.meta.get('partitioner_tag')", ["1: key 'partitioner_tag'"]),
        ("'val' in node.meta", ["1: key 'val'"]),
        ("type(dep).__name__ == 'WeakDep'", ["1: class 'WeakDep'"]),
        ("type(x).__name__ in ('A', 'B')", ["1: class 'A'", "1: class 'B'"]),
        ("def f(leaf: Any): return leaf.node", ["1: attribute node"]),
        ("def f(x: Any): return x.node.origins", ["1: attribute node", "1: attribute origins"]),
        ("def f(x: list[Any]):\n for y in x:\n  y.get_name()", ["3: attribute get_name"]),
        ("def f(x: Any): return [y.name for y in x]", ["1: attribute name"]),
        ("def f(x: Any):\n y = x\n return y.users", ["3: attribute users"]),
        ("def f(x: Any):\n y: Any = x[0]\n return y.users", ["3: attribute users"]),
        ("def f(x: Any):\n if (y := x[0]):\n  return y.users", ["3: attribute users"]),
        ("def f(x): return kernel_names.ORIGIN_NODE.of(x).meta", ["1: attribute meta"]),
        ("def f(x): return kernel_names.V.get().graph", ["1: attribute graph"]),
        ("def f(x):\n y, z = NAMES.V.get(), x\n return y.graph, z.graph", ["3: attribute graph"]),
    ],
)  # fmt: skip
def test_each_way_round_the_accessor_is_found(source, found):
    assert sorted(Scan(KEYS, NONE).of(source)) == sorted(found)


@pytest.mark.parametrize(
    "source",
    [
        "import torch.fx",
        "def f(node: torch.fx.Node): return node.meta",
        "def f(x: Any): return x.items()",
        "def f(x):\n y: torch.fx.Node = kernel_names.ORIGIN_NODE.of(x)\n return y.meta",
        "def f(x): return kernel_names.ORIGINS.of(x)",
        "getattr(x, '__name__')",
        "frame.f_globals.get('__name__')",
        "def f():\n 'seq_nr'",
    ],
)
def test_what_goes_through_it_is_not(source):
    assert Scan(KEYS, NONE).of(source) == []
