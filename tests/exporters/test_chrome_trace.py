import json
from dataclasses import replace

import pytest

from profiler_ext.exporters.chrome_trace import arguments, export_chrome_trace
from profiler_ext.kineto.recording import read_recording
from tests.analyses import cpu_step, gpu_step
from tests.exporters.recorded import recorded
from tests.trace_processor import reading

MODEL = "/home/ann/gpt/model.py"
TRAIN = (
    f'  File "/home/ann/gpt/train.py", line 40, in main\n    loss = model(x, y)\n  File "{MODEL}", '
)


def stack(line: int, code: str) -> str:
    return f"{TRAIN}line {line}, in forward\n    {code}\n"


def written(analysis, path) -> dict:
    export_chrome_trace(analysis, path)
    return json.loads(path.read_bytes())


def test_a_fused_kernel_says_all_that_is_known():
    assert arguments(gpu_step())[25] == {
        "compile.scope": "compiled",
        "compile.phase": "forward",
        "compile.evidence": "call_order",
        "compile.mechanism": "own_stack",
        "compile.step": 3,
        "compile.call_site": 1,
        "compile.graph": "fkeyforward",
        "compile.compile_id": "0/0",
        "compile.source_module": "/cache/inductor/fkeyforward.py",
        "compile.nodes": ["gelu", "convert"],
        "compile.shares_ns": [13_334, 6_667],
        "compile.ops": ["aten.gelu.default", "prims.convert_element_type"],
        "compile.lines": [
            "model.py:13  h = F.gelu(h)",
            "model.py:14  return self.down(h.to(x.dtype))",
        ],
        "compile.modules": ["mlp", "mlp.down"],
        "stack": [stack(13, "h = F.gelu(h)"), stack(14, "return self.down(h.to(x.dtype))")],
    }


def test_a_gap_says_its_reason():
    assert arguments(gpu_step())[28] == {
        "compile.scope": "compiled",
        "compile.phase": "backward",
        "compile.gap": "ambiguous_extern_run",
        "compile.step": 3,
        "compile.graph": "fkeybackward",
        "compile.compile_id": "0/0",
        "compile.source_module": "/cache/inductor/fkeybackward.py",
        "compile.nodes": ["ambiguous_extern_run"],
        "compile.shares_ns": [20_000],
    }


def test_an_eager_launch_names_its_op():
    assert arguments(gpu_step())[29] == {
        "compile.scope": "eager",
        "compile.phase": "gradient_accumulation",
        "compile.evidence": "autograd_sequence_number",
        "compile.step": 3,
        "compile.nodes": ["aten::add_"],
        "compile.shares_ns": [4_000],
        "compile.ops": ["aten::add_"],
    }


@pytest.mark.parametrize(("make", "launches"), [(gpu_step, 9), (cpu_step, 3)])
def test_every_launch_has_arguments_and_its_shares_add_up(make, launches):
    analysis = make()
    found = arguments(analysis)
    assert len(found) == launches
    durations = analysis.recording.trace.events.duration_ns
    assert {at: sum(args["compile.shares_ns"]) for at, args in found.items()} == {
        int(row): int(durations[row]) for row in analysis.launches.event
    }


def test_nothing_but_arguments_of_launches_is_added(tmp_path):
    analysis = gpu_step()
    trace = analysis.recording.trace
    before = [json.loads(trace.raw[at]) for at in range(len(trace.raw))]
    after = written(analysis, tmp_path / "t.json")["traceEvents"]
    added = arguments(analysis)
    for at, event in enumerate(before):
        event["args"] |= {"compile.added": "keys", **added[at]} if at in added else {}
    assert after == before


def test_launches_are_found_by_position_where_other_events_stand_between(tmp_path):
    analysis = recorded("user")
    path = tmp_path / "t.json"
    events = written(analysis, path)["traceEvents"]
    device = [event for event in events if event.get("cat") in ("kernel", "gpu_memset")]
    device.sort(key=lambda event: event["ts"])
    assert [event["args"]["compile.lines"] for event in device] == [
        [f"model.py:{number}"] for number in range(len(device))
    ]


def test_the_written_file_is_a_session_again(tmp_path):
    analysis = gpu_step()
    path = tmp_path / "session.pt.trace.json.gz"
    export_chrome_trace(analysis, path)
    back = read_recording(path)
    assert back.graphs == analysis.recording.graphs
    assert back.settings == analysis.recording.settings
    raw = analysis.recording.trace.raw
    assert [back.trace.raw[at] for at in range(len(back.trace.raw))] == list(raw)


def test_names_from_the_trace_stay_data(tmp_path):
    analysis = gpu_step()
    code = 'x = "</script>\\u2028", "args": {'
    places = [replace(place, code=code) if place.line else place for place in analysis.places]
    path = tmp_path / "t.json"
    events = written(replace(analysis, places=tuple(places)), path)["traceEvents"]
    assert events[24]["args"]["compile.lines"] == [f"model.py:12  {code}"]
    raw = analysis.recording.trace.raw
    assert read_recording(path).trace.raw[24] == raw[24]


def test_the_real_trace_processor_reads_every_slice_and_the_lines(tmp_path):
    analysis = recorded("cg")
    path = tmp_path / "session.pt.trace.json"
    export_chrome_trace(analysis, path)
    with reading(path) as trace:
        assert trace.import_errors() == []
        events = analysis.recording.trace.events
        assert dict(trace.rows("select category, count(*) n from slice group by category")) == {
            None: 2,
            **{name: int(events.category.where(name).sum()) for name in events.category.strings},
        }
        lines = trace.rows(
            "select extract_arg(arg_set_id, 'args.compile.lines[0]') line from slice "
            "where category in ('kernel', 'gpu_memset') order by ts, id"
        )
    assert sorted(lines) == sorted((f"model.py:{row}",) for row in range(len(analysis.launches)))
