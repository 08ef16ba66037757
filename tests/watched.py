"""The mark of tests that watch which lines run, and what others leave out of a session."""

import sys

import pytest

from profiler_ext.attribution.launches.eager_lines import NO_LINES_REASONS
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.sessions.session import Session

needs_lines = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sys.monitoring tells lines from Python 3.12 on"
)


def other_gaps(session: Session) -> list[Gap]:
    """Return a recording's gaps, but for what the process of the tests decides.

    That is the Python that runs, and what other tests compiled before in it.
    """
    unasked = (*NO_LINES_REASONS, GapReason.COMPILES_INCOMPLETE)
    return [gap for gap in session.recording.gaps if gap.reason not in unasked]
