"""The model of the small training step: its places and its two compiled graphs."""

from __future__ import annotations

from profiler_ext.records.analysis import Place
from profiler_ext.records.evidence import LineEvidence, Mechanism
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.provenance import CallSite, GraphInstance, Intermediate, Provenance
from profiler_ext.records.vocabulary import CacheState, Phase, SiteKind
from profiler_ext.records.vocabulary import Level as Lv
from tests.fx_nodes import changed, fx_node
from tests.gpu_events import BACKWARD_KEY, FORWARD_KEY

MODEL = "/home/ann/gpt/model.py"

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
        forward_evidence=None if phase is Phase.FORWARD else "seq_nr",
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
        mechanism=Mechanism.OWN,
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


def _graph(
    index: int,
    key: str,
    backward: bool,
    sites: tuple[CallSite, ...],
    intermediates: tuple[Intermediate, ...],
) -> GraphInstance:
    places = [place for place in GPU_PLACES if place.graph == index and place.node]
    nodes = tuple(
        fx_node(
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
            f"digest{index}",
            "2.11.0",
            backward,
            False,
            "joint0",
            None,
            nodes,
            sites,
            intermediates=intermediates,
            fusion_options=("epilogue_fusion",),
        ),
        nodes=tuple(changed(node, evidence=LineEvidence.COMPILED) for node in nodes),
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
        (Intermediate("buf0", 0, 1, 8_388_608, 8_388_608, is_kept=True),),
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
        (Intermediate("buf3", 0, 1, 4_194_304, 4_194_304, refusal="node2 is extern or nop"),),
    ),
)
