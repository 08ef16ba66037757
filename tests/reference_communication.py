"""The page of the names by which communication is known, made from the table of them."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_ext.kineto.communication import KERNELS, OPS, VARIABLE, CommunicationNames

COMMUNICATION = f"""# Communication by name

A launch communicates if its kernel, or the op of the compiled graph that launched it, has one of
these names. All else is computation. Kernels that only prepare a collective, or work on what has
arrived, are in no row: DeepEP's `get_dispatch_layout` is not.

What a collective does, its process group and its number come from the event's arguments, which
torch writes for its own backends. Elsewhere the range around the call (`nccl:all_to_all`) or the
kernel's name says what it does; the group is then not known, and neither is who waited for whom:
`waiting_ns` is absent.

**Names of your own.** `{VARIABLE}` in the environment of the process that reads the recording has
more names, with `;` between them. A kernel or op whose name holds one communicates; with `*` in it,
which stands for any text, the full name is meant, as for `report --kernel`. Where `cluster` reads
on a scheduler of yours, its workers need it.

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
