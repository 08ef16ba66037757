from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler_ext.errors import OutputError
from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.records.vocabulary import IdleCause
from tests import analyses
from tests.gpu_events import GPU_MARKS
from tests.handmade import BASE_NS
from tests.trace_processor import Reader, reading

ON_STREAMS = "from slice s join track t on t.id = s.track_id where t.name like 'stream %'"


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path = tmp_path_factory.mktemp("perfetto") / "gpu.pftrace"
    export_perfetto(analyses.gpu_step(), path)
    with reading(path) as reader:
        yield reader


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path = tmp_path_factory.mktemp("perfetto") / "cpu.pftrace"
    export_perfetto(analyses.cpu_step(), path)
    with reading(path) as reader:
        yield reader


def test_gpu_trace_is_taken_without_an_import_error(gpu: Reader) -> None:
    assert gpu.import_errors() == []


def test_cpu_trace_is_taken_without_an_import_error(cpu: Reader) -> None:
    assert cpu.import_errors() == []


def test_each_launch_is_one_slice_on_a_stream_with_its_own_times(gpu: Reader) -> None:
    columns = analyses.gpu_step().launches
    expected = [
        (columns.name[row], columns.kind[row], int(columns.start_ns[row]), int(duration))
        for row, duration in enumerate(columns.duration_ns)
    ]
    drawn = gpu.rows(f"select s.name as name, s.category as category, ts, dur {ON_STREAMS}")
    assert sorted(drawn) == sorted(expected)


def test_overlapping_launches_of_one_stream_both_keep_their_duration(gpu: Reader) -> None:
    drawn = gpu.rows(f"select ts, dur {ON_STREAMS} and t.name = 'stream 7' and ts < 350000")
    assert (310_000, 30_000) in drawn
    assert (330_000, 40_000) in drawn


def test_cpu_events_keep_count_and_time_by_category(gpu: Reader) -> None:
    expected: dict[str, tuple[int, int]] = {}
    for mark in GPU_MARKS:
        if mark.thread.pid == 4242:
            count, total_ns = expected.get(mark.category, (0, 0))
            expected[mark.category] = (count + 1, total_ns + mark.duration_ns)
    drawn = gpu.rows(
        "select s.category as category, count(*) as n, sum(dur) as total "
        "from slice s join thread_track t on t.id = s.track_id group by 1"
    )
    assert {category: (n, total) for category, n, total in drawn} == expected


def test_cpu_calls_are_nested_under_their_callers(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select parent.name as caller from slice s join slice parent on s.parent_id = parent.id
        where s.name = 'cuLaunchKernel' and s.ts = 92000
    """)
    assert drawn == [("launch triton poi fused  to copy gelu 0",)]


def test_cpu_event_carries_its_ids(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select extract_arg(arg_set_id, 'debug.external_id') as external_id,
               extract_arg(arg_set_id, 'debug.sequence_number') as sequence_number,
               extract_arg(arg_set_id, 'debug.fwd_thread_id') as fwd_thread_id
        from slice where name = 'CompiledFunctionBackward' and category = 'cpu_op'
    """)
    assert drawn == [(5, 510, 1)]


def test_arguments_of_a_fused_launch_say_what_it_computed(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select key, display_value from slice join args using (arg_set_id)
        where category = 'triton' and ts = 160000 order by key
    """)
    assert drawn == [
        ("debug.aten_ops[0]", "aten.gelu.default"),
        ("debug.aten_ops[1]", "prims.convert_element_type"),
        ("debug.call_site", "1"),
        ("debug.compile_id", "0/0"),
        ("debug.correlation", "13"),
        ("debug.duration_ns", "20001"),
        ("debug.evidence", "call_order"),
        ("debug.external_id", "113"),
        ("debug.fx_nodes[0]", "gelu"),
        ("debug.fx_nodes[1]", "convert"),
        ("debug.generated_code", "/cache/inductor/fkeyforward.py"),
        ("debug.graph", "fkeyforward"),
        ("debug.kernel", "triton_poi_fused__to_copy_gelu_0"),
        ("debug.kind", "triton"),
        ("debug.launched_by", "triton_poi_fused__to_copy_gelu_0"),
        ("debug.level", "line"),
        ("debug.mechanism", "own_stack"),
        ("debug.modules[0]", "mlp"),
        ("debug.modules[1]", "mlp.down"),
        (
            "debug.not_fused[0]",
            "loads 8.39 MB of extern_kernels.addmm: a library call: aten::addmm, which a Triton "
            "template could compute (max_autotune is off)",
        ),
        ("debug.phase", "forward"),
        ("debug.scope", "compiled"),
        ("debug.seq_nrs[0]", "101"),
        ("debug.seq_nrs[1]", "102"),
        ("debug.shares_ns.convert #3", "6667"),
        ("debug.shares_ns.gelu #2", "13334"),
        ("debug.source_lines[0]", "model.py:13  h = F.gelu(h)"),
        ("debug.source_lines[1]", "model.py:14  return self.down(h.to(x.dtype))"),
        ("debug.source_paths[0]", "/home/ann/gpt/model.py:13"),
        ("debug.source_paths[1]", "/home/ann/gpt/model.py:14"),
        ("debug.step", "3"),
        ("debug.unit", "fp32"),
    ]


def test_launch_with_a_gap_names_it_and_claims_no_line(gpu: Reader) -> None:
    drawn = gpu.rows(f"""
        select extract_arg(s.arg_set_id, 'debug.gap') as gap,
               extract_arg(s.arg_set_id, 'debug.shares_ns.ambiguous_extern_run #7') as share,
               extract_arg(s.arg_set_id, 'debug.source_lines[0]') as line,
               extract_arg(s.arg_set_id, 'debug.call_site') as call_site
        {ON_STREAMS} and s.ts = 400000
    """)
    assert drawn == [("ambiguous_extern_run", 20_000, None, None)]


def test_backward_launch_names_its_forward_nodes(gpu: Reader) -> None:
    drawn = gpu.rows(f"""
        select extract_arg(s.arg_set_id, 'debug.forward_nodes[0]') as forward_node
        {ON_STREAMS} and s.ts = 310000
    """)
    assert drawn == [("gelu",)]


def test_each_launch_has_one_arrow_from_the_call_that_started_it(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select extract_arg(o.arg_set_id, 'debug.correlation') as started,
               extract_arg(i.arg_set_id, 'debug.correlation') as ran, o.name as call
        from flow join slice o on o.id = slice_out join slice i on i.id = slice_in order by ran
    """)
    calls = {mark.args.get("correlation"): mark.name for mark in GPU_MARKS[:23]}
    assert drawn == [(number, number, calls[number]) for number in range(11, 20)]


def test_tracks_of_a_gpu_stand_in_their_group(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select distinct t.name as name from track t join track g on g.id = t.parent_id
        where g.name = 'GPU 0 - NVIDIA H200'
    """)
    names = ["idle", "module", "phase", "source line", "steps", "stream 20", "stream 7"]
    assert sorted(name for (name,) in drawn) == names


def test_phase_lane_joins_launches_of_one_phase_and_nests_them_in_the_backward(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select s.name as name, ts, dur, extract_arg(arg_set_id, 'debug.launches') as n,
               extract_arg(arg_set_id, 'debug.launch_time_ns') as launch_time_ns
        from slice s where category = 'phase' order by ts
    """)
    assert drawn == [
        ("other", 50_000, 10_000, 1, 10_000),
        ("forward", 100_000, 80_001, 2, 70_001),
        ("backward", 310_000, 124_000, 3, 54_000),
        ("backward", 330_000, 40_000, 1, 40_000),
        ("gradient_accumulation", 430_000, 4_000, 1, 4_000),
        ("optimizer", 500_000, 260_000, 2, 60_500),
    ]


def test_source_line_lane_follows_the_largest_share_and_holds_the_code(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select name, ts, dur, extract_arg(arg_set_id, 'debug.code') as code
        from slice where category = 'source line' order by ts
    """)
    assert drawn == [
        ("model.py:12  h = self.up(x)", 100_000, 50_000, "h = self.up(x)"),
        ("model.py:13  h = F.gelu(h)", 160_000, 20_001, "h = F.gelu(h)"),
        ("model.py:13  h = F.gelu(h)", 310_000, 30_000, "h = F.gelu(h)"),
        ("model.py:12  h = self.up(x)", 330_000, 40_000, "h = self.up(x)"),
    ]


def test_module_lane_nests_as_the_modules_do(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select depth, name, ts, dur, extract_arg(arg_set_id, 'debug.launches') as n
        from slice where category = 'module' order by ts, depth
    """)
    assert drawn == [
        (0, "mlp", 100_000, 80_001, 2),
        (1, "mlp.up", 100_000, 50_000, 1),
        (0, "mlp", 310_000, 30_000, 1),
        (0, "mlp", 330_000, 40_000, 1),
        (1, "mlp.up", 330_000, 40_000, 1),
    ]


def test_idle_spans_say_what_the_cpu_did(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select name, ts, dur, extract_arg(arg_set_id, 'debug.cpu_activity') as did
        from slice where category = 'idle' order by ts
    """)
    assert drawn == [
        (
            f"idle: {IdleCause(piece.cause).label}",
            piece.start_ns,
            piece.duration_ns,
            piece.cpu_activity or "Python outside of any op",
        )
        for piece in analyses.GPU_IDLE
    ]


def test_steps_have_a_track(gpu: Reader) -> None:
    drawn = gpu.rows("""
        select s.name as name, ts, dur from slice s join track t on t.id = s.track_id
        where t.name = 'steps'
    """)
    assert drawn == [("step 3", 0, 1_000_000)]


def test_wall_clock_is_that_of_the_recording(gpu: Reader) -> None:
    drawn = gpu.rows("select clock_name, clock_value from clock_snapshot order by 1")
    assert drawn == [("BOOTTIME", 0), ("REALTIME", BASE_NS)]


def test_process_and_threads_are_named(gpu: Reader) -> None:
    processes = gpu.rows("select name from process where pid = 4242")
    threads = gpu.rows("select tid, name from thread where tid > 0 order by tid")
    assert processes == [("python train.py",)]
    assert threads == [(4242, "main"), (4300, "thread")]


def test_launches_of_a_cpu_run_stand_on_their_own_track(cpu: Reader) -> None:
    drawn = cpu.rows("""
        select s.name as name, s.category as kind, dur from slice s
        join track t on t.id = s.track_id join track g on g.id = t.parent_id
        where t.name = 'launches thread 4242' and g.name = 'CPU compute' order by ts
    """)
    assert drawn == [
        ("aten::addmm", "extern", 100_000),
        ("cpp_fused_gelu_0", "cpp", 60_001),
        ("aten::_fused_adamw_", "eager", 50_000),
    ]


def test_cpu_run_keeps_its_events_on_the_thread_too(cpu: Reader) -> None:
    drawn = cpu.rows(
        "select s.name as name from slice s join thread_track t on t.id = s.track_id order by ts"
    )
    assert drawn == [(mark.name,) for mark in analyses.CPU_MARKS]


def test_the_same_analysis_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "1.pftrace", tmp_path / "2.pftrace"
    export_perfetto(analyses.gpu_step(), first)
    export_perfetto(analyses.gpu_step(), second)
    assert first.read_bytes() == second.read_bytes()


def test_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*; choose another place"):
        export_perfetto(analyses.gpu_step(), tmp_path / "file" / "x.pftrace")
