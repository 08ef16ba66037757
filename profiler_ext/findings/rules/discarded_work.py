"""The rule for results that nobody uses: dropped branches, unmasked words, all but the last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.diagonals import diagonals_of, hessians_of
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location, SavingPer
from profiler_ext.findings.lines_of_functions import launches_under
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, Turn, count_and_time
from profiler_ext.findings.unchanged_lines import calls_of_functions
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)
_DRAWS = frozenset({"aten::bernoulli_", "aten::bernoulli", "aten::rand", "aten::rand_like"})
_SCALES = frozenset({"aten::div_", "aten::div", "aten::floor_", "aten::add", "aten::lt"})
_MULTIPLIES = re.compile(r"\b(?:add|b|badd)?b?mm\b")
_MUCH_LONGER = 4  # a number for each sample is much shorter than what it multiplies
_MASKED_MODEL = re.compile(r"masked_?(lm|language)|\bmlm", re.I)
_LOSS = "aten::cross_entropy_loss"
_PICKS = frozenset({"aten::index", "aten::index_select", "aten::masked_select", "aten::gather"})
_UNMASKED = 0.85  # of the words, as BERT's authors mask 15% and nearly all after them
# For each input a Hessian takes the forward and the backward of a derivative, as long as three or
# four forwards. One forward for each input, and two besides, are about half of that, or less
_OF_HESSIAN = 0.5
_LAST = re.compile(r"[\w)\]]\[\s*(?::|\.\.\.)\s*,\s*-1\s*(?:,\s*:\s*)?\]")
_LAST_OF_CALL = re.compile(r"\)\[\s*(?::|\.\.\.)\s*,\s*-1\s*(?:,\s*:\s*)?\]")
# What is converted as a whole, before the last position is read
_CONVERTED = re.compile(r"\.(float|half|bfloat16|to|type)\([^()]*\)\[\s*(?::|\.\.\.)\s*,\s*-1")
_LOOKS_UP = "aten::embedding"
_MIN_ROWS = 512  # a call with fewer generates tokens one by one


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_eager = facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    forward = np.flatnonzero(
        facts.in_steps(is_eager & facts.launches.phase.where(Phase.FORWARD, Phase.OTHER))
    )
    forward = forward[np.argsort(facts.launches.start_ns[forward], kind="stable")]
    learns = facts.launches.phase.where(*_LEARNS).any()
    own = _of_training(facts, forward) if learns else _all_but_last(facts, forward)
    return (*own, *_diagonals(facts, forward), *_hessians(facts))


def _hessians(facts: Facts) -> Iterator[Candidate]:
    """Yield the Hessians of which the diagonal alone is read, by the text."""
    found: dict[tuple[str, str, int], tuple[str, set[int]]] = {}
    others: set[tuple[str, str, int]] = set()  # another call of the function reads them whole
    for function, codes in calls_of_functions(facts):
        own = hessians_of(codes)
        others |= {(*function, line) for line in codes if line not in own}
        for line, readers in own.items():
            found.setdefault((*function, line), (codes[line], set()))[1].update(readers)
    for (file, name, line), (code, readers) in found.items():
        rows = [launches_under(facts, (file, name), each) for each in {line, *readers}]
        launches = np.unique(np.concatenate(rows))
        if (file, name, line) not in others and len(launches):
            yield Candidate(
                summary="a whole Hessian is computed, and its diagonal is read",
                est_saving_ns=int(_OF_HESSIAN * facts.removed_per_step_ns(launches)),
                confidence=Confidence.ESTIMATED,
                remedy="a forward Laplacian: each layer passes on the first derivatives, and the "
                "sum of the second ones",
                location=Location(file, line, code),
                evidence=count_and_time(facts, launches),
                launches=launches,
            )


def _diagonals(facts: Facts, forward: Ints) -> Iterator[Candidate]:
    """Yield the products of whose results the diagonal alone is read, by the text."""
    by_line: dict[tuple[str | None, int | None], list[int]] = {}
    for row in forward.tolist():
        place = facts.place(row)
        by_line.setdefault((place.file, place.line), []).append(row)
    found: dict[tuple[str, int], set[int]] = {}
    others: set[tuple[str, int]] = set()  # lines of what another call of the function reads whole
    for (file, _), codes in calls_of_functions(facts):
        own = diagonals_of(codes)
        others |= {(file, line) for line in codes if line not in own}
        for line, readers in own.items():
            found.setdefault((file, line), set()).update(readers)
    for (file, line), readers in found.items():
        if (file, line) in others:
            continue
        products = [row for row in by_line.get((file, line), []) if _is_product(facts, row)]
        reads = [row for each in readers for row in by_line.get((file, each), [])]
        if products:
            yield _of_diagonal(facts, np.array(products), np.array(reads, np.int64))


def _of_diagonal(facts: Facts, products: Ints, reads: Ints) -> Candidate:
    launches = with_backward(facts, np.union1d(products, reads))
    return Candidate(
        summary="a product of all pairs is computed, and its diagonal is read",
        est_saving_ns=facts.median_per_step(launches, facts.critical_ns(launches)),
        confidence=Confidence.UPPER_BOUND,
        remedy="(left * right.mT).sum(-1): of each row its own product alone",
        location=location_of(facts.place(facts.longest(products))),
        evidence=count_and_time(facts, launches),
        launches=launches,
    )


def _of_training(facts: Facts, forward: Ints) -> Iterator[Candidate]:
    yield from _dropped(facts, forward)
    yield from _unmasked(facts, forward)


def _dropped(facts: Facts, forward: Ints) -> Iterator[Candidate]:
    """Yield the branches of which some samples are multiplied by zero."""
    products: list[int] = []
    drawn = -1
    for row in forward.tolist():
        place = facts.place(row)
        if place.aten_op in _DRAWS:
            drawn = row
        elif drawn >= 0 and place.aten_op not in _SCALES:
            own, duration_ns = facts.place(drawn), facts.launches.duration_ns
            is_here = (own.file, own.function) == (place.file, place.function)
            is_longer = duration_ns[row] > _MUCH_LONGER * duration_ns[drawn]
            if is_here and is_longer and place.aten_op == "aten::mul":
                products.append(row)
            drawn = -1
    if products:
        yield _of_branches(facts, np.array(products, np.int64))


def _of_branches(facts: Facts, products: Ints) -> Candidate:
    modules = {facts.place(row).module or "" for row in products.tolist()}
    own = np.flatnonzero(facts.in_steps(facts.mainly(lambda place: _is_within(place, modules))))
    blocks_ns = facts.median_per_step(own, facts.launches.duration_ns[own])
    return Candidate(
        summary="branches are computed for samples that are then multiplied by zero",
        est_saving_ns=0,
        saving_per=SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED,
        remedy="run the branch on the samples that keep it (index_select, index_add)",
        location=location_of(facts.place(facts.longest(products))),
        evidence=(
            Figure("branches a step", facts.launches_per_step(products)),
            Figure("their modules take, with the backward", blocks_ns, FigureUnit.NS),
        ),
    )


def _is_within(place: Place, modules: set[str]) -> bool:
    module = place.module or ""
    return any(module == each or module.startswith(f"{each}.") for each in modules if each)


def _unmasked(facts: Facts, forward: Ints) -> Iterator[Candidate]:
    """Yield the head of a masked language model, and its loss, where all words go through it."""
    names = {place.module_class or "" for place in facts.analysis.places}
    names |= {frame.function for place in facts.analysis.places for frame in place.stack}
    if not any(map(_MASKED_MODEL.search, names)):
        return
    is_loss = np.array([facts.place(row).aten_op == _LOSS for row in forward.tolist()], np.bool_)
    for own in launches_by_line(facts, forward[is_loss]):
        at = int(np.searchsorted(facts.launches.start_ns[forward], facts.launches.start_ns[own[0]]))
        number = facts.launches.step.filled(-1)
        before = [row for row in forward[:at].tolist() if number[row] == number[own[0]]]
        head = next((row for row in reversed(before) if _is_product(facts, row)), None)
        ops = {facts.place(row).aten_op for row in before}
        if head is not None and not ops & _PICKS:
            yield _of_head(facts, int(own[0]), head)


def _is_product(facts: Facts, row: int) -> bool:
    return _MULTIPLIES.search(facts.innermost_op(row)) is not None


def _is_copy(facts: Facts, row: int) -> bool:
    return facts.innermost_op(row) == "aten::copy_"


def _of_head(facts: Facts, loss: int, head: int) -> Candidate:
    lines = {(each.file, each.line) for each in map(facts.place, (loss, head))}
    own = facts.mainly(lambda place: (place.file, place.line) in lines)
    launches = np.flatnonzero(facts.in_steps(own))
    spent_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    return Candidate(
        summary="a masked language model scores all words, and the loss ignores most",
        est_saving_ns=int(_UNMASKED * spent_ns),
        confidence=Confidence.UPPER_BOUND,
        remedy="select the masked words before the head: head(hidden[labels != -100])",
        location=location_of(facts.place(head)),
        evidence=count_and_time(facts, launches),
        launches=launches,
    )


def _all_but_last(facts: Facts, forward: Ints) -> Iterator[Candidate]:
    """Yield the products of which inference reads the last position alone."""
    lookups = [row for row in forward.tolist() if facts.place(row).aten_op == _LOOKS_UP]
    rows = np.array(lookups, np.int64)
    if not len(rows):
        return
    grid = launch_shapes(facts.analysis.recording.trace, facts.launches.event[rows]).grid
    blocks = np.array([int(text.partition("x")[0] or 0) for text in grid.strings], np.int64)
    counts = blocks[grid.codes]
    starts = facts.launches.start_ns[rows]
    products: list[int] = []
    converted: list[int] = []
    for before, row in zip(forward[:-1].tolist(), forward[1:].tolist(), strict=True):
        number = int(np.searchsorted(starts, facts.launches.start_ns[before])) - 1
        is_long = number >= 0 and counts[number] >= _MIN_ROWS
        if is_long and _is_product(facts, before) and _reads_last(facts, before, row):
            products.append(before)
            if _CONVERTED.search(facts.place(row).code or "") and _is_copy(facts, row):
                converted.append(row)
    if products:
        own = np.array([*products, *converted], np.int64)
        yield Candidate(
            summary="all positions go through the last layer, and one of them is read",
            est_saving_ns=facts.median_per_step(own, facts.critical_ns(own)),
            confidence=Confidence.UPPER_BOUND,
            remedy="take the last position before the layer: head(hidden[:, -1:])",
            location=location_of(facts.place(facts.longest(np.array(products)))),
            evidence=count_and_time(facts, own),
            launches=own,
        )


def _reads_last(facts: Facts, product: int, reader: int) -> bool:
    """Tell whether the text of what follows a product reads its last position."""
    place, own = facts.place(reader), facts.place(product)
    is_same = (place.file, place.line) == (own.file, own.line)
    code = place.code or ""
    if is_same and _LAST_OF_CALL.search(code) is None:
        code = ""
    # Or of the call around it, which then has ended
    ended = {(each.file, each.line, each.code) for each in own.stack}
    ended -= {(each.file, each.line, each.code) for each in place.stack}
    codes = {code, *(each or "" for *_, each in ended)}
    return any(map(_LAST.search, codes))


RULE = Rule(
    name="discarded_work",
    title="Work whose result nobody uses",
    means="One of five. A number for each sample is drawn and multiplied by a whole branch: some "
    "samples' branches become zero (stochastic depth). Or a masked language model, by the names "
    "of its modules and functions, scores all words and none was selected before. Or in inference "
    "a product over many positions is followed by code that reads `[:, -1]` of it. Or "
    "by the text of the lines that ran, a function multiplies matrices and reads nothing but the "
    "diagonal of what it gets (`diagonal()`, `trace`, `x[:, i, i]`), or of a Hessian "
    "(`torch.func.hessian(f)(x)`, `jacrev(jacrev(f))(x)`, also with `vmap`).",
    because="What is multiplied by zero, ignored by the loss (`ignore_index`) or not read costs as "
    "much as the rest, forward and backward.",
    remedy="Run a branch on the samples that keep it. Select the masked words before the head, the "
    "last position before the head of a language model (`num_logits_to_keep` in transformers). "
    "Multiply each row with its own column and sum up. The sum of second derivatives goes "
    "through the layers with the first ones: of a linear layer by its weight, of `y = f(x)` as "
    "`f'(x) * bends + f''(x) * slopes ** 2`.",
    saving="Of branches unknown, because a recording does not say how many samples are dropped. Of "
    "a masked language model 85% of the time of the last layer and the loss, an upper bound: "
    "nearly all mask 15%. Of the last position the time of the product, and of a "
    "conversion of all that it returns. Of a diagonal the time of the product and of what reads "
    "it, with their backward, an upper bound: the rows' own products remain. Of a Hessian half of "
    "how much shorter the step would be without all that it launches and what reads it, with "
    "their backward: for each input it takes three or four times as much as a forward.",
    not_on_cpu=ON_CPU,
    judge=_judge,
    turn=Turn.REMOVES,
)
