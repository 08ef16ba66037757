"""Each buffer that one kernel stores and another loads is known, with torch's last reason."""

import inspect
import re

import pytest
import torch
import torch._inductor.choices
import torch._inductor.codegen.simd
import torch._inductor.scheduler
from torch import nn

import profiler_ext
from profiler_ext.capture.graphs.intermediates import passed_between
from profiler_ext.records.provenance import CallSite
from profiler_ext.records.vocabulary import FusionBarrier, SiteKind
from profiler_ext.rooflines.intermediates import barrier_between
from profiler_ext.torch_compat.fusions import Operation, Refusals, Schedule, operations_of
from profiler_ext.torch_compat.traffic import Access


class _Why:
    def __init__(self, name1, name2):
        self.name1, self.name2 = name1, name2


def _load(buffer, moved, whole=None, pattern=None):
    return Access(buffer, pattern, moved, whole or moved)


def _store(buffer, moved, *users):
    return Access(buffer, None, moved, moved, frozenset(users))


def _operation(name, loads=(), stores=(), reads=None, writes=None):
    read = tuple(each.buffer for each in loads) if reads is None else reads
    written = tuple(each.buffer for each in stores) if writes is None else writes
    return Operation(name, read, written, tuple(loads), tuple(stores))


def _passed(operations, kernels, refusals=()):
    noted = Refusals()
    for pair, reason, *details in refusals:
        noted.note(_Why(*pair), reason, *details)
    return list(passed_between(Schedule(tuple(operations), noted, ()), kernels))


def test_a_buffer_within_one_kernel_is_none():
    operations = [
        _operation("op0", stores=[_store("buf0", 40, "op1")]),
        _operation("op1", loads=[_load("buf0", 40)], stores=[_store("buf1", 40, "OUTPUT")]),
    ]
    assert _passed(operations, {"op0": 0, "op1": 0}) == []
    (passed,) = _passed(operations, {"op0": 0, "op1": 1})
    assert (passed.buffer, passed.writer, passed.reader) == ("buf0", 0, 1)
    assert (passed.read_bytes, passed.written_bytes, passed.is_kept) == (40, 40, False)


def test_equal_loads_count_once_and_all_loads_at_most_the_whole_buffer():
    operations = [
        _operation("op0", stores=[_store("buf0", 40, "op1", "op2", "OUTPUT")]),
        _operation("op1", loads=[_load("buf0", 30, 40, "left")]),
        _operation("op2", loads=[_load("buf0", 30, 40, "right"), _load("buf0", 30, 40, "left")]),
    ]
    (passed,) = _passed(operations, {"op0": 0, "op1": 1, "op2": 1})
    assert (passed.read_bytes, passed.is_kept) == (40, True)


def test_an_op_without_a_kernel_passes_on_what_it_reads():
    operations = [
        _operation("op0", stores=[_store("part0", 10)]),
        _operation("op1", stores=[_store("part1", 30)]),
        _operation("op2", reads=("part0", "part1"), writes=("whole",)),
        _operation("op3", loads=[_load("whole", 40)]),
    ]
    passed = _passed(operations, {"op0": 0, "op1": 1, "op3": 2})
    assert [(each.buffer, each.writer, each.read_bytes) for each in passed] == [
        ("whole", 0, 10),
        ("whole", 1, 30),
    ]


def test_parts_that_are_concatenated_in_place_are_all_of_its_bytes():
    parts = [_store(f"buf{at}", 40, "op2") for at in range(2)]
    operations = [
        *(_operation(f"op{at}", stores=[part]) for at, part in enumerate(parts)),
        _operation("op2", reads=("buf0", "buf1"), writes=("buf2",)),
        _operation("op3", loads=[_load("buf2", 80)], stores=[_store("buf3", 80, "OUTPUT")]),
    ]
    (passed,) = _passed(operations, {"op0": 0, "op1": 0, "op3": 1})
    assert (passed.buffer, passed.read_bytes, passed.written_bytes) == ("buf2", 80, 80)


def test_one_output_of_several_is_of_the_kernel_that_made_all():
    operations = [
        _operation("op0", writes=("both",)),
        _operation("op1", reads=("both",), stores=[_store("first", 8, "op2")]),
        _operation("op2", loads=[_load("first", 8)]),
    ]
    (passed,) = _passed(operations, {"op0": 0, "op2": 1})
    assert (passed.writer, passed.reader, passed.read_bytes) == (0, 1, 8)


def test_the_last_reason_counts_and_one_that_tells_only_the_order_is_none():
    operations = [
        _operation("op0", stores=[_store("buf0", 8, "op2")]),
        _operation("op1"),
        _operation("op2", loads=[_load("buf0", 8)]),
    ]
    refusals = [
        (("op0", "op2"), "no shared data"),
        (("op0_op1", "op2"), "numel/rnumel mismatch (reduce) (%s, %s), (%s, %s)", 1, 2, 3, 4),
        (("op2", "op0_op1"), "node1 must go before node2"),
        (("op0_op2", "op1"), "of nodes that were not fused in the end"),
    ]
    (passed,) = _passed(operations, {"op0": 0, "op1": 0, "op2": 1}, refusals)
    assert passed.refusal == "numel/rnumel mismatch (reduce) (1, 2), (3, 4)"
    (passed,) = _passed(operations, {"op0": 0, "op1": 0, "op2": 1}, refusals[2:])
    assert passed.refusal is None


def test_ops_are_read_from_the_name_of_a_fused_node():
    assert operations_of("op3_op15") == ("op3", "op15")
    assert operations_of("repeated_subgraph0_op3_repeated_subgraph0_op4") == ("op3", "op4")
    assert operations_of("loop1") == ()


_GIVEN = re.compile(r"""(?:why|WhyNoFuse\(\w+, \w+\))\(\s*(["'])(.+?)\1""")


@pytest.mark.parametrize(
    "module",
    [
        torch._inductor.scheduler,
        torch._inductor.choices,
        torch._inductor.codegen.simd,
    ],
    ids=lambda module: module.__name__,
)
def test_each_reason_of_this_torch_has_a_kind(module):
    reasons = {reason for _, reason in _GIVEN.findall(inspect.getsource(module))}
    assert reasons
    site = CallSite(0, "0", SiteKind.TRITON, "triton_poi_0", None, (), ())
    unknown = {r for r in reasons if barrier_between(r, site, site) is FusionBarrier.OTHER}
    assert unknown == set()


class _Between(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)) * 2)


def test_a_compiled_model_keeps_its_buffers_and_a_cache_gives_them_back():
    records = []
    for _ in range(2):
        torch.compiler.reset()
        model = torch.compile(_Between(), backend="inductor")
        with torch.no_grad(), profiler_ext.profile(strict=True) as profiler:
            model(torch.randn(8, 16))
        graph = profiler.session.recording.graphs[-1]
        sites = graph.record.call_sites
        records.append(
            [
                (sites[each.writer].op, sites[each.reader].op, each.read_bytes, each.is_kept)
                for each in graph.record.intermediates
            ]
        )
    assert (
        records[0]
        == records[1]
        == [
            ("aten::addmm", None, 8 * 32 * 4, False),
            (None, "aten::addmm", 8 * 32 * 4, False),
        ]
    )
