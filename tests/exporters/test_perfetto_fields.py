import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.encoding import double, fixed, key_of, sized, varint

NUMBERS = (0, 1, 127, 128, 2**14 - 1, 2**14, 2**28 - 1, 2**28, 2**56 + 3, 2**63 - 1)


@pytest.mark.parametrize("number", [*NUMBERS, -1, -(2**14), -(2**63)])
def test_an_integer_with_a_sign_is_encoded_as_the_library_does(number):
    encoded = key_of(pb.DebugAnnotation, "int_value") + varint(number)
    assert encoded == pb.DebugAnnotation(int_value=number).SerializeToString()


@pytest.mark.parametrize("number", [*NUMBERS, 2**64 - 1])
def test_an_integer_without_a_sign_is_encoded_as_the_library_does(number):
    encoded = key_of(pb.TracePacket, "timestamp") + varint(number)
    assert encoded == pb.TracePacket(timestamp=number).SerializeToString()


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_an_integer_of_more_than_64_bits_is_refused(number):
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        varint(number)


@pytest.mark.parametrize("value", [0.0, -1.5, 1e300, float("inf")])
def test_a_float_is_encoded_as_the_library_does(value):
    encoded = key_of(pb.TrackEvent, "double_counter_value") + double(value)
    assert encoded == pb.TrackEvent(double_counter_value=value).SerializeToString()


def test_a_number_of_fixed_size_is_encoded_as_the_library_does():
    encoded = key_of(pb.TrackEvent, "flow_ids") + fixed(2**40 + 7)
    assert encoded == pb.TrackEvent(flow_ids=[2**40 + 7]).SerializeToString()


@pytest.mark.parametrize("length", [0, 127, 128, 20_000])
def test_a_message_in_a_message_is_encoded_as_the_library_does(length):
    inner = pb.TrackEvent(name="x" * length)
    encoded = sized(key_of(pb.TracePacket, "track_event"), inner.SerializeToString())
    assert encoded == pb.TracePacket(track_event=inner).SerializeToString()
