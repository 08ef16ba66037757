from __future__ import annotations

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.byte_columns import (
    Few,
    behind,
    cut,
    doubles,
    fixed_integers,
    grouped,
    joined,
    side_by_side,
    varints,
)
from profiler_ext.exporters.perfetto.fields import varint
from profiler_ext.exporters.perfetto.flow_ids import FROM, TO, FlowIds
from profiler_ext.exporters.perfetto.own_arguments import Parts, Real, Whole, Word
from tests.exporters.said import said_by_rows
from tests.handmade import interned, masked

NUMBERS = [0, 1, 127, 128, 2**14 - 1, 2**14, 2**56 + 3, 2**63 - 1, -1, -(2**63)]
NO_ROWS = np.empty(0, np.int64)


@pytest.mark.parametrize("numbers", [NUMBERS, [0, 0], [5], [300, 301], [0, 300], []])
def test_integers_are_encoded_together_as_one_by_one(numbers: list[int]) -> None:
    pieces = cut(varints(np.array(numbers, np.int64)))
    assert pieces.texts == [varint(number) for number in numbers]
    assert pieces.lengths.tolist() == [len(text) for text in pieces.texts]


def test_columns_beside_each_other_are_one_piece_while_rows_are_of_one_length() -> None:
    head, tail = varints(np.array([1, 2])), fixed_integers(np.array([0, 3]))
    (whole,) = side_by_side([head, behind(b"k", tail)])
    assert whole.texts == [b"\1k" + bytes(8), b"\2k\3" + bytes(7)]
    varying = varints(np.array([0, 300]))
    first, second = side_by_side([varying, tail])
    assert joined([first, second]) == b"\0" + bytes(8) + varint(300) + b"\3" + bytes(7)


def test_rows_between_bounds_are_joined() -> None:
    pieces = [Few([b"a", b"bc", b""]).chosen(np.array([0, 1, 2, 1])), cut(doubles(np.zeros(4)))]
    zero = bytes(8)
    groups = grouped(pieces, np.array([0, 0, 2, 4]))
    assert groups.texts == [b"", b"a" + zero + b"bc" + zero, zero + b"bc" + zero]
    assert groups.lengths.tolist() == [0, 19, 18]
    assert grouped([cut(varints(NO_ROWS))], np.array([0, 0])).texts == [b""]


def test_arguments_come_back_and_absent_ones_are_not_said() -> None:
    own = [
        Whole("every", np.array([0, -1, 2**62, 300])),
        Whole("some", masked([0, None, 7, None])),
        Real("real", np.ma.MaskedArray([0.0, 1.5, 9.0, -2.25], [False, False, True, False])),
        Word("word", interned(["", "x", "", "y"])),
        Parts(
            "parts",
            ["a", "b"],
            np.array([0, 2, 2, 3, 3]),
            np.array([1, 0, 1]),
            np.array([9, 0, 300]),
        ),
    ]
    assert said_by_rows(own, [0, 1, 2, 3]) == [
        {"every": 0, "some": 0, "real": 0.0, "parts": {"b": 9, "a": 0}},
        {"every": -1, "real": 1.5, "word": "x"},
        {"every": 2**62, "some": 7, "parts": {"b": 300}},
        {"every": 300, "real": -2.25, "word": "y"},
    ]
    assert said_by_rows(own, [3, 1]) == [
        {"every": 300, "real": -2.25, "word": "y"},
        {"every": -1, "real": 1.5, "word": "x"},
    ]


def test_a_row_has_all_its_arrows_in_their_order() -> None:
    flows = FlowIds(FROM, np.array([4, 2, 4]), np.array([10, 11, 9]))
    pieces = flows.encoded(2**40, np.array([4, 3, 2]))
    assert pieces is not None
    read = [list(pb.TrackEvent.FromString(text).flow_ids) for text in pieces.texts]
    assert read == [[2**40 + 10, 2**40 + 9], [], [2**40 + 11]]
    assert flows.encoded(0, np.array([3, 1])) is None
    assert FlowIds(TO, NO_ROWS, NO_ROWS).encoded(0, np.array([0])) is None
