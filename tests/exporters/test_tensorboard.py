import gzip
import json
import logging
from pathlib import Path

import pytest

from profiler_ext.exporters.chrome_trace import export_chrome_trace
from profiler_ext.exporters.tensorboard_plugin.export import export_tensorboard
from profiler_ext.kineto.reader import read_trace
from tests.analyses import cpu_step, gpu_step
from tests.exporters.recorded import recorded


def loaded(analysis, folder: Path):
    """Return the profile that the plugin shows for an exported analysis."""
    data = pytest.importorskip("torch_tb_profiler.profiler.data")
    generator = pytest.importorskip("torch_tb_profiler.profiler.run_generator")
    path = export_tensorboard(analysis, folder)
    parsed = data.RunProfileData.parse("rank0", None, str(path), str(folder))
    return parsed, generator.RunGenerator("rank0", None, parsed).generate_run_profile()


def kernels(profile) -> dict[tuple[str, str], float]:
    """Return device time in microseconds by kernel and operator, as the kernel view shows it."""
    columns = [column["name"] for column in profile.kernel_op_table["data"]["columns"]]
    rows = [dict(zip(columns, row, strict=True)) for row in profile.kernel_op_table["data"]["rows"]]
    return {(row["Name"], row["Operator"]): row["Total Duration (us)"] for row in rows}


def modules(stats) -> dict[str, tuple[int, float]]:
    """Return calls and device time of each module in the plugin's tree."""
    found: dict[str, tuple[int, float]] = {}
    for stat in stats:
        found[stat.name] = (stat.occurences, round(stat.device_duration, 3))
        found |= modules(stat.children)
    return found


# The plugin's own use of pandas, newer and older.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*copy keyword.*"),
    pytest.mark.filterwarnings("ignore:Downcasting object dtype arrays"),
]


def test_the_kernel_view_names_source_ops_and_line(tmp_path):
    _, profile = loaded(gpu_step(), tmp_path)
    rows = {pair: round(time, 3) for pair, time in kernels(profile).items()}
    assert rows == {
        (
            "nvjet_tst_64x8_64x16_1x4_h_bz_TNT",
            "[forward] aten.addmm @ model.py:12",
        ): 50.0,
        (
            "triton_poi_fused__to_copy_gelu_0",
            "[forward] aten.gelu + prims.convert_element_type @ model.py:13",
        ): 20.001,
        (
            "triton_red_fused_gelu_backward_sum_0",
            "[backward] aten.mul + aten.sum @ model.py:13",
        ): 30.0,
        ("nvjet_tst_128x64_64x8_2x1_v_bz_NTT", "[backward] aten.mm @ model.py:12"): 40.0,
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "aten::add_"): 4.0,
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>",
            "aten::_fused_adamw_",
        ): 60.0,
    }


def test_the_operator_view_has_the_source_stack(tmp_path):
    _, profile = loaded(gpu_step(), tmp_path)
    rows = profile.operation_stack_by_name["[backward] aten.mm @ model.py:12"]["data"]
    assert [row["call_stack"] for row in rows] == [
        "/home/ann/gpt/model.py(12): forward;/home/ann/gpt/train.py(40): main"
    ]


def test_the_module_view_has_forward_and_backward(tmp_path):
    _, profile = loaded(gpu_step(), tmp_path)
    assert modules(profile.module_stats) == {
        "(model)": (2, 70.001),
        "mlp": (2, 70.001),
        "mlp.up": (1, 50.0),
        "(model).backward": (2, 70.0),
        "mlp.backward": (2, 70.0),
        "mlp.up.backward": (1, 40.0),
    }


def test_a_cpu_step_has_modules_and_source_ops(tmp_path):
    _, profile = loaded(cpu_step(), tmp_path)
    names = {row["name"] for row in profile.operation_table_by_name["data"]}
    assert {
        "[forward] aten.addmm @ model.py:12",
        "[forward] aten.gelu + prims.convert_element_type @ model.py:13",
        "aten::_fused_adamw_",
    } <= names


@pytest.mark.parametrize("name", ["user", "cg"])
def test_on_a_recording_no_device_time_is_lost_or_doubled(tmp_path, name, caplog):
    analysis = recorded(name)
    with caplog.at_level(logging.WARNING):
        parsed, profile = loaded(analysis, tmp_path)
    assert [record.getMessage() for record in caplog.records] == []
    launches = analysis.launches
    total = int(launches.duration_ns.sum()) / 1000
    assert sum(op.self_device_duration for op in parsed.op_list_groupby_name) == pytest.approx(
        total, abs=1
    )
    events = analysis.recording.trace.events
    is_kernel = events.category.where("kernel")[launches.event].tolist()
    expected = {
        (launches.name[row], f"[forward] aten.sin @ model.py:{row}")
        for row in range(len(launches))
        if is_kernel[row]
    }
    assert set(kernels(profile)) == expected


def test_each_replayed_kernel_has_its_own_part_of_the_graph_launch(tmp_path):
    analysis = recorded("cg")
    original = analysis.recording.trace
    copy = read_trace(export_tensorboard(analysis, tmp_path))
    calls = original.events.name.where("cudaGraphLaunch")
    parts = copy.events.name.where("cudaGraphLaunch")
    correlations = original.events.correlation[calls].tolist()
    replayed = [each in correlations for each in analysis.launches.correlation.tolist()]
    assert int(parts.sum()) == sum(replayed)
    lost_ns = original.events.duration_ns[calls].sum() - copy.events.duration_ns[parts].sum()
    assert lost_ns == 4 * parts.sum()


def test_the_kernels_of_the_copy_are_those_of_the_trace(tmp_path):
    analysis = recorded("cg")
    copy = read_trace(export_tensorboard(analysis, tmp_path))
    for column in ("start_ns", "duration_ns", "stream", "device"):
        values = [
            getattr(trace.events, column)[trace.events.category.where("kernel")].tolist()
            for trace in (analysis.recording.trace, copy)
        ]
        assert values[0] == values[1]


def test_the_plugins_own_loader_finds_the_run(tmp_path):
    loader = pytest.importorskip("torch_tb_profiler.profiler.loader")
    io = pytest.importorskip("torch_tb_profiler.io")
    export_tensorboard(gpu_step(), tmp_path)
    run = loader.RunLoader("run", str(tmp_path), io.Cache()).load()
    assert run.workers == ["rank0"]
    assert [view.display_name for view in run.views] == [
        "Overview",
        "Operator",
        "Kernel",
        "Trace",
        "Module",
    ]


def test_the_plugin_can_append_its_own_events_to_the_session_file(tmp_path):
    _, profile = loaded(gpu_step(), tmp_path)
    path = tmp_path / "session.pt.trace.json"
    export_chrome_trace(gpu_step(), path)
    extended = gzip.decompress(profile.append_gpu_metrics(path.read_bytes()))
    added = len(profile.gpu_metrics)
    assert added > 0
    assert len(json.loads(extended)["traceEvents"]) == len(gpu_step().recording.trace.raw) + added
