"""Regions that are compiled by themselves are led the same way from a cache, in a new process."""

from pathlib import Path

import pandas as pd
import pytest

from profiler_ext.sessions.session import Session, load
from tests.end_to_end.processes import profiled
from tests.end_to_end.test_warm_cache import SITE, WHERE

pytestmark = pytest.mark.whole

SCRIPT = Path(__file__).parent / "scripts" / "regions.py"


def run(folder: Path, name: str) -> Session:
    (folder / name).mkdir()
    return load(profiled(folder / "cache", folder / name, SCRIPT))


def placed(session: Session) -> pd.DataFrame:
    """All that a table says of the regions' launches but their time and its evidence."""
    launches = session.launches()
    launches = launches[launches.call_site.notna()]
    rows = session.attribution()[["launch", *WHERE]]
    return launches[["launch", *SITE]].merge(rows, on="launch").drop(columns="launch")


def test_a_warm_process_gives_the_regions_of_the_cold_one(tmp_path: Path) -> None:
    cold, warm = run(tmp_path, "cold"), run(tmp_path, "warm")
    assert set(cold.graphs().cache_state) == {"bypass"}
    assert set(warm.graphs().cache_state) == {"aot_hit"}
    pd.testing.assert_frame_equal(placed(warm), placed(cold))
    rows = placed(cold)
    assert {*zip(rows.phase, rows.module, strict=True)} == {
        (phase, module) for phase in ("forward", "backward") for module in "012"
    }
    assert rows[rows.phase == "backward"].forward_node.notna().all()
    for session in (cold, warm):
        session.assert_coverage(1.0)
