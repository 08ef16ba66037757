"""The second oracle, for lines without a constant: what changes when a line is removed.

Each line of these models yields a value of one shape, so any line can be replaced by an earlier
value. A call site that the table gives to the line, with a part of its time, must then be gone
or have other code; of the others, only those that fusion or layout ties to it may change.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.attribution.places import SourceRoots
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance
from profiler_ext.records.recording import Settings
from profiler_ext.source_paths import library_roots
from verification.oracle.compiling import compile_model
from verification.oracle.draft import Draft, Model
from verification.oracle.generated import kernel_codes

_SIZE = 64
_LINES = (
    "{x} @ {w}",
    "torch.cat([{x}[:, 20:], {x}[:, :20]], dim=1)",
    "torch.gather({x}, 1, {i})",
    "{x}[{i}[0]]",
    "torch.roll({x}, 5, 1)",
    "{x}.view(8, 8, 64).transpose(0, 1).reshape(64, 64)",
    "{x}.t().contiguous()",
    "torch.sin({x})",
    "{x} + {y}",
    "{x} * {y}",
    "{x} + {x}.sum(1, keepdim=True)",
    "torch.softmax({x}, 1)",
    "torch.cumsum({x}, 0)",
    "torch.zeros_like({x}).scatter_add(1, {i}, {x})",
    "torch.sort({x}, 1).values",
    "F.linear({x}, {w})",
    "torch.tril({x})",
    "torch.flip({x}, (0,))",
)
_NAMES = re.compile(r"\b(triton|cpp)_\w+\b|\bbuf\d+\b")


@dataclass(frozen=True, slots=True)
class Ablation:
    """What came of removing a line.

    Attributes:
        seed: the model's.
        code: the line.
        given: call sites that the table gives the line, with a part of their time.
        changed: call sites that are gone, or have other code, without the line.
        unmoved: of the given, those which did not change, as kernel names.
        equal: of the given, those which did not seem to change, but have the code of one that
            was not given to the line, so that nobody can tell which of the two went.
        elsewhere: how many changed though they were not given to the line.
    """

    seed: int
    code: str
    given: int
    changed: int
    unmoved: tuple[str, ...]
    equal: int
    elsewhere: int


def plain_model(seed: int) -> Model:
    """Return the random model of a seed, its lines without constants."""
    rng = random.Random(seed)
    m = Draft(rng, _SIZE, _SIZE)
    values = [m.weight(_SIZE, _SIZE)]
    for _ in range(rng.randint(5, 9)):
        names = {"x": values[-1], "y": rng.choice(values)}
        template = rng.choice(_LINES)
        if "{w}" in template:
            names["w"] = m.weight(_SIZE, _SIZE)
        if "{i}" in template:
            names["i"] = m.index(_SIZE, _SIZE, _SIZE)
        values.append(m.line(template.format(**names)))
    return Model(seed, ("plain",), m.text(values[-1], "{}"))


def ablate(seed: int, folder: Path, device: str, limit_s: int) -> Ablation:
    """Remove one line of a random model, and compare.

    Raises:
        RuntimeError: One of the two models did not run.
    """
    model = plain_model(seed)
    line, text = _without_a_line(model.text, random.Random(seed))
    whole = _graphs(model, folder, device, limit_s)
    rest = Counter(_signatures(_graphs(Model(seed, (), text), folder, device, limit_s)))
    given, signatures = _given(whole, line), _signatures(whole)
    spare = Counter(signatures) - rest
    others = {s for (_, is_given), s in zip(given, signatures, strict=True) if not is_given}
    still, left = [], spare.copy()
    for (name, is_given), signature in zip(given, signatures, strict=True):
        if is_given and left[signature] <= 0:
            still.append((name, signature in others))
        left[signature] -= is_given
    count = sum(is_given for _, is_given in given)
    unmoved = tuple(name for name, has_equal in still if not has_equal)
    equal, elsewhere = len(still) - len(unmoved), spare.total() - (count - len(still))
    code = model.text.splitlines()[line - 1].strip()
    return Ablation(seed, code, count, spare.total(), unmoved, equal, elsewhere)


def _without_a_line(text: str, rng: random.Random) -> tuple[int, str]:
    """The number of a line of the model, and the source with that value replaced by another."""
    lines = text.splitlines()
    places = [n for n, line in enumerate(lines) if line.startswith("    v")]
    at = rng.choice(places)
    name, expression = lines[at].strip().split(" = ")
    earlier = re.findall(r"\b[vw]\d+\b", expression)[0]
    lines[at] = f"    {name} = {earlier}"
    return at + 1, "\n".join(lines) + "\n"


def _graphs(model: Model, folder: Path, device: str, limit_s: int) -> tuple[GraphInstance, ...]:
    compiled = compile_model(model, folder, device, limit_s)
    if compiled.error is not None:
        raise RuntimeError(compiled.error)
    return compiled.graphs


def _sites(graphs: Iterable[GraphInstance]) -> Iterable[tuple[GraphInstance, CallSite]]:
    for graph in graphs:
        for site in graph.provenance.call_sites if graph.provenance else ():
            yield graph, site


def _signatures(graphs: tuple[GraphInstance, ...]) -> list[str]:
    """What tells each call site's work: its kernel's code, or the call and its sizes."""
    codes = {g.index: kernel_codes(g.output_module or "") for g in graphs}
    nodes = {g.index: {n.name: n for n in g.nodes} for g in graphs}
    return [
        f"{graph.is_backward} {_signature(site, codes[graph.index], nodes[graph.index])}"
        for graph, site in _sites(graphs)
    ]


def _signature(site: CallSite, codes: dict[str, str], nodes: dict[str, FxNode]) -> str:
    if site.kernel in codes:
        return _NAMES.sub("", codes[site.kernel])
    made = [nodes[name] for name in site.nodes if name in nodes]
    return f"{site.kernel} {[(n.target, n.outputs) for n in made]}"


def _given(graphs: tuple[GraphInstance, ...], line: int) -> list[tuple[str, bool]]:
    """Each call site's kernel, and whether the table gives the line a part of its time.

    What has no input (an ``iota``) does not count: torch merges it with an equal one.
    """
    roots = SourceRoots(Settings(library_roots=library_roots()))
    nodes = {g.index: {n.name: n for n in g.nodes} for g in graphs}
    found = []
    for graph, site in _sites(graphs):
        pairs = zip(site.nodes, site.weights, strict=True)
        made = [nodes[graph.index][name] for name, weight in pairs if weight]
        frames = [roots.model_frame(node.lineage.stack) for node in made if node.inputs]
        found.append((site.kernel, any(f is not None and f.line == line for f in frames)))
    return found
