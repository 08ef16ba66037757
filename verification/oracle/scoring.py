"""The verdict: the lines in a kernel's code against the lines that the table gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from profiler_ext.attribution.places import SourceRoots
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.source_paths import library_roots
from verification.oracle.compiling import Borne, Compiled
from verification.oracle.constants import MarkedLines, constants_in
from verification.oracle.draft import Model
from verification.oracle.generated import kernel_codes

_GENERATED = (SiteKind.TRITON, SiteKind.TRITON_TEMPLATE, SiteKind.CPP)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A kernel whose lines are not those of its code.

    Attributes:
        seed: the model's.
        kernel: its name in the generated module.
        site: the call site's place in its graph; ``None`` where no call site has the kernel.
        backward: it is of a backward graph.
        missing: lines whose constants stand in the code, and which the table does not give.
        surplus: lines that the table gives, and whose constants do not stand in the code.
        texts: what stands on those lines.
    """

    seed: int
    kernel: str
    site: int | None
    backward: bool
    missing: tuple[int, ...]
    surplus: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(slots=True)
class Score:
    """The sums over many models.

    Attributes:
        models: how many were drawn.
        kernels: definitions in their generated code.
        bearing: those of them whose code has constants.
        sites: call sites of generated kernels.
        expected: lines whose constants stand in a call site's kernel.
        found: lines that the table gives a call site through nodes with constants.
        right: lines that are both.
        wrong: every call site where they differ.
        failed: what capture or a model could not do.
        refused: models that torch fails in without capture too.
    """

    models: int = 0
    kernels: int = 0
    bearing: int = 0
    sites: int = 0
    expected: int = 0
    found: int = 0
    right: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """The part of the given lines that stand in the code."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """The part of the lines in the code that are given."""
        return self.right / self.expected if self.expected else 1.0

    def summary(self) -> str:
        """Return the figures in one line."""
        return (
            f"models {self.models}, kernels {self.kernels} ({self.bearing} with constants), "
            f"call sites {self.sites}, lines checked {self.expected}, "
            f"precision {self.precision:.4f}, recall {self.recall:.4f}, "
            f"wrong call sites {len(self.wrong)}, failures {len(self.failed)}, "
            f"models that torch alone fails in {len(self.refused)}"
        )

    def add_json(self, found: Mapping[str, Any]) -> None:
        """Add what another process found, as :meth:`as_json` gives it."""
        for counted in ("models", "kernels", "bearing", "sites", "expected", "found", "right"):
            setattr(self, counted, getattr(self, counted) + found[counted])
        self.wrong += [Wrong(**one) for one in found["wrong"]]
        self.failed += found["failed"]
        self.refused += found["refused"]

    def as_json(self) -> dict[str, Any]:
        """Return the figures and every exception."""
        return asdict(self) | {"precision": self.precision, "recall": self.recall}


def add(score: Score, model: Model, compiled: Compiled) -> None:
    """Score the kernels of one model."""
    score.models += 1
    into = score.refused if compiled.refused else score.failed
    for problem in _problems(compiled):
        into.append({"seed": model.seed, "blocks": model.blocks, "why": problem})
    marked = MarkedLines.read(model.text)
    for instance in compiled.graphs:
        if instance.output_module is not None:
            _add_graph(score, model, _Lines(compiled, marked), instance)


def _problems(compiled: Compiled) -> Iterable[str]:
    if compiled.error is not None:
        yield compiled.error
    for instance in compiled.graphs:
        gaps = (*instance.gaps, *(instance.provenance.gaps if instance.provenance else ()))
        yield from (f"{gap.reason}: {gap.detail}" for gap in gaps)
    yield from (f"{gap.reason}: {gap.detail}" for gap in compiled.gaps)


class _Lines:
    """Leads constants and nodes of one model to its lines."""

    def __init__(self, compiled: Compiled, marked: MarkedLines) -> None:
        self._compiled = compiled
        self._line_of = marked.line_of
        self._roots = SourceRoots(Settings(library_roots=library_roots()))

    def in_code(self, code: str) -> frozenset[int]:
        """The lines whose constants stand in a kernel's code."""
        return frozenset(self._line_of[c] for c in constants_in(code) if c in self._line_of)

    def of_nodes(self, nodes: Iterable[FxNode], borne: Borne) -> frozenset[int]:
        """The lines of those nodes that bear a constant; 0 for a line elsewhere, none for a gap."""
        bearing = (n for n in nodes if borne.get(n.name, frozenset()) & self._line_of.keys())
        frames = (self._roots.model_frame(node.lineage.stack) for node in bearing)
        own = str(self._compiled.file)
        return frozenset(f.line if f.file == own else 0 for f in frames if f is not None)

    def borne(self, instance: GraphInstance) -> Borne:
        """The constants of each node of a graph."""
        return self._compiled.borne.get(instance.output_module or "", {})


def _add_graph(score: Score, model: Model, lines: _Lines, instance: GraphInstance) -> None:
    codes = kernel_codes(instance.output_module or "")
    score.kernels += len(codes)
    score.bearing += sum(bool(lines.in_code(code)) for code in codes.values())
    by_name = {node.name: node for node in instance.nodes}
    sites = _generated_sites(instance)
    for site in sites:
        nodes = [by_name[name] for name in site.nodes if name in by_name]
        found = lines.of_nodes(nodes, lines.borne(instance))
        expected = lines.in_code(codes.get(site.kernel, ""))
        _compare(score, model, instance, (site.kernel, site.ordinal), expected, found)
    for name in codes.keys() - {site.kernel for site in _all_sites(instance)}:
        _compare(score, model, instance, (name, None), lines.in_code(codes[name]), frozenset())


def _generated_sites(instance: GraphInstance) -> tuple[CallSite, ...]:
    return tuple(site for site in _all_sites(instance) if site.kind in _GENERATED)


def _all_sites(instance: GraphInstance) -> tuple[CallSite, ...]:
    return instance.provenance.call_sites if instance.provenance else ()


def _compare(
    score: Score,
    model: Model,
    instance: GraphInstance,
    place: tuple[str, int | None],
    expected: frozenset[int],
    found: frozenset[int],
) -> None:
    score.sites += place[1] is not None
    score.expected += len(expected)
    score.found += len(found)
    score.right += len(expected & found)
    if expected != found or place[1] is None:
        missing, surplus = tuple(sorted(expected - found)), tuple(sorted(found - expected))
        texts = _texts(model.text.splitlines(), (*missing, *surplus))
        wrong = Wrong(model.seed, *place, instance.is_backward, missing, surplus, texts)
        score.wrong.append(wrong)


def _texts(source: Mapping[int, str] | list[str], lines: Iterable[int]) -> tuple[str, ...]:
    return tuple(source[line - 1].strip() if line else "(elsewhere)" for line in lines)
