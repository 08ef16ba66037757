"""A process whose graphs come from a cache gives the attribution of the one that compiled them."""

from pathlib import Path

import pandas as pd
import pytest

from profiler_ext.sessions.session import Session, load
from tests.end_to_end.processes import EXAMPLES, profiled

pytestmark = pytest.mark.whole

WHERE = ["node", "aten_op", "seq_nr", "phase", "autograd_backward", "forward_node", "file", "line"]
WHERE += ["function", "code", "user_file", "user_line", "module", "module_class", "gap"]
SITE = ["step", "kernel", "kind", "call_site", "graph", "compile_id", "kernel_source"]


def placed(session: Session) -> pd.DataFrame:
    """All that a table says of compiled launches but their time and its evidence."""
    launches = session.launches()
    launches = launches[launches.graph.notna()]
    rows = session.attribution()[["launch", *WHERE]]
    return launches[["launch", *SITE]].merge(rows, on="launch").drop(columns="launch")


@pytest.mark.parametrize(("variable", "state"), [("1", "aot_hit"), ("0", "fx_hit")])
def test_a_warm_process_gives_the_attribution_of_the_cold_one(
    mlp: Session, cache: Path, tmp_path: Path, variable: str, state: str
) -> None:
    extra = {"TORCHINDUCTOR_AUTOGRAD_CACHE": variable}
    warm = load(profiled(cache, tmp_path, EXAMPLES / "mlp.py", **extra))
    assert set(mlp.graphs().cache_state) == {"miss"}
    assert set(warm.graphs().cache_state) == {state}
    pd.testing.assert_frame_equal(placed(warm), placed(mlp))
    assert list(warm.graphs().fx_nodes) == list(mlp.graphs().fx_nodes)


def test_a_file_whose_lines_have_moved_gives_the_lines_of_today(
    mlp: Session, cache: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved.py"
    moved.write_text("# one more line\n" * 7 + (EXAMPLES / "mlp.py").read_text())
    warm = load(profiled(cache, tmp_path, moved))
    assert set(warm.graphs().cache_state) == {"aot_hit"}
    old, new = placed(mlp), placed(warm)
    assert set(new.file) == {str(moved)}
    assert list(new.line) == list(old.line + 7)
    assert list(new.code) == list(old.code)
    kept = ["kernel", "call_site", "node", "phase", "forward_node", "module"]
    pd.testing.assert_frame_equal(new[kept], old[kept])
