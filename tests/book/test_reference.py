"""The lists of variables and statuses in the book are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from profiler_ext.cli.common import NEVER_STEPPED, STATUSES
from profiler_ext.kineto.source import Limit
from profiler_ext.run import outcome
from profiler_ext.store.folder import LIMIT_BYTES
from tests.reference_environment import OTHERS, OURS

ROOT = Path(__file__).parents[2]
SOURCES = "\n".join(
    path.read_text()
    for folder in ("profiler_ext", "exporters")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
BY_LIBRARIES = {"COLUMNS", "NO_COLOR"}
"""What rich and the standard library read."""


def test_every_variable_of_ours_is_in_the_list() -> None:
    used = set(re.findall(r"\bPROFILER_EXT(?:_[A-Z]+)*\b", SOURCES))
    listed = {name for name, _, _ in OURS} | {limit.variable for limit in Limit}
    assert used == listed


def test_every_variable_of_others_that_is_read_is_in_the_list() -> None:
    asked = re.findall(r"(?:environ\.get|environ|_number)[(\[]\"([A-Z_]+)\"", SOURCES)
    named = re.findall(r"^_\w+ = \"(GITHUB_\w+)\"", SOURCES, re.MULTILINE)
    ours = {name for name, _, _ in OURS}
    assert {*asked, *named} - ours == {name for name, _, _ in OTHERS} - BY_LIBRARIES


def test_the_store_is_bounded_as_the_list_says() -> None:
    (bound,) = (default for name, default, _ in OURS if name == "PROFILER_EXT_STORE_BYTES")
    assert int(bound) == LIMIT_BYTES


def test_a_script_that_never_stepped_ends_as_the_list_says() -> None:
    assert outcome.NEVER_STEPPED == NEVER_STEPPED
    assert NEVER_STEPPED in STATUSES
