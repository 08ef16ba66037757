"""Every launch of a compiled training step has its lines: MLP, GPT and Llama, on the CPU."""

from pathlib import Path

import pandas as pd
import pytest

from profiler_ext.sessions.session import Session
from tests.end_to_end.processes import EXAMPLES

MODELS = ("mlp", *(pytest.param(name, marks=pytest.mark.whole) for name in ("gpt", "llama")))
COMPILED_OPTIMIZER = ("gpt",)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def session(model: str, request: pytest.FixtureRequest) -> Session:
    found: Session = request.getfixturevalue(model)
    return found


def compiled(session: Session) -> pd.DataFrame:
    launches = session.launches()
    return launches[launches.graph.notna()]


def parts(session: Session) -> pd.DataFrame:
    """The rows of compiled launches."""
    rows = session.attribution()
    return rows[rows.launch.isin(compiled(session).launch)]


def line_of(file: Path, text: str) -> int:
    [number] = [n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line]
    return number


def test_in_each_step_every_call_site_launched_once_in_its_order(session: Session) -> None:
    sites = session.graphs().set_index("key").call_sites
    found = compiled(session).groupby(["step", "graph"]).call_site.agg(list)
    assert set(found.index) == {(step, key) for step in (1, 2) for key in sites.index}
    for (_, key), order in found.items():
        assert order == [str(n) for n in range(sites[key])]


def test_kernels_are_matched_by_order_and_library_calls_by_order_and_op(session: Session) -> None:
    found = compiled(session).groupby("kind").evidence.unique().to_dict()
    assert {kind: list(each) for kind, each in found.items()} | {"extern": None} == {
        "cpp": ["call_order"],
        "extern": None,
    }
    assert set(found.get("extern", ["call_order_and_op"])) == {"call_order_and_op"}


def test_every_compiled_launch_is_attributed_to_lines(session: Session) -> None:
    assert set(compiled(session).level) == {"line"}
    rows = parts(session)
    known = rows[["node", "aten_op", "file", "line", "function", "code", "user_file"]]
    assert set(rows.gap.dropna()) == set()
    assert known[["node", "aten_op", "file", "line", "function", "code"]].notna().all(axis=None)
    session.assert_coverage(1.0, level="line", scope="compiled")


def test_forward_backward_and_optimizer_are_distinguished(model: str, session: Session) -> None:
    phases = session.by_phase().set_index("phase").duration_ns
    assert {"forward", "backward", "optimizer"} <= set(phases[phases > 0].index)
    graphs = ["forward", "backward", *(["optimizer"] if model in COMPILED_OPTIMIZER else [])]
    assert list(session.graphs().phase) == graphs


def test_backward_work_that_was_hoisted_into_the_forward_graph_stays_backward(
    session: Session,
) -> None:
    forward = session.recording.graphs[0]
    tags = {node.name: node.lineage.partitioner_tag for node in forward.nodes}
    rows = parts(session).merge(session.launches()[["launch", "graph"]], on="launch")
    there = rows[rows.graph == forward.key]
    hoisted = {name for name in there.node if tags[name] == "is_backward"}
    assert set(there.node[there.phase == "backward"]) == hoisted
    assert set(there.node[there.phase == "forward"]) == set(there.node) - hoisted


def test_backward_rows_carry_the_forward_s_node_file_line_and_module(session: Session) -> None:
    rows = parts(session)
    backward = rows[rows.phase == "backward"]
    assert len(backward) > 20
    assert backward[["forward_node", "file", "line", "module"]].notna().all(axis=None)
    forward, _, *_ = session.recording.graphs
    lines = {(frame.file, frame.line) for node in forward.nodes for frame in node.lineage.stack}
    assert set(zip(backward.file, backward.line, strict=True)) <= lines


def test_a_backward_node_has_the_stack_and_modules_of_the_forward_node_it_names(
    session: Session,
) -> None:
    forward, backward, *_ = session.recording.graphs
    nodes = {node.lineage.joint_name: node for node in forward.nodes if node.lineage.joint_name}
    differentiating = [
        node for node in backward.nodes if node.lineage.partitioner_tag == "is_backward"
    ]
    linked = [
        (n, nodes[n.lineage.forward_node])
        for n in differentiating
        if n.lineage.forward_node in nodes
    ]
    assert len(linked) > 10
    assert [one.name for one, other in linked if one.lineage.stack != other.lineage.stack] == []
    assert [one.name for one, other in linked if one.lineage.modules != other.lineage.modules] == []


def test_the_rows_of_a_launch_add_up_to_it(session: Session) -> None:
    launches = session.launches().set_index("launch").duration_ns
    sums = session.attribution().groupby("launch").duration_ns.sum()
    assert sums.to_dict() == launches.to_dict()


def test_every_table_s_total_is_the_device_time_of_the_steps(session: Session) -> None:
    launches = session.launches()
    measured = launches[launches.step.notna()].duration_ns.sum()
    tables = {
        "line": session.by_line(),
        "user line": session.by_line(view="user"),
        "module": session.by_module(),
        "module of depth 1": session.by_module(depth=1),
        "op": session.by_op(),
        "phase": session.by_phase(),
        "kernel": session.by_kernel(),
    }
    assert {name: table.duration_ns.sum() for name, table in tables.items()} == dict.fromkeys(
        tables, measured
    )
    phases = ["forward", "backward", "recompute", "gradient_accumulation", "optimizer", "other"]
    for table in tables.values():
        assert (table[phases].sum(axis=1) == table.duration_ns).all()


def test_the_breakdown_adds_up_to_the_wall_time_of_the_steps_with_idle(
    session: Session,
) -> None:
    wall = sum(step.wall_ns for step in session.analysis.steps)
    coverage = session.coverage()
    assert coverage.duration_ns.sum() == wall
    assert set(coverage.scope) == {"compiled", "eager", "idle"}
    for step in session.analysis.steps:
        assert session.coverage(step=step.number).duration_ns.sum() == step.wall_ns


def test_no_launch_is_outside_the_two_recorded_steps(session: Session) -> None:
    assert [step.number for step in session.analysis.steps] == [1, 2]
    assert set(session.launches().step.dropna()) == {1, 2}
    assert session.recording.settings.step_source == "Optimizer.step"


@pytest.mark.whole
def test_launches_of_repeated_layers_belong_to_their_own_layer(gpt: Session) -> None:
    """The kernels and libraries are the same for both layers: only the call site tells."""
    rows = parts(gpt).sort_values("launch")
    here = rows[rows.line == line_of(EXAMPLES / "gpt.py", "self.qkv(x).view")]
    first, second = "blocks.0.attention.qkv", "blocks.1.attention.qkv"
    forward = here[(here.aten_op == "aten.addmm.default") & (here.phase == "forward")]
    assert list(forward.module) == [first, second] * 2
    backward = here[(here.aten_op == "aten.mm.default") & (here.phase == "backward")]
    assert list(backward.module) == [second, second, first, first] * 2


@pytest.mark.whole
def test_modules_are_the_names_that_the_user_s_model_gives(gpt: Session) -> None:
    rows = parts(gpt)
    modules = set(rows[rows.phase != "optimizer"].module.dropna())
    layers = {"norm_1", "attention", "attention.qkv", "attention.out", "norm_2", "mlp", "mlp.down"}
    assert modules >= {f"blocks.{n}.{name}" for n in (0, 1) for name in layers}
    assert modules >= {"", "token", "norm", "head"}
    assert [name for name in modules if "[" in name or "L'" in name or "_orig_mod" in name] == []


@pytest.mark.whole
def test_a_line_has_its_code_and_its_time_forward_and_backward(gpt: Session) -> None:
    table = gpt.by_line().set_index("line")
    source = (EXAMPLES / "gpt.py").read_text().splitlines()
    own = table[table.file.str.endswith("examples/gpt.py").fillna(False)]
    assert len(own) > 8
    assert [source[number - 1].strip() for number in own.index] == list(own.code)
    down = own.loc[line_of(EXAMPLES / "gpt.py", "F.gelu(self.up(x))")]
    assert down.forward > 0
    assert down.backward > 0


@pytest.mark.whole
def test_a_modelling_library_s_line_is_the_model_s_and_the_user_s_line_is_the_call(
    llama: Session,
) -> None:
    rows = parts(llama)
    assert set(rows.file.dropna().map(lambda file: "/transformers/" in file)) == {True}
    assert rows.user_file.dropna().unique().tolist() in ([], [str(EXAMPLES / "llama.py")])
    layers = {f"model.layers.{n}.mlp.down_proj" for n in (0, 1)}
    assert layers <= set(rows[rows.phase == "backward"].module)


def test_an_eager_optimizer_s_launches_are_ops_of_the_optimizer(mlp: Session) -> None:
    rows = mlp.attribution()
    eager = rows[(rows.phase == "optimizer")]
    assert {"aten::lerp_", "aten::addcmul_", "aten::addcdiv_"} <= set(eager.aten_op)
    assert set(eager.node.dropna()) == set()


@pytest.mark.whole
def test_a_compiled_optimizer_s_launch_is_attributed_to_the_optimizer_s_lines(gpt: Session) -> None:
    rows = parts(gpt)
    optimizer = rows[rows.phase == "optimizer"]
    assert {Path(file).name for file in optimizer.file} == {"adam.py"}
    assert "aten.lerp.Scalar" in set(optimizer.aten_op)
    assert (optimizer.groupby("launch").node.nunique() > 100).all()
