"""Owns the reading of the comments that Inductor writes above each Triton kernel.

They hold, for the first call site of the kernel, the FX nodes that Inductor lists, what it
reads and what it writes, by the names of the post-grad graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_DEFINITION = re.compile(r"^(?P<name>\w+) = async_compile\.\w+\(")
_READ = re.compile(r"^#   %(?P<name>\w+) : Tensor \"?(?P<spec>\w+\[[^\]]*\])?.*= PlaceHolder\[")
_NODE = re.compile(r"^#   %(\w+) : .*= call_\w+\[target=")
_SOURCE = re.compile(r"^#   (?P<source>\w+) => (?P<nodes>.+)$")
_WRITES = re.compile(r"^#   return (?P<names>.*)$")
_PARAMETERS = re.compile(r"^def (?P<name>\w+)\((?P<names>[^)]*)\)", re.MULTILINE)
_NAMES = re.compile(r"Source Nodes: \[(?P<names>[^\]]*)\]")


@dataclass(frozen=True, slots=True)
class KernelComment:
    """What stands above a kernel.

    Attributes:
        origins: the FX nodes that Inductor lists, a superset of what it computes.
        reads: the values that it reads, and ``f32[4, 64]``, what each is; a buffer that holds no
            one node's value by its own name.
        writes: the same for what it writes.
        sources: the nodes of each source node, as Dynamo called it.
        parameters: what its function calls its arguments, ``in_ptr0`` and the like.
    """

    origins: tuple[str, ...]
    reads: Mapping[str, str | None]
    writes: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    parameters: tuple[str, ...] = ()


def kernel_comments(source: str) -> dict[str, KernelComment]:
    """Return the comment of each kernel of a generated module, by the kernel's name."""
    parameters = kernel_parameters(source)
    return {
        name: _comment(lines, parameters.get(name, ()))
        for name, lines in _definitions(source.splitlines())
        if any("Graph fragment" in line for line in lines)
    }


def kernel_parameters(source: str) -> dict[str, tuple[str, ...]]:
    """Return what each function of a generated module calls its arguments."""
    return {
        found["name"]: tuple(part.split(":")[0].strip() for part in found["names"].split(","))
        for found in _PARAMETERS.finditer(source)
    }


def source_names(heading: str) -> frozenset[str]:
    """Return the source nodes that the comment above a call names."""
    found = _NAMES.search(heading)
    return frozenset(found["names"].split(", ")) if found else frozenset()


def _definitions(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    comment: list[str] = []
    for line in lines:
        if line.startswith("#"):
            comment.append(line)
            continue
        if (found := _DEFINITION.match(line)) is not None:
            yield found["name"], comment
        comment = []


def _comment(lines: list[str], parameters: tuple[str, ...]) -> KernelComment:
    writes = _found(_WRITES, lines)
    reads = (match for line in lines if (match := _READ.match(line)))
    sources = (match for line in lines if (match := _SOURCE.match(line)))
    return KernelComment(
        origins=_found(_NODE, lines),
        reads={match["name"]: match["spec"] for match in reads},
        writes=tuple(n.strip().removeprefix("%") for n in writes[0].split(",")) if writes else (),
        sources={match["source"]: tuple(match["nodes"].split(", ")) for match in sources},
        parameters=parameters,
    )


def _found(pattern: re.Pattern[str], lines: list[str]) -> tuple[str, ...]:
    return tuple(match[1] for line in lines if (match := pattern.match(line)))
