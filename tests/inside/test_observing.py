"""``profile(inside=...)``: kernels are looked into when its block ends."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import torch
import torch._dynamo

import profiler_ext
from profiler_ext.errors import CaptureWarning, UsageError
from profiler_ext.exporters.views.inside import FILE_NAME, inside_of
from profiler_ext.inside.observing import KernelObservation
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.inside import InsideRoute, MeasuredKernel, MeasuredSite
from profiler_ext.sessions.session import Session, load
from tests.exporters.explained import gpt
from tests.inside.test_selection import sources

# Another file may have compiled, and had capture forget it.
pytestmark = pytest.mark.filterwarnings("ignore::profiler_ext.errors.LateCaptureWarning")


@pytest.fixture(autouse=True, scope="module")
def capture_ends() -> Iterator[None]:
    """Other files find torch without capture."""
    yield
    profiler_ext.disable()


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # Inductor's
def test_without_a_gpu_the_session_is_there_and_why_no_kernel_was_looked_into() -> None:
    with (
        pytest.warns(CaptureWarning, match="no kernel was looked into: nothing "),
        profiler_ext.profile(inside=profiler_ext.Inside("a.py:1")) as prof,
    ):
        torch.ones(3).sum()
    assert prof.session.recording.measured == ()
    assert prof.session.has_work


class Looking:
    """Looks inside nothing, and notes the session that it was given."""

    def __init__(self) -> None:
        self.given: list[Session] = []

    def begin(self, guard: Guard) -> None:
        pass

    def end(self) -> None:
        pass

    def measured(self, session: Session) -> Session:
        self.given.append(session)
        return session.with_recording(session.recording)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # Inductor's
def test_the_session_that_is_looked_into_is_the_last_in_which_anything_ran() -> None:
    looking = Looking()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with profiler_ext.profile(inside=looking, schedule=schedule) as prof:
        for _ in range(3):
            torch.ones(3).sum()
            prof.step()
    assert [each.has_work for each in prof.sessions] == [True, False]
    (given,) = looking.given
    assert given.has_work
    assert prof.session is prof.sessions[0] is not given


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # Inductor's
def test_what_is_compiled_in_the_block_is_observed() -> None:
    observation = KernelObservation(Guard())
    observation.begin()
    try:
        torch._dynamo.reset()
        torch.compile(lambda x: torch.sin(x) + 1)(torch.ones(8))
    finally:
        observation.end()
        torch._dynamo.reset()
    with pytest.raises(UsageError, match="nothing ran on a GPU"):
        observation.chosen(gpt().analysis, "", 1)


def measured_of(analysis: object, most: int) -> list[MeasuredKernel]:
    """Kernels of the recorded session, whose first node takes all of the time."""
    assert analysis is gpt().analysis
    from profiler_ext.inside.selection import chosen_kernels

    return [
        MeasuredKernel(
            each.kernel, InsideRoute.KNOCK_OUT, each.launches, each.total_ns, each.step_ns,
            sites=tuple(
                MeasuredSite(
                    at.graph, at.site.ordinal, at.site.nodes,
                    (each.step_ns, *(0 for _ in at.site.nodes[1:])),
                )
                for at in each.sites
            ),
            text=each.source.text,
        )
        for each in chosen_kernels(gpt().analysis, sources(), "", most)
    ]  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(
        KernelObservation, "chosen", lambda self, analysis, name, most: measured_of(analysis, most)
    )
    monkeypatch.setattr(KernelObservation, "knocked_out", lambda self, chosen, *_: chosen)
    inside = profiler_ext.Inside(kernels=3)
    inside.begin(Guard())
    inside.end()
    return inside.measured(gpt())


def test_what_was_measured_replaces_the_model_also_after_it_was_kept(measured, tmp_path) -> None:
    evidence = measured.launches()["share_evidence"]
    assert (evidence == "measured_inside").sum() >= 3
    path = measured.save(tmp_path)
    assert load(path).launches().equals(measured.launches())
    assert [each.kernel for each in inside_of(tmp_path).kernels] == [
        each.kernel for each in measured.recording.measured
    ]
    assert gpt().recording.measured == ()


def test_saving_it_again_keeps_what_the_command_noted(measured, tmp_path) -> None:
    measured.save(tmp_path)
    answer = msgspec.structs.replace(inside_of(tmp_path), query="gpt.py:48")
    (tmp_path / FILE_NAME).write_bytes(msgspec.json.encode(answer))
    load(tmp_path).save(tmp_path)
    assert inside_of(tmp_path).query == "gpt.py:48"
