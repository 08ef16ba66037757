"""Owns telling who wrote a JSON file that is no Kineto trace, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

RECORD = "record the step with torch.profiler, or with `profiler-ext run`"
_NSIGHT = (b'"CudaEvent"', b'"NvtxEvent"', b'"TraceProcessEvent"')
_BEGINNING_BYTES = 1 << 20
_LIST = (
    "it is a list: Chrome and torch's legacy autograd profiler write one, Kineto an object; "
    + RECORD
)
_ASCEND = (b'"Ascend Hardware"', b'"async_npu"', b'"HostToDevice"', b'"Overlap Analysis"')
_ASCEND_LIST = (
    "it is a list of events, as torch_npu's trace_view.json is: traces of Ascend devices are not "
    "read; MindStudio Insight reads them"
)
_BY_KEY = (
    ("viztracer_metadata", b"", f"VizTracer wrote it; {RECORD}"),
    ("$schema", b"speedscope", f"it is a profile for speedscope; {RECORD}"),
    ("format", b"profiler_ext.attribution", "it is our attribution for TensorBoard: give the "
     "session.pt.trace.json.gz that it was made from"),
    ("answer", b"", "it is an answer of ours for programs: give the session that was asked"),
    ("timeDeltas", b"", f"it is a CPU profile of V8's; {RECORD}"),
    ("root_frame", b"", f"pyinstrument wrote it; {RECORD}"),
    ("resourceSpans", b"", f"it is a trace of OpenTelemetry; {RECORD}"),
    ("rocprofiler-sdk-tool", b"", f"AMD's rocprofv3 wrote it; {RECORD}"),
    ("nodes", b"", "it is an execution trace of torch, which has no times: give the trace that "
     "torch.profiler's export_chrome_trace wrote beside it"),
    ("metadata", b"DevTools", f"Chrome's DevTools wrote it; {RECORD}"),
    ("metadata", b"highres-ticks", f"JAX or XProf wrote it; {RECORD}"),
)  # fmt: skip


def other_writer(header: Mapping[str, msgspec.Raw]) -> str | None:
    """Return who wrote a file with these top-level keys, and the remedy, if they tell.

    Args:
        header: the keys and their JSON.
    """
    for key, word, description in _BY_KEY:
        if key in header and word in bytes(header[key]):
            return description
    return None


def writer_of_text(text: bytes) -> str | None:
    """Return who wrote text that is no single JSON object, and the remedy, if it tells."""
    beginning = text[:_BEGINNING_BYTES]
    if text.lstrip()[:1] == b"[":
        some = beginning + text[-_BEGINNING_BYTES:]
        is_ascend = any(word in some for word in _ASCEND)
        return _ASCEND_LIST if is_ascend else _LIST
    if any(word in beginning for word in _NSIGHT):
        return f"Nsight Systems wrote it, a line of JSON for each event; {RECORD}"
    return None
