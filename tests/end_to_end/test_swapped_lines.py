"""Two functions that share cache entries, their lines swapped: each row leads to its own line.

``y = x * 3; z = x.detach() * 3`` and the same lines swapped give equal backward graphs, so they
share one cached artifact; a lookup by source-function name gives the wrong line.
"""

from pathlib import Path

import pytest

from profiler_ext.sessions.session import load
from tests.end_to_end.processes import python

pytestmark = pytest.mark.whole

SCRIPT = Path(__file__).parent / "scripts" / "swapped_lines.py"
FX_ONLY = {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}

Rows = list[tuple[str, str]]

RIGHT: dict[str, Rows] = {
    name: [("backward", f"{name}: y"), ("forward", f"{name}: y"), ("forward", f"{name}: z")]
    for name in ("first", "second")
}


def rows_of(folder: Path) -> Rows:
    """Phase and the remark on the line of every FX node that a launch computed."""
    rows = load(folder).attribution()
    nodes = rows[rows.node.notna()]
    remarks = nodes.code.str.partition("# ")[2]
    return sorted(zip(nodes.phase, remarks, strict=True))


def profile(cache: Path, folder: Path, *names: str, **extra: str) -> dict[str, Rows]:
    folder.mkdir()
    finished = python(cache, folder, SCRIPT, folder, *names, **extra)
    assert finished.returncode == 0, finished.stderr
    return {name: rows_of(folder / name) for name in names}


def states(folder: Path) -> set[str]:
    return set(load(folder).graphs().cache_state)


def test_each_row_leads_to_its_own_line_cold_and_warm(cache: Path, tmp_path: Path) -> None:
    assert profile(cache, tmp_path / "cold", "first", "second") == RIGHT
    assert profile(cache, tmp_path / "warm", "second", "first") == RIGHT
    assert profile(cache, tmp_path / "fx", "second", "first", **FX_ONLY) == RIGHT
    assert states(tmp_path / "warm" / "first") == {"aot_hit"}
    assert states(tmp_path / "fx" / "first") == {"fx_hit"}
    keys = [set(load(tmp_path / "cold" / name).graphs().key) for name in ("first", "second")]
    assert keys[0] < keys[1], "the two functions no longer share a cache entry"


@pytest.fixture(scope="module")
def other_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("other")


def test_each_row_leads_to_its_own_line_in_the_other_order(
    other_cache: Path, tmp_path: Path
) -> None:
    assert profile(other_cache, tmp_path / "cold", "second", "first") == RIGHT
    assert profile(other_cache, tmp_path / "warm", "first", "second") == RIGHT
