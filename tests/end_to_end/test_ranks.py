"""Two ranks on the CPU under torchrun: one session each, and one of both."""

import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext import load
from profiler_ext.merging import MergedSession
from tests.end_to_end.processes import environment

SCRIPT = Path(__file__).parent / "scripts" / "two_ranks.py"
UP = 1 + SCRIPT.read_text().splitlines().index("        return torch.relu(self.up(x)) * 0.5")


@pytest.fixture(scope="module")
def folder(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both ranks wrote into."""
    out = tmp_path_factory.mktemp("ranks") / "out"
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run = ("-m", "profiler_ext", "run", "--skip", "1", "--steps", "2", "-o", str(out), str(SCRIPT))
    done = subprocess.run(
        [sys.executable, *start, *run],
        env=environment(cache),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_each_rank_has_a_session_of_its_own(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["rank_0", "rank_1"]
    ranks = [set(load(folder / name).launches()["rank"]) for name in ("rank_0", "rank_1")]
    assert ranks == [{0}, {1}]


def test_collectives_communicate_in_their_process_group(folder: Path) -> None:
    table = load(folder).launches()
    calls = table[table.kind == "communication"]
    assert set(calls.name) == {"c10d::allreduce_", "c10d::broadcast_"}
    assert set(calls.process_group) == {"0"}
    assert table[table.kind != "communication"].process_group.isna().all()


def test_compute_is_led_to_its_lines_and_to_the_modules_of_the_users_model(folder: Path) -> None:
    merged = load(folder)
    assert isinstance(merged, MergedSession)
    merged.assert_coverage(1.0)
    parts = merged.attribution()
    products = parts[parts.aten_op == "aten.addmm.default"]
    found = products.groupby("rank")[["module", "line"]].apply(
        lambda p: set(p.itertuples(index=False))
    )
    expected = {("layers.0.up", UP), ("layers.1.up", UP)}
    assert [set(map(tuple, found[rank])) for rank in (0, 1)] == [expected, expected]
    assert set(parts.module.dropna()) == {
        "",
        *("layers.0", "layers.0.up", "layers.1", "layers.1.up"),
    }
