"""How a long recording becomes a fixture of the book: its first steps, with neutral paths.

python -m tests.book.cut --steps 5 SESSION.pt.trace.json.gz tests/fixtures/h200/worked/NAME
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from tests.cases.neutral import SUFFIX, neutral, replaced, with_code

_STEP = "ProfilerStep#"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def cut(trace: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return a trace that ends with a step, and what was launched until then.

    Args:
        trace: Kineto's JSON.
        steps: how many steps are kept.
    """
    events = trace["traceEvents"]
    marks = [e for e in events if e["name"].startswith(_STEP) and e.get("cat") == "user_annotation"]
    last = sorted(marks, key=lambda event: event["ts"])[steps - 1]
    end = last["ts"] + last["dur"]
    kept = [event for event in events if _is_metadata(event) or _of_host(event, end)]
    launched = {e["args"]["correlation"] for e in kept if "correlation" in e.get("args", {})}
    names = {event["name"] for event in kept}
    kept += [event for event in events if _of_device(event, launched, names)]
    return {**trace, "traceEvents": kept}


def _is_metadata(event: dict[str, Any]) -> bool:
    return event["ph"] == "M" or "ts" not in event


def _of_host(event: dict[str, Any], end: float) -> bool:
    on_device = event.get("cat") in (*_ON_DEVICE, "gpu_user_annotation", "ac2g")
    return not _is_metadata(event) and not on_device and event["ts"] <= end


def _of_device(event: dict[str, Any], launched: set[int], names: set[str]) -> bool:
    category = event.get("cat")
    if category == "gpu_user_annotation":
        return event["name"] in names
    if category == "ac2g":
        return event["id"] in launched
    return category in _ON_DEVICE and event["args"].get("correlation") in launched


def _named(text: bytes) -> bytes:
    """Return the trace with its script's passing folder, and the checkout, called neutrally."""
    roots = json.loads(text)["profilerExt"]["settings"]["user_roots"]
    named = [(root, "/src" if root.startswith("/tmp/") else "/home/user/main") for root in roots]
    return replaced(with_code(text, named), named)


def main() -> None:
    """Cut a recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("session", type=Path)
    parser.add_argument("to", type=Path, help=f"without {SUFFIX}")
    options = parser.parse_args()
    trace = cut(json.loads(gzip.decompress(options.session.read_bytes())), options.steps)
    text = _named(json.dumps(trace, separators=(",", ":"), ensure_ascii=False).encode())
    options.to.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(neutral(text), 9, mtime=0)
    options.to.with_name(options.to.name + SUFFIX).write_bytes(packed)


if __name__ == "__main__":
    main()
