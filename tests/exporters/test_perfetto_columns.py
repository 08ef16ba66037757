from __future__ import annotations

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.annotations import DictArgument, FloatArgument, IntArgument
from profiler_ext.exporters.perfetto.encoding import (
    ByteDictionary,
    Cells,
    double,
    doubles,
    encode_rows,
    fixed_integers,
    hstack,
    key_of,
    row_bytes,
    varint,
    varints,
)
from profiler_ext.exporters.perfetto.packets import FROM, TO, FlowIds
from tests.exporters.encoded_arguments import arguments_by_row
from tests.handmade import masked

NUMBERS = [0, 1, 127, 128, 2**14 - 1, 2**14, 2**56 + 3, 2**63 - 1, -1, -(2**63)]
NO_ROWS = np.empty(0, np.int64)


@pytest.mark.parametrize("numbers", [NUMBERS, [0, 0], [5], [300, 301], [0, 300], []])
def test_integers_are_encoded_in_one_width_and_read_back(numbers: list[int]) -> None:
    texts = row_bytes(varints(np.array(numbers, np.int64)))
    key = key_of(pb.DebugAnnotation, "int_value")
    assert [pb.DebugAnnotation.FromString(key + text).int_value for text in texts] == numbers
    narrowest = max((len(varint(number)) for number in numbers), default=0)
    assert [len(text) for text in texts] == [narrowest] * len(numbers)


def test_columns_stand_next_to_each_other() -> None:
    whole = hstack(2, varints(np.array([1, 2])), b"k", fixed_integers(np.array([0, 3])))
    assert row_bytes(whole) == [b"\1k" + bytes(8), b"\2k\3" + bytes(7)]
    assert row_bytes(hstack(1, doubles(np.array([1.0])))) == [double(1.0)]


def test_rows_of_different_shapes_each_have_their_own_cells() -> None:
    some = Cells(np.array([[1], [2], [3]], np.uint8), np.array([0, 2, 2, 3, 3]), b"k", b"n")
    every = Cells(np.array([[5, 5], [6, 6], [7, 7], [8, 8]], np.uint8), np.arange(5))
    texts, lengths = encode_rows([some, every], np.array([[0], [1], [2], [3]], np.uint8))
    assert texts == [b"k\3n\1\2\5\5\0", b"\6\6\1", b"k\2n\3\7\7\2", b"\x08\x08\3"]
    assert lengths.tolist() == [7, 2, 6, 2]
    assert encode_rows([], np.array([[9]], np.uint8)) == ([b"\x09"], [0])


def test_each_row_has_one_of_few_texts() -> None:
    texts, lengths = ByteDictionary([b"a", b"bc", b""]).chosen(np.array([1, 2, 1, 0]))
    assert (texts, lengths.tolist()) == ([b"bc", b"", b"bc", b"a"], [2, 0, 2, 1])


def test_arguments_come_back_and_absent_ones_are_not_reported() -> None:
    own = [
        IntArgument("every", np.array([0, -1, 2**62, 300])),
        IntArgument("some", masked([0, None, 7, None])),
        FloatArgument(
            "real", np.ma.MaskedArray([0.0, 1.5, 9.0, -2.25], [False, False, True, False])
        ),
        DictArgument(
            "parts",
            ["a", "b"],
            np.array([0, 2, 2, 3, 3]),
            np.array([1, 0, 1]),
            np.array([9, 0, 300]),
        ),
    ]
    assert arguments_by_row(own, [0, 1, 2, 3]) == [
        {"every": 0, "some": 0, "real": 0.0, "parts": {"b": 9, "a": 0}},
        {"every": -1, "real": 1.5},
        {"every": 2**62, "some": 7, "parts": {"b": 300}},
        {"every": 300, "real": -2.25},
    ]
    assert arguments_by_row(own, [3, 1]) == [
        {"every": 300, "real": -2.25},
        {"every": -1, "real": 1.5},
    ]


def test_a_row_has_all_its_arrows_in_their_order() -> None:
    flows = FlowIds(FROM, np.array([4, 2, 4]), np.array([10, 11, 9]))
    cells = flows.cells(2**40, np.array([4, 3, 2, 9]))
    assert cells is not None
    texts, _ = encode_rows([cells], np.zeros((4, 1), np.uint8))
    read = [list(pb.TrackEvent.FromString(text[:-1]).flow_ids) for text in texts]
    assert read == [[2**40 + 10, 2**40 + 9], [], [2**40 + 11], []]
    assert flows.cells(0, np.array([3, 1, 9])) is None
    assert FlowIds(TO, NO_ROWS, NO_ROWS).cells(0, np.array([0])) is None
