"""Two ranks on the CPU under torchrun: one session each, and one of both."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from profiler_ext import load
from profiler_ext.sessions.merging import MergedSession
from tests.end_to_end.processes import environment
from tests.patience import patience_s

SCRIPT = Path(__file__).parent / "scripts" / "two_ranks.py"
LINES = SCRIPT.read_text().splitlines()
UP = 1 + LINES.index("        return torch.relu(self.up(x)) * 0.5")
PARALLEL_UP = 1 + LINES.index("        h = torch.relu(self.up(x))")
SCALE = 1 + LINES.index("        self.scale.mul_(0.75)")
DOWN = 1 + LINES.index("        return self.down(h)")


@pytest.fixture(scope="module")
def folder(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both ranks wrote into."""
    out = tmp_path_factory.mktemp("ranks") / "out"
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run = ("-m", "profiler_ext", "run", "--skip", "2", "--steps", "2", "-o", str(out), str(SCRIPT))
    done = subprocess.run(
        [sys.executable, *start, *run],
        env=environment(cache),
        capture_output=True,
        text=True,
        timeout=patience_s(280),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_each_rank_has_a_session_of_its_own(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["rank_0", "rank_1"]
    ranks = [set(load(folder / name).launches()["rank"]) for name in ("rank_0", "rank_1")]
    assert ranks == [{0}, {1}]


@pytest.fixture(scope="module")
def merged(folder: Path) -> MergedSession:
    """Both ranks, of which every compiled launch is attributed to a line."""
    found = load(folder)
    assert isinstance(found, MergedSession)
    found.assert_coverage(1.0)
    return found


def parts_of(merged: MergedSession) -> pd.DataFrame:
    """The parts of the first step, with their launches; paths are those within each model."""
    launches = merged.launches()
    first = launches[launches.step == launches.step.min()]
    parts = merged.attribution().merge(
        first[["rank", "launch", "kind", "graph"]], on=["rank", "launch"]
    )
    parts["module"] = parts.module.str.replace(r"^Model( \w+)?\.?", "", regex=True)
    return parts


def test_collectives_communicate_in_their_process_group(merged: MergedSession) -> None:
    table = merged.launches()
    calls = table[table.kind == "communication"]
    assert set(calls.name) - {"c10d::broadcast_"} == {
        *("c10d::allreduce_", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_"),
        *("_c10d_functional::all_reduce_", "_c10d_functional::wait_tensor"),
    }
    assert set(calls.process_group) == {"0"}
    assert table[table.kind != "communication"].process_group.isna().all()


def test_compute_is_attributed_to_its_lines_and_to_the_modules_of_the_users_model(
    merged: MergedSession,
) -> None:
    parts = parts_of(merged)
    products = parts[parts.aten_op == "aten.addmm.default"]
    for rank in (0, 1):
        mine = products[products["rank"] == rank]
        assert set(mine[["module", "line"]].itertuples(index=False, name=None)) == {
            pair
            for n in (0, 1)
            for pair in (
                *((f"layers.{n}.up", UP), (f"layers.{n}.up", PARALLEL_UP)),
                (f"layers.{n}.down", DOWN),
            )
        }
    compiled = parts[parts.graph.notna() & parts.module.notna()]
    inside = {f"layers.{n}{name}" for n in (0, 1) for name in ("", ".up", ".down")}
    assert set(compiled.module) - {""} == inside


def test_fsdp_works_for_a_pass_and_a_module(merged: MergedSession) -> None:
    parts = parts_of(merged)
    gathers = parts[(parts.aten_op == "c10d::_allgather_base_") & (parts["rank"] == 1)]
    assert sorted(gathers[["phase", "module"]].itertuples(index=False, name=None)) == [
        *(("backward", "layers.0"), ("backward", "layers.1")),
        *(("forward", "layers.0"), ("forward", "layers.1")),
    ]


def test_a_mutated_subclass_input_is_copied_for_the_line_that_mutates(
    merged: MergedSession,
) -> None:
    parts = parts_of(merged)
    copies = parts[parts.aten_op == "aten.copy_.default"]
    found = copies[["rank", "phase", "module", "line"]].drop_duplicates()
    assert sorted(found.itertuples(index=False, name=None)) == [
        (rank, "forward", f"layers.{n}", SCALE) for rank in (0, 1) for n in (0, 1)
    ]


def test_traced_collectives_and_backward_nodes_are_attributed_through_subclass_inputs(
    merged: MergedSession,
) -> None:
    parts = parts_of(merged)
    traced = parts[parts.aten_op.str.startswith("_c10d_functional.").fillna(False)]
    places = traced[["phase", "module", "line"]].drop_duplicates()
    assert sorted(places.itertuples(index=False, name=None)) == [
        ("backward", "layers.1.up", PARALLEL_UP),
        *(("forward", f"layers.{n}.down", DOWN) for n in (0, 1)),
    ]
    assert set(traced.kind) == {"communication"}
    products = parts[(parts.aten_op == "aten.mm.default") & (parts.phase == "backward")]
    assert products.forward_node.str.startswith("addmm").all()
