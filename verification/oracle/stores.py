"""The check of what each kernel stores, as capture has it, against the generated Triton code.

    python -m verification.oracle.stores [--device cuda|triton] [CASE ...]

A case of ``tests.cases`` is compiled and run twice. Of each generated kernel the buffers that its
code stores are read from ``tl.store`` and from the call in the wrapper, and compared with those
that its schedule lets it store, on which the parts of its nodes rest. ``triton`` writes the code
on a CPU and runs none of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from verification.oracle.stubs import stubbed

_DEFINED = re.compile(r"^(\w+) = async_compile\.triton\('\w+', '''(.*?)'''", re.M | re.S)
_HEAD = re.compile(r"^def triton_\w+\((.*?)\):$", re.M | re.S)
_STORED = re.compile(r"tl\.(?:store|atomic_add)\((?:tl\.make_block_ptr\()?(\w+)")
_POINTER = re.compile(r"^ +(\w+) = (\w+)(?: \+ .*)?$", re.M)
_CALLED = re.compile(r"^\s*(\w+)\.run\((.*)\)$", re.M)


@dataclass(frozen=True)
class Claimed:
    """What capture has of a kernel that Inductor generated.

    Attributes:
        kernel: its name.
        kind: whether it is a template.
        stores: the buffers that it stores; ``None`` where the schedule does not tell.
        is_known: the nodes whose values it stores are known.
    """

    kernel: str
    kind: str
    stores: frozenset[str] | None
    is_known: bool


@dataclass
class Found:
    """What was compared: kernels by kind and outcome, and those that differ."""

    counts: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)


def compare(code: str, claims: Iterable[Claimed], mutated: Mapping[str, str]) -> Found:
    """Compare what was captured of one output module's kernels with its code.

    Args:
        code: the module's text.
        claims: the kernels in it, in the order in which they were generated.
        mutated: the buffer or input that each buffer stands for which is written in place.
    """
    stored = _stored_by_calls(code, mutated)
    found = Found()
    for claim in (each for each in claims if each.kind != "cpp"):
        outcome = _outcome(claim, stored.get(claim.kernel, []), mutated)
        found.counts[f"{claim.kind}: {outcome}"] += 1
        if outcome in ("differs", "no call is found"):
            sets = [sorted(each) for each in stored.get(claim.kernel, [])]
            found.differing.append(f"{claim.kernel}: {sorted(claim.stores or ())}, code {sets}")
    return found


def _outcome(claim: Claimed, calls: list[frozenset[str]], mutated: Mapping[str, str]) -> str:
    if claim.stores is None:
        return "not told"
    if not calls:
        return "no call is found"
    if frozenset(mutated.get(name, name) for name in claim.stores) not in calls:
        return "differs"
    return "as its code" if claim.is_known else "as its code, nodes not known"


def _stored_by_calls(code: str, mutated: Mapping[str, str]) -> dict[str, list[frozenset[str]]]:
    """Return the buffers that each call of a kernel stores; calls in the wrapper's order."""
    kernels = {name: _stored_places(text) for name, text in _DEFINED.findall(code)}
    calls: dict[str, list[frozenset[str]]] = {}
    for kernel, given in _CALLED.findall(code):
        if kernel in kernels:
            names = [each.strip() for each in given.split(",")]
            stored = (names[at] for at in kernels[kernel])
            calls.setdefault(kernel, []).append(frozenset(mutated.get(n, n) for n in stored))
    return calls


def _stored_places(kernel: str) -> list[int]:
    """Return which of its arguments a kernel stores to."""
    head = _HEAD.search(kernel)  # a template has functions of its own besides
    names = [each.split(":")[0].strip() for each in head[1].split(",")] if head else []
    stored = _argument_names(kernel)
    return [at for at, name in enumerate(names) if name in stored]


def _argument_names(kernel: str) -> set[str]:
    """Return what is stored to, and what pointers to it are made of: an argument is among them."""
    value_inputs: dict[str, set[str]] = {}
    for name, base in _POINTER.findall(kernel):
        value_inputs.setdefault(name, set()).add(base)
    found, left = set[str](), set(_STORED.findall(kernel))
    while left:
        found |= left
        left = set().union(*(value_inputs.get(name, ()) for name in left)) - found
    return found


@contextlib.contextmanager
def watched(found: Found) -> Iterator[None]:
    """Compare the kernels of each graph that is compiled in here."""
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    from profiler_ext.capture.graphs import call_sites

    generate, compiled = call_sites.generated_site, GraphLowering.compile_to_module
    claims: dict[int, list[Claimed]] = {}

    def generated(node_schedule: Iterable[Any], kernel: str, *rest: Any) -> Any:
        nodes = list(node_schedule)
        site = generate(nodes, kernel, *rest)
        known = site.stored is not None
        claims.setdefault(id(V.graph), []).append(
            Claimed(kernel, site.kind.value, _claimed(nodes), known)
        )
        return site

    def compile_to_module(self: Any) -> Any:
        module = compiled(self)
        text, renamed = Path(module.__file__).read_text(), dict(self.scheduler.mutation_real_name)
        of_graph = compare(text, claims.pop(id(self), []), renamed)
        found.counts.update(of_graph.counts)
        found.differing.extend(f"{each}  ({module.__file__})" for each in of_graph.differing)
        return module

    with (
        mock.patch.object(call_sites, "generated_site", generated),
        mock.patch.object(GraphLowering, "compile_to_module", compile_to_module),
    ):
        yield


def _claimed(nodes: list[Any]) -> frozenset[str] | None:
    from profiler_ext.torch_compat import schedules

    traffic = [one.traffic for one in schedules.scheduled_nodes(nodes)]
    leaves = [leaf for leaf in traffic if leaf is not None and leaf.writes()]
    if len(leaves) < len(traffic):
        return None
    inside = {leaf.name for leaf in leaves}
    every = (access for leaf in leaves for access in leaf.accesses)
    own = {a.buffer for a in every if a.users is not None and not a.users <= inside}
    return frozenset(own | _mutated(nodes))


def _mutated(nodes: list[Any]) -> set[str]:
    """Return the buffers that a schedule puts out in the place of others.

    A template's leaf writes its result; the others that it is given to write into stand here alone.
    """
    from torch._inductor.virtualized import V

    outputs = (
        each for node in nodes if hasattr(node, "get_outputs") for each in node.get_outputs()
    )
    return {each.get_name() for each in outputs} & set(V.graph.scheduler.mutation_real_name)


def checked(case: str, device: str) -> Found:
    """Compile a case, forward and backward, and compare its kernels."""
    import torch

    import profiler_ext
    from tests.cases.catalogue import CASES

    found = Found()
    torch._dynamo.reset()
    with torch._inductor.config.patch(), stubbed(device), watched(found):
        profiler_ext.enable(cpu_events=False)
        try:
            CASES[case]("cuda" if device == "cuda" else "cpu").step()
        finally:
            profiler_ext.disable()
    return found


def main() -> int:
    """Check what the command line names; the status is 1 where anything differs."""
    parser = argparse.ArgumentParser(prog="python -m verification.oracle.stores")
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--device", choices=("cuda", "triton"), default="cuda")
    options = parser.parse_args()
    differing = 0
    for case in options.cases:
        try:
            found = checked(case, options.device)
        except Exception as error:
            print(f"{case}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        line = f"{case}: {json.dumps(dict(found.counts))}"
        print(line, *found.differing, sep="\n    ", flush=True)
        differing += len(found.differing)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
