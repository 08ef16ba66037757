"""Owns that Dynamo leaves this package's own code alone.

A hook may run while Dynamo watches the thread's frames: under compiled autograd's flag the
engine builds its graph inside the region that is compiled. Torch's own files are skipped
there; without this, Dynamo would compile the hooks.

Source: ``torch/_dynamo/trace_rules.py``, ``add`` and ``SKIP_DIRS``.
"""

from __future__ import annotations

_PACKAGE = __name__.partition(".")[0]


def skip_own_code() -> None:
    """Tell Dynamo not to compile this package's frames."""
    from torch._dynamo import trace_rules

    trace_rules.add(_PACKAGE)


def forget_own_code() -> None:
    """Leave Dynamo's rules as they were found."""
    from importlib.util import find_spec

    from torch._dynamo import trace_rules

    spec = find_spec(_PACKAGE)
    folder = trace_rules._strip_init_py(spec.origin) if spec and spec.origin else None
    if folder in trace_rules.SKIP_DIRS:
        trace_rules.SKIP_DIRS.remove(folder)
        trace_rules._recompile_re()
