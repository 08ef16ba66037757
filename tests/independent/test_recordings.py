"""Every recording is what the independent reader says it is, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.kineto.recording import read_recording
from tests.independent import held
from tests.independent.reader import launches, read_events

pytestmark = pytest.mark.sweep

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDINGS = sorted(FIXTURES.rglob("*.trace.json.gz"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_a_recording_is_what_intervals_alone_say(path: Path) -> None:
    held.assert_same(attribute(read_recording(path)), launches(read_events(path)))
