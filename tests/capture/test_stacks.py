"""torch's stack traces become frames."""

from profiler_ext.capture.traces.stack_traces import parse_stack
from profiler_ext.records.lineage import Frame
from tests.capture.fx_graphs import frame_text


def test_frames_are_read_outermost_first_with_their_code() -> None:
    trace = frame_text("/m/train.py", 7, "main", "loss = model(x)") + frame_text(
        "/m/model.py", 21, "forward", "return F.relu(x)"
    )
    assert parse_stack(trace) == (
        Frame("/m/train.py", 7, "main", "loss = model(x)"),
        Frame("/m/model.py", 21, "forward", "return F.relu(x)"),
    )


def test_the_caret_lines_of_torch_2_13_are_no_frames_and_no_code() -> None:
    trace = (
        '  File "/m/train.py", line 7, in main\n'
        "    loss = model(x) + model(y)\n"
        "           ~~~~~~~~~^~~~~~~~~~\n"
        '  File "/m/model.py", line 21, in forward\n'
        "    ^^^^^^^^\n"
    )
    assert parse_stack(trace) == (
        Frame("/m/train.py", 7, "main", "loss = model(x) + model(y)"),
        Frame("/m/model.py", 21, "forward", None),
    )


def test_a_frame_without_code_does_not_take_the_next_frame_for_it() -> None:
    trace = '  File "/m/a.py", line 1, in f\n  File "/m/b.py", line 2, in g\n    y = 1\n'
    assert parse_stack(trace) == (Frame("/m/a.py", 1, "f"), Frame("/m/b.py", 2, "g", "y = 1"))


def test_a_path_with_quotes_and_blanks_and_a_lambda_are_read() -> None:
    assert parse_stack(frame_text('/m/my "best" model.py', 3, "<lambda>", "x * 2")) == (
        Frame('/m/my "best" model.py', 3, "<lambda>", "x * 2"),
    )


def test_no_trace_is_no_frames() -> None:
    assert parse_stack(None) == ()
    assert parse_stack("") == ()


def test_a_file_of_the_library_is_kept_relative_to_its_root() -> None:
    import torch

    [frame] = parse_stack(frame_text(torch.__file__, 1, "f", "x"))
    assert frame.file == "<site-packages>/torch/__init__.py"
