"""The address of the viewer unfolds the groups of the devices that a trace has, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.formats import format_named
from profiler_ext.exporters.perfetto import VIEWER, export_perfetto
from tests.analyses import cpu_step, gpu_step


def unfolded():
    """The pattern of the command, as the viewer reads it from the address."""
    _, _, query = urlsplit(VIEWER).fragment.partition("?")
    [command] = json.loads(parse_qs(query)["startupCommands"][0])
    assert command["id"] == "dev.perfetto.ExpandTracksByRegex"
    return re.compile(command["args"][0])


@pytest.mark.parametrize(
    ("analysis", "group"), [(gpu_step(), "GPU 0 - NVIDIA H200"), (cpu_step(), "CPU compute")]
)
def test_the_groups_of_devices_are_unfolded_and_nothing_else(analysis, group, tmp_path: Path):
    trace = pb.Trace.FromString(export_perfetto(analysis, tmp_path / "t.pftrace").read_bytes())
    described = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    assert {each.name for each in described if unfolded().search(each.name)} == {group}
    assert all(unfolded().search(f"{of}: {group}") for of in ("rank 11", "base", "head"))


def test_an_export_says_where_it_can_be_opened():
    [hint] = format_named("perfetto").hints(Path("out/trace.pftrace"))
    assert hint.startswith(f"open trace.pftrace at {VIEWER} ")
    assert "(" not in VIEWER and " " not in VIEWER
