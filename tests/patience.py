"""How long tests wait for what can only end badly: a process or a thread that hangs.

A limit in seconds is a fact about a machine. What a test says of speed it says as a ratio, to a
piece of work that the same process measures; what merely must not hang may take many times as long
as it takes on a machine that has nothing else to do.
"""

from __future__ import annotations

TIMES = 10


def patience_s(usual_s: float) -> int:
    """Return the seconds after which something hangs that ends within some on an idle machine.

    Args:
        usual_s: more than it takes where nothing else runs.
    """
    return int(TIMES * usual_s)
