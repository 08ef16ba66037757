"""The rule for kernels that autotuning chose for other sizes than those they run with.

Autotuning uses the sizes of the call that is compiled. In dynamic code one dimension of a product
is a symbol, and later calls differ. Capture's estimates hold for the compiled sizes; the grid of a
launch, times the tile in the generated code, is the size that it ran with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.groups import blocks_of
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance, TensorSpec
from profiler_ext.records.vocabulary import LaunchKind

# Products of two matrices, and which of their inputs is the first one
_PRODUCTS = {"aten.mm.default": 0, "aten.addmm.default": 1}
_TILE = re.compile(r"^\s*BLOCK_([MN]) : tl\.constexpr = (\d{1,5})$", re.MULTILINE | re.ASCII)
_OTHERS, _DIMENSIONS = (1, 0), "MN"
# So many times as large, or as small, a size is another one: a choice serves its neighbours
_OTHER = 4
_MIN_FRACTION = 0.03


@dataclass(frozen=True, slots=True)
class TunedTemplate:
    """Launches of one template in dynamic code."""

    launches: Ints  # their rows
    tuned_size: int  # the size of the dynamic dimension for which its kernel was chosen
    run_size: Ints  # that of each launch, rounded up to whole tiles
    tile: tuple[int, int]  # the tile of the dynamic dimension, and of the other one


@dataclass(frozen=True, slots=True)
class _Product:
    """A product with one dynamic dimension: which, its symbol, and the other dimension's size."""

    dynamic: int
    symbol: str
    other: int
    inner: int | None


def tuned_templates(facts: Facts) -> Iterator[TunedTemplate]:
    """Yield the launches of each template in dynamic code of which both sizes are known."""
    launches = facts.launches
    rows = np.flatnonzero(facts.in_steps(launches.kind.where(LaunchKind.TRITON_TEMPLATE)))
    rows = rows[~np.ma.getmaskarray(launches.graph)[rows]]
    graph, site = launches.graph.data[rows], launches.call_site.filled(-1)[rows]
    for at in np.unique(graph).tolist():
        instance = facts.analysis.recording.graphs[at]
        products = _products(instance)
        tuned, text = _tuned_for(instance, products), _text(facts, instance)
        for ordinal, product in products.items():
            own = rows[(graph == at) & (site == ordinal)]
            tile = _tile(text, instance.call_sites[ordinal].kernel, product.dynamic)
            if len(own) and tile is not None and product.symbol in tuned:
                run_size = _ran_with(facts, own, product, tile)
                yield TunedTemplate(own, tuned[product.symbol], run_size, tile)


def _products(graph: GraphInstance) -> dict[int, _Product]:
    """Return the products with one dynamic dimension that templates compute, by call site."""
    nodes = {node.name: node for node in graph.nodes}
    of_site: dict[int, _Product] = {}
    for at, site in enumerate(graph.call_sites):
        own = [nodes[name] for name in site.nodes if name in nodes]
        result = [node for node in own if node.target in _PRODUCTS]
        if at == site.ordinal and len(result) == 1 and (made := _product(result[0], nodes)):
            of_site[at] = made
    return of_site


def _product(node: FxNode, nodes: Mapping[str, FxNode]) -> _Product | None:
    size = node.outputs[0].size if len(node.outputs) == 1 else ()
    dynamic = [at for at, each in enumerate(size) if isinstance(each, str)]
    if len(size) != 2 or len(dynamic) != 1:
        return None
    first = _PRODUCTS[node.target]
    specs = [_spec(nodes.get(name)) for name in node.inputs[first : first + 2]]
    inner = [spec.size[1 - at] for at, spec in enumerate(specs) if spec and len(spec.size) == 2]
    known = next((each for each in inner if isinstance(each, int)), None)
    other = size[_OTHERS[dynamic[0]]]
    return _Product(dynamic[0], str(size[dynamic[0]]), int(other), known)


def _spec(node: FxNode | None) -> TensorSpec | None:
    return node.outputs[0] if node is not None and len(node.outputs) == 1 else None


def _tuned_for(graph: GraphInstance, products: Mapping[int, _Product]) -> dict[str, int]:
    """Return each symbol's size when the graph was compiled, by the estimates of its products."""
    # What is fused into a product adds to its estimate, so the least of several is nearest.
    result: dict[str, int] = {}
    for at, product in products.items():
        flops = _number(graph.call_sites[at])
        if product.inner and flops:
            size = flops // (2 * product.inner * product.other)
            result[product.symbol] = min(size, result.get(product.symbol, size))
    return {symbol: size for symbol, size in result.items() if size > 0}


def _number(site: CallSite) -> int | None:
    return int(site.flops) if site.flops is not None and site.flops.isdecimal() else None


def _text(facts: Facts, graph: GraphInstance) -> str:
    kept = facts.analysis.recording.generated
    return next((each.text for each in kept if graph.output_module in each.paths), "")


def _tile(text: str, kernel: str, dynamic: int) -> tuple[int, int] | None:
    """Return the tile of a template's dynamic dimension, and of the other."""
    _, _, after = text.partition(f"async_compile.triton('{kernel}',")
    source = after.partition("'''")[2].partition("'''")[0]
    result = {name: int(size) for name, size in _TILE.findall(source)}
    own, other = (result.get(_DIMENSIONS[at]) for at in (dynamic, _OTHERS[dynamic]))
    return None if own is None or other is None else (own, other)


def _ran_with(facts: Facts, launches: Ints, product: _Product, tile: tuple[int, int]) -> Ints:
    """Return the size of the dynamic dimension in each launch; 0 without a grid."""
    own, other = tile
    tiles: Ints = blocks_of(facts, launches) // ceil(product.other / other)
    return tiles * own


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    result = [(each, own) for each in tuned_templates(facts) if len(own := _mistuned(each))]
    if not result:
        return ()
    launches = np.concatenate([own for _, own in result])
    if facts.median_per_step(launches, facts.critical_ns(launches)) < _MIN_FRACTION * facts.step_ns:
        return ()
    longest = facts.longest(launches)
    return (_candidate(facts, launches, next(each for each, own in result if longest in own)),)


def _mistuned(of_template: TunedTemplate) -> Ints:
    run_size, tuned_size = of_template.run_size, of_template.tuned_size
    is_larger = run_size >= _OTHER * max(tuned_size, of_template.tile[0])
    is_smaller = (run_size > 0) & (run_size * _OTHER <= tuned_size)
    return of_template.launches[is_larger | is_smaller]


def _candidate(facts: Facts, launches: Ints, of_longest: TunedTemplate) -> Candidate:
    longest = facts.longest(launches)
    run_size = int(of_longest.run_size[of_longest.launches == longest][0])
    own, other = of_longest.tile
    return Candidate(
        summary="matmuls run kernels that autotuning chose for another size",
        est_saving_ns=0,
        saving_per=SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED,
        remedy=(
            "make the first call with the usual size, which autotuning then times "
            "(once with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1, as caches keep its "
            "choice); or dynamic=False for few sizes"
        ),
        location=location_of(
            facts.place(longest), facts.launches.kernel[longest], facts.compile_id(longest)
        ),
        evidence=(
            *count_and_time(facts, launches),
            Figure("the longest was chosen for a size of", of_longest.tuned_size),
            Figure("and runs with", run_size),
            Figure("in tiles of", f"{own} by {other}", FigureUnit.TEXT),
            Figure(
                "all that was compiled for it takes", _compiled_ns(facts, launches), FigureUnit.NS
            ),
        ),
        launches=launches,
    )


def _compiled_ns(facts: Facts, launches: Ints) -> int:
    """Return the compiled code's time around these launches, forward and backward."""
    ids = [graph.compile_id for graph in facts.analysis.recording.graphs]
    own = {ids[at] for at in facts.launches.graph[launches].data.tolist()}
    graphs = [at for at, each in enumerate(ids) if each in own]
    of_them = np.isin(facts.launches.graph.filled(-1), graphs)
    rows = np.flatnonzero(facts.in_steps(of_them))
    return facts.median_per_step(rows, facts.launches.duration_ns[rows])


RULE = Rule(
    name="autotuning",
    title="A kernel autotuned for another size",
    means="In code with a dynamic size, a matrix product runs a Triton template that was tuned "
    "for a size at most a quarter, or at least four times, of the one it runs with.",
    because="Autotuning measures its choices with the sizes of the call that is compiled: a small "
    "first batch, a prompt of one token. Later calls with other sizes run the same kernel, and so "
    "does another process that finds it in a cache.",
    remedy="Give the first call the size that matters; compile for a few sizes instead of any "
    "size. Caches keep the choice: disable them once.",
    saving="Unknown: only a run shows the time of another choice at that size. The time of these "
    "launches is given as a figure, from 3% of the usual step on the critical path, and so is the "
    "time of everything that was compiled with them: reductions are split for that size too. The "
    "tuned size is what capture estimated for the call site; the actual size is the grid times "
    "the tile in the generated code, rounded up to full tiles.",
    not_on_cpu="the launches ran on the CPU, where products have no templates",
    judge=_judge,
)
