"""Sessions and profiles show themselves in Jupyter."""

from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.compiling import torch

assert torch  # profile needs it


def session() -> Session:
    shown = Session(gpu_step().recording)
    shown.analysis = gpu_step()
    return shown


def test_a_session_is_its_step_time_breakdown_and_top_lines() -> None:
    html = session()._repr_html_()
    assert "compiled: attributed to source" in html
    assert "h = self.up(x)" in html


def test_a_profile_is_its_last_session() -> None:
    from profiler_ext import profile

    prof = profile.__new__(profile)
    prof.sessions = []
    assert prof._repr_html_() is None
    prof.sessions = [session()]
    assert prof._repr_html_() == session()._repr_html_()


def test_a_profile_annotates_and_explains_its_last_session() -> None:
    from profiler_ext import profile

    prof = profile.__new__(profile)
    prof.sessions = [session()]
    assert prof.explain("model.py:12", width=80) == session().explain("model.py:12", width=80)
    assert prof.annotate("model.py", width=60) == session().annotate("model.py", width=60)
