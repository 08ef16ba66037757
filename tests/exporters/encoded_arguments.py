"""What encoded arguments say, as the library reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.annotations import ColumnArgument, Texts
from profiler_ext.exporters.perfetto.encoding import encode_rows


def arguments_of(own: Sequence[ColumnArgument], row: int) -> dict[str, Any]:
    """Return what the arguments of one row are read as."""
    return arguments_by_row(own, [row])[0]


def arguments_by_row(own: Sequence[ColumnArgument], rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return what the arguments of some rows, encoded together, are read as."""
    texts = Texts()
    fields = [each.cells(texts, np.array(rows)) for each in own]
    behind = np.zeros((len(rows), 1), np.uint8)
    reported, lengths = encode_rows([each for each in fields if each is not None], behind)
    assert [len(each) - 1 for each in reported] == lengths.tolist()
    sent = pb.TracePacket.FromString(texts.unsent()).interned_data
    names = {each.iid: each.name for each in sent.debug_annotation_names}
    words = {each.iid: each.str.decode() for each in sent.debug_annotation_string_values}
    events = [pb.TrackEvent.FromString(each[:-1]) for each in reported]
    return [_arguments(event.debug_annotations, names, words) for event in events]


def _arguments(annotations: Any, names: dict[int, str], words: dict[int, str]) -> dict[str, Any]:
    return {names[each.name_iid]: _value(each, names, words) for each in annotations}


def _value(annotation: Any, names: dict[int, str], words: dict[int, str]) -> Any:
    if annotation.dict_entries:
        return _arguments(annotation.dict_entries, names, words)
    if annotation.HasField("string_value_iid"):
        return words[annotation.string_value_iid]
    return getattr(annotation, annotation.WhichOneof("value"))
