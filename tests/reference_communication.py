"""The page of the names by which communication is known, made from the table of them."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_ext.kineto.communication import KERNELS, OPS, VARIABLE, CommunicationNames

COMMUNICATION = f"""# Communication by name

A launch communicates if its kernel, or the op of the compiled graph that launched it, has one of
these names. Everything else is computation. Kernels that only prepare a collective, or process what
has arrived, are not listed: DeepEP's `get_dispatch_layout` is not.

What a collective does, its process group and its number come from the event's arguments, which
torch writes for its own backends. Elsewhere the range around the call (`nccl:all_to_all`) or the
kernel's name says what it does; the group is then unknown, and so is which rank waited:
`waiting_ns` is absent.

**Your own names.** `{VARIABLE}` in the environment of the process that reads the recording has
more names, separated by `;`. A kernel or op whose name contains one communicates. A name with `*`,
which matches any text, must match fully, as for `report --kernel`. Workers of your own scheduler
for `cluster` need the variable too.

<!-- not run: it needs a session with such a kernel -->
```console
$ {VARIABLE}='ring_sum;my_lib::exchange_*' profiler-ext report profile_out
```"""


def names() -> str:
    """Return the table of kernels and that of ops."""
    return "\n\n".join((_section("Kernels", KERNELS), _section("Ops and ranges", OPS)))


def _section(title: str, rows: Sequence[CommunicationNames]) -> str:
    head = "| library | names, as a pattern | for example | source |\n| --- | --- | --- | --- |"
    return "\n".join((f"## {title}\n\n{head}", *map(_row, rows)))


def _row(row: CommunicationNames) -> str:
    pattern, example = (text.replace("|", "\\|") for text in (row.pattern, row.example))
    return f"| {row.library} | `{pattern}` | `{example}` | {row.source} |"
