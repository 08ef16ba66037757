"""The nodes of a kernel are exact: each line's own constant stands in the code, or does not.

The constants are found in the C++ that Inductor generated; nothing of it is asked of Inductor.
"""

import random
import re
from pathlib import Path

import pytest

from profiler_ext.exporters.sources import recorded_modules
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.sessions.session import Session, load
from tests.end_to_end.processes import profiled

pytestmark = pytest.mark.whole

LINES = 14

HEAD = """\
import torch


def function(v0, weight):
"""
TAIL = """

torch.manual_seed(0)
v0 = torch.randn(48, 48, requires_grad=True)
weight = torch.randn(48, 48, requires_grad=True)
optimizer = torch.optim.SGD([v0, weight], lr=1e-3)
compiled = torch.compile(function)
for _ in range(4):
    compiled(v0, weight).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def constant(line: int) -> float:
    """A number that every printer writes the same way, one for each line."""
    return 1 + (line + 3) / 1024


def program(seed: int) -> str:
    """Random lines that read earlier values; each multiplies by its own constant."""
    dice = random.Random(seed)
    forms = (
        "torch.sin(v{a} * {c})",
        "v{a} * {c} + torch.cos(v{b})",
        "(v{a} * {c}).softmax(-1) + v{b}",
        "v{a} - (v{b} * {c}).mean(0, keepdim=True)",
        "torch.tanh(v{a} * {c}) @ weight",
        "weight @ (v{a} * {c} + v{b})",
        "(v{a} * {c}).sum(1, keepdim=True) - v{b}",
    )
    body = [
        f"    v{n + 1} = " + dice.choice(forms).format(
            a=dice.randint(max(0, n - 2), n), b=dice.randint(0, n), c=constant(n)
        )
        for n in range(LINES)
    ]  # fmt: skip
    kept = " + ".join(f"v{n}.sum()" for n in range(LINES - 5, LINES + 1))
    return HEAD + "\n".join(body) + f"\n    return {kept}\n" + TAIL


@pytest.fixture(scope="module")
def session(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "program.py").write_text(program(seed=11))
    return load(profiled(cache, folder, "program.py"))


def constants_in_code(session: Session, graph: GraphInstance) -> dict[str, set[float]]:
    """For each kernel of a generated module, the constants of our lines in its C++."""
    assert graph.output_module is not None
    ours = {constant(n) for n in range(LINES)}
    text = Path(graph.output_module).read_text()
    assert recorded_modules(session.recording)[graph.output_module] == text
    kernels = re.findall(
        r"^(cpp_\w+) = async_compile\.cpp_pybinding\((.*?)^'''\)", text, re.M | re.S
    )
    return {
        name: {float(number) for number in re.findall(r"\d+\.\d+", code)} & ours
        for name, code in kernels
    }


def constants_in_rows(session: Session, graph: GraphInstance) -> dict[str, set[float]]:
    """For each kernel, the constants on the lines of its nodes that multiply by one."""
    by_constant = {
        node.name
        for node in graph.nodes
        if node.target == "aten.mul.Tensor" and len(node.inputs) == 1
    }
    launches = session.launches()
    own = launches[(launches.graph == graph.key) & (launches.kind == "cpp")]
    rows = session.attribution().merge(own[["launch", "kernel"]], on="launch")
    found: dict[str, set[float]] = {kernel: set() for kernel in own.kernel}
    for row in rows[rows.node.isin(by_constant)].itertuples():
        found[row.kernel].add(float(re.findall(r"\d+\.\d+", row.code)[0]))
    return found


@pytest.mark.parametrize("half", ["forward", "backward"])
def test_a_kernel_s_lines_are_those_whose_constants_its_code_holds(
    session: Session, half: str
) -> None:
    graph = session.recording.graphs[half == "backward"]
    code = constants_in_code(session, graph)
    assert len(code) > 2
    assert len(set.union(*code.values())) > LINES - 5
    assert constants_in_rows(session, graph) == code
