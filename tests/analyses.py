"""Owns small analyses made by hand: a training step on a GPU, and one on the CPU.

Every number is written out, so that a test can compare whole values.
The GPU step runs from 0 to 1,000,000 ns; its nine launches take 234,501 ns, of which
10,000 ns overlap on one stream.
"""

from __future__ import annotations

from profiler_ext.records import (
    Analysis,
    CacheState,
    CallSite,
    Device,
    Frame,
    FxNode,
    GraphInstance,
    IdleSpan,
    LedgerLine,
    LineEvidence,
    ModuleFrame,
    Phase,
    Place,
    Provenance,
    Recording,
    Settings,
    SiteKind,
    Step,
    Thread,
)
from profiler_ext.records import Level as Lv
from tests.handmade import Mark, Row, launches, shares, trace

MAIN = Thread(4242, 4242)
AUTOGRAD = Thread(4242, 4300)
COMPUTE = Thread(0, 7)
COPY = Thread(0, 20)
MODEL = "/home/ann/gpt/model.py"
FORWARD_KEY = "fkeyforward"
BACKWARD_KEY = "fkeybackward"


def _host(name: str, thread: Thread, start: int, duration: int, **args: int) -> Mark:
    spelled = {key.replace("_", " "): value for key, value in args.items()}
    return Mark(name, "cpu_op", thread, start, duration, spelled)


def _call(name: str, thread: Thread, start: int, correlation: int) -> Mark:
    args = {"External id": correlation + 100, "correlation": correlation}
    category = "cuda_driver" if name.startswith("cu") and name[2].isupper() else "cuda_runtime"
    return Mark(name, category, thread, start, 4_000, args)


def _device(
    name: str, start: int, duration: int, correlation: int, thread: Thread = COMPUTE
) -> Mark:
    category = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name.split()[0], "kernel")
    args = {
        "External id": correlation + 100,
        "device": 0,
        "stream": thread.tid,
        "correlation": correlation,
    }
    return Mark(name, category, thread, start, duration, args)


GPU_MARKS = (
    Mark("ProfilerStep#3", "user_annotation", MAIN, 0, 1_000_000, {"External id": 1}),
    _host("aten::copy_", MAIN, 10_000, 20_000, External_id=111),
    _call("cudaMemcpyAsync", MAIN, 12_000, 11),
    _host("Torch-Compiled Region: 0/0", MAIN, 40_000, 160_000, External_id=2),
    _host("CompiledFunction", MAIN, 45_000, 150_000, External_id=3, Sequence_number=510),
    Mark(
        f"## Call CompiledFxGraph {FORWARD_KEY} ##",
        "user_annotation",
        MAIN,
        50_000,
        140_000,
        {"External id": 4},
    ),
    _host("aten::addmm", MAIN, 60_000, 20_000, External_id=112),
    _call("cudaLaunchKernelExC", MAIN, 65_000, 12),
    _host("triton_poi_fused__to_copy_gelu_0", MAIN, 90_000, 10_000, External_id=113),
    _call("cuLaunchKernel", MAIN, 92_000, 13),
    _host(
        "CompiledFunctionBackward",
        AUTOGRAD,
        220_000,
        150_000,
        External_id=5,
        Sequence_number=510,
        Fwd_thread_id=1,
    ),
    Mark(
        f"## Call CompiledFxGraph {BACKWARD_KEY} ##",
        "user_annotation",
        AUTOGRAD,
        225_000,
        140_000,
        {"External id": 6},
    ),
    _call("cuLaunchKernel", AUTOGRAD, 240_000, 14),
    _host("aten::mm", AUTOGRAD, 250_000, 20_000, External_id=115),
    _call("cudaLaunchKernelExC", AUTOGRAD, 255_000, 15),
    _call("cudaLaunchKernelExC", AUTOGRAD, 280_000, 16),
    _host("aten::add_", AUTOGRAD, 380_000, 20_000, External_id=117, Sequence_number=511),
    _call("cudaLaunchKernel", AUTOGRAD, 385_000, 17),
    Mark(
        "Optimizer.step#AdamW.step", "user_annotation", MAIN, 440_000, 300_000, {"External id": 7}
    ),
    _host("aten::zero_", MAIN, 450_000, 20_000, External_id=118),
    _call("cudaMemsetAsync", MAIN, 455_000, 18),
    _host("aten::_fused_adamw_", MAIN, 500_000, 100_000, External_id=119),
    _call("cudaLaunchKernel", MAIN, 590_000, 19),
    _device("Memcpy HtoD (Pinned -> Device)", 50_000, 10_000, 11, COPY),
    _device("nvjet_tst_64x8_64x16_1x4_h_bz_TNT", 100_000, 50_000, 12),
    _device("triton_poi_fused__to_copy_gelu_0", 160_000, 20_001, 13),
    _device("triton_red_fused_gelu_backward_sum_0", 310_000, 30_000, 14),
    _device("nvjet_tst_128x64_64x8_2x1_v_bz_NTT", 330_000, 40_000, 15),
    _device("void cutlass::Kernel2<cutlass_80_wmma_tensorop>(Params)", 400_000, 20_000, 16),
    _device("void at::native::vectorized_elementwise_kernel<4, ...>", 430_000, 4_000, 17),
    _device("Memset (Device)", 500_000, 500, 18),
    _device(
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>",
        700_000,
        60_000,
        19,
    ),
)

_UP = Frame(MODEL, 12, "forward", "h = self.up(x)")
_GELU = Frame(MODEL, 13, "forward", "h = F.gelu(h)")
_CAST = Frame(MODEL, 14, "forward", "return self.down(h.to(x.dtype))")
_TRAIN = Frame("/home/ann/gpt/train.py", 40, "main", "loss = model(x, y)")


def _place(
    graph: int, node: str, op: str, seq_nr: int, phase: Phase, frame: Frame, module: str
) -> Place:
    return Place(
        graph=graph,
        node=node,
        aten_op=op,
        seq_nr=seq_nr,
        phase=phase,
        autograd_backward=phase is Phase.BACKWARD,
        forward_node=None if phase is Phase.FORWARD else node.split("_")[0],
        file=frame.file,
        line=frame.line,
        function=frame.function,
        code=frame.code,
        user_file=frame.file,
        user_line=frame.line,
        stack=(_TRAIN, frame),
        module=module,
        module_class={"mlp": "MLP"}.get(module, "Linear"),
        level=Lv.LINE,
        evidence=LineEvidence.COMPILED,
    )


GPU_PLACES = (
    Place(aten_op="aten::copy_", level=Lv.OP, gap="no_source_line"),
    _place(0, "addmm", "aten.addmm.default", 100, Phase.FORWARD, _UP, "mlp.up"),
    _place(0, "gelu", "aten.gelu.default", 101, Phase.FORWARD, _GELU, "mlp"),
    _place(0, "convert", "prims.convert_element_type", 102, Phase.FORWARD, _CAST, "mlp.down"),
    _place(1, "gelu_backward", "aten.mul.Tensor", 101, Phase.BACKWARD, _GELU, "mlp"),
    _place(1, "sum_1", "aten.sum.dim_IntList", 100, Phase.BACKWARD, _UP, "mlp.up"),
    _place(1, "mm_1", "aten.mm.default", 100, Phase.BACKWARD, _UP, "mlp.up"),
    Place(graph=1, phase=Phase.BACKWARD, gap="ambiguous_extern_run"),
    Place(
        aten_op="aten::add_",
        phase=Phase.GRADIENT_ACCUMULATION,
        level=Lv.OP,
        gap="no_source_line",
    ),
    Place(aten_op="aten::zero_", phase=Phase.OPTIMIZER, level=Lv.OP, gap="no_source_line"),
    Place(aten_op="aten::_fused_adamw_", phase=Phase.OPTIMIZER, level=Lv.OP, gap="no_source_line"),
)

GPU_ROWS = (
    Row(23, ((0, 10_000),), "memcpy", "other", "op", "", 3, op_event=1, evidence="launching_op"),
    Row(
        24,
        ((1, 50_000),),
        "extern",
        "forward",
        "line",
        "extern_kernels.addmm",
        3,
        0,
        0,
        6,
        "call_order_and_op",
    ),
    Row(
        25,
        ((2, 13_334), (3, 6_667)),
        "triton",
        "forward",
        "line",
        "triton_poi_fused__to_copy_gelu_0",
        3,
        0,
        1,
        8,
        "call_order",
    ),
    Row(
        26,
        ((4, 20_000), (5, 10_000)),
        "triton",
        "backward",
        "line",
        "triton_red_fused_gelu_backward_sum_0",
        3,
        1,
        0,
        10,
        "call_order",
    ),
    Row(
        27,
        ((6, 40_000),),
        "extern",
        "backward",
        "line",
        "extern_kernels.mm",
        3,
        1,
        1,
        13,
        "call_order_and_op",
    ),
    Row(
        28,
        ((7, 20_000),),
        "extern",
        "backward",
        "none",
        "",
        3,
        1,
        op_event=10,
        gap="ambiguous_extern_run",
    ),
    Row(
        29,
        ((8, 4_000),),
        "eager",
        "gradient_accumulation",
        "op",
        "",
        3,
        op_event=16,
        evidence="autograd_sequence_number",
    ),
    Row(
        30, ((9, 500),), "memset", "optimizer", "op", "", 3, op_event=19, evidence="optimizer_range"
    ),
    Row(
        31,
        ((10, 60_000),),
        "eager",
        "optimizer",
        "op",
        "",
        3,
        op_event=21,
        evidence="optimizer_range",
    ),
)


def _graph(index: int, key: str, backward: bool, sites: tuple[CallSite, ...]) -> GraphInstance:
    places = [place for place in GPU_PLACES if place.graph == index and place.node]
    nodes = tuple(
        FxNode(
            name=place.node or "",
            target=place.aten_op or "",
            seq_nr=place.seq_nr,
            stack=place.stack,
            modules=(ModuleFrame(place.module or "", place.module_class or ""),),
            partitioner_tag="is_backward" if backward else "is_forward",
            autograd_backward=backward,
            forward_node=place.forward_node,
        )
        for place in places
    )
    return GraphInstance(
        index=index,
        key=key,
        compile_id="0/0",
        is_backward=backward,
        cache_state=CacheState.MISS,
        cache_detail=None,
        compile_ns=2_000_000_000,
        output_module=f"/cache/inductor/{key}.py",
        provenance=Provenance(
            f"digest{index}", "2.11.0", backward, False, "joint0", None, nodes, sites
        ),
        nodes=nodes,
        line_evidence=(LineEvidence.COMPILED,) * len(nodes),
    )


def _site(ordinal: int, kind: SiteKind, kernel: str, op: str | None, *nodes: str) -> CallSite:
    return CallSite(ordinal, str(ordinal), kind, kernel, op, nodes, (1,) * len(nodes))


GPU_GRAPHS = (
    _graph(
        0,
        FORWARD_KEY,
        False,
        (
            _site(0, SiteKind.EXTERN, "extern_kernels.addmm", "aten::addmm", "addmm"),
            _site(1, SiteKind.TRITON, "triton_poi_fused__to_copy_gelu_0", None, "gelu", "convert"),
        ),
    ),
    _graph(
        1,
        BACKWARD_KEY,
        True,
        (
            _site(
                0,
                SiteKind.TRITON,
                "triton_red_fused_gelu_backward_sum_0",
                None,
                "gelu_backward",
                "sum_1",
            ),
            _site(1, SiteKind.EXTERN, "extern_kernels.mm", "aten::mm", "mm_1"),
        ),
    ),
)

GPU_IDLE = (
    IdleSpan(3, 0, 760_000, 240_000, None),
    IdleSpan(3, 0, 500_500, 199_500, "Optimizer.step#AdamW.step"),
    IdleSpan(3, 0, 180_001, 129_999, "CompiledFunctionBackward"),
    IdleSpan(3, 0, 434_000, 66_000, "Optimizer.step#AdamW.step"),
    IdleSpan(3, 0, 0, 50_000, "aten::copy_"),
    IdleSpan(3, 0, 60_000, 40_000, "Torch-Compiled Region: 0/0"),
    IdleSpan(3, 0, 370_000, 30_000, "aten::add_"),
    IdleSpan(3, 0, 150_000, 10_000, "Torch-Compiled Region: 0/0"),
    IdleSpan(3, 0, 420_000, 10_000, None),
)

GPU_LEDGER = (
    LedgerLine(3, 0, "compiled", "line", 130_001),
    LedgerLine(3, 0, "compiled", "ambiguous_extern_run", 20_000),
    LedgerLine(3, 0, "eager", "op", 74_500),
    LedgerLine(3, 0, "idle", "idle", 775_499),
)


def gpu_step() -> Analysis:
    """Return a step on one GPU: forward, backward, optimizer, copies, an overlap and a gap."""
    return Analysis(
        recording=Recording(
            trace=trace(GPU_MARKS, (Device(0, "NVIDIA H200"),)),
            graphs=GPU_GRAPHS,
            settings=Settings(
                user_roots=("/home/ann/gpt",),
                command=("train.py",),
                torch_version="2.11.0",
                step_source="prof.step",
            ),
        ),
        steps=(Step(3, 0, 1_000_000),),
        launches=launches(GPU_MARKS, GPU_ROWS),
        places=GPU_PLACES,
        shares=shares(GPU_ROWS),
        idle=GPU_IDLE,
        ledger=GPU_LEDGER,
    )


CPU_MARKS = (
    Mark("ProfilerStep#0", "user_annotation", MAIN, 0, 500_000, {"External id": 1}),
    _host("Torch-Compiled Region: 0/0", MAIN, 10_000, 300_000, External_id=2),
    _host("aten::addmm", MAIN, 20_000, 100_000, External_id=3),
    _host("cpp_fused_gelu_0", MAIN, 130_000, 60_001, External_id=4),
    _host("aten::_fused_adamw_", MAIN, 400_000, 50_000, External_id=5),
)

CPU_ROWS = (
    Row(
        2,
        ((1, 100_000),),
        "extern",
        "forward",
        "line",
        "extern_kernels.addmm",
        0,
        0,
        0,
        2,
        "call_order_and_op",
    ),
    Row(
        3,
        ((2, 40_001), (3, 20_000)),
        "cpp",
        "forward",
        "line",
        "cpp_fused_gelu_0",
        0,
        0,
        1,
        3,
        "call_order",
    ),
    Row(
        4,
        ((10, 50_000),),
        "eager",
        "optimizer",
        "op",
        "",
        0,
        op_event=4,
        evidence="optimizer_range",
    ),
)


def cpu_step() -> Analysis:
    """Return a step on the CPU: its launches are CPU events, and have no stream."""
    return Analysis(
        recording=Recording(trace=trace(CPU_MARKS), graphs=GPU_GRAPHS[:1]),
        steps=(Step(0, 0, 500_000),),
        launches=launches(CPU_MARKS, CPU_ROWS),
        places=GPU_PLACES,
        shares=shares(CPU_ROWS),
        idle=(IdleSpan(0, 0, 190_001, 209_999, "Torch-Compiled Region: 0/0"),),
        ledger=(
            LedgerLine(0, 0, "compiled", "line", 160_001),
            LedgerLine(0, 0, "eager", "op", 50_000),
            LedgerLine(0, 0, "idle", "idle", 289_999),
        ),
    )
