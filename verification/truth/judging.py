"""The judgement: which claims the eager run bears out, which it contradicts, which neither."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from verification.truth.claiming import Claim, Claims, claim
from verification.truth.ops import Op, Place
from verification.truth.running import Run, run_eagerly

Places = Counter[Place | None]
Key = Callable[[Op], Hashable]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A claim that the eager run contradicts.

    Attributes:
        model: the model's name.
        node: the node, with its op and sizes.
        claimed: the place that is claimed.
        expected: the places that the op ran at; of a link the place of the forward node.
        rule: what gave the node its place, and its link.
    """

    model: str
    node: str
    claimed: str
    expected: tuple[str, ...]
    rule: str


@dataclass(slots=True)
class Score:
    """What came of the models so far.

    Attributes:
        models: how many there were.
        right: nodes whose place is borne out.
        linked: nodes whose forward node has their place.
        unjudged: nodes that the eager run says nothing of.
        without: nodes that claim no line.
        wrong: what is contradicted: of a node its place, its link, or both.
        failed: models that did not run, and why.
    """

    models: int = 0
    right: int = 0
    linked: int = 0
    unjudged: int = 0
    without: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the figures in one line."""
        return (
            f"{self.models} models: {self.right} nodes right, {len(self.wrong)} wrong, "
            f"{self.linked} links agree, {self.unjudged} not judged, "
            f"{self.without} without a line, {len(self.failed)} models failed"
        )


def judge(
    score: Score,
    name: str,
    model: Callable[..., Any],
    inputs: tuple[Any, ...],
    device: str = "cpu",
) -> None:
    """Add to a score what comes of a model.

    Args:
        score: the score.
        name: the model's name.
        model: the model, ready to train.
        inputs: what it is called on.
        device: where both are.
    """
    run = run_eagerly(model, inputs)
    claims = claim(model, inputs, device)
    score.models += 1
    score.failed += [f"{name}: {gap.reason}: {gap.detail}" for gap in claims.gaps]
    if not claims.is_whole:
        run, claims = _without_modules(run, claims)
    known = [each for each in claims.each if each.op.place is not None]
    judged = [each for each in known if _is_judged(each, claims, run)]
    score.without += len(claims.each) - len(known)
    score.unjudged += len(known) - len(judged)
    ops = [each for each in judged if not each.writes_back]
    _judge_written(score, name, [each for each in judged if each.writes_back], run)
    _judge_again(score, name, [each for each in ops if not each.is_unique], run)
    _judge_each(score, name, [each for each in ops if each.is_unique], run)
    _judge_links(score, name, known, run)


def _is_judged(claim: Claim, claims: Claims, run: Run) -> bool:
    """Tell whether the eager run knows: of a value that a graph is given, it may know the maker.

    One of several graphs differentiates all that it yields, also what no gradient reaches: sums
    have parts of it.
    """
    is_nested = "/" in claim.node.name  # what a body is given is made outside of it
    is_given = claim.is_of_input and (is_nested or not claims.is_whole)
    is_sum = claim.node.lineage.is_gradient_acc and bool(run.never_differentiated)
    is_never = claim.op.is_backward and claim.op.place[:2] in run.never_differentiated
    is_unknown = is_given or ((is_never or is_sum) and claims.is_broken)
    return not (claim.is_of_a_pass or is_unknown or claim.op.name in run.views)


def _judge_each(score: Score, name: str, claims: list[Claim], run: Run) -> None:
    """Hold nodes that stand for one op each against how often the op ran at each place."""
    ran = _grouped(run.ops, _kind)
    for kind, group in _grouped(claims, lambda each: _kind(each.op)).items():
        expected = ran.get(kind, [])
        if len(expected) >= len(group):
            _compare(score, name, group, expected)
        else:
            score.unjudged += len(group)


def _compare(score: Score, name: str, claims: list[Claim], expected: list[Op]) -> None:
    """Count claims whose place is among those told, as often; an unknown one may be any."""
    places: Places = Counter(op.place for op in expected)
    unknown, surplus = places.pop(None, 0), list[Claim]()
    for each in claims:
        surplus += [each] * (places[each.op.place] == 0)
        places[each.op.place] -= places[each.op.place] > 0
    score.right += len(claims) - len(surplus)
    score.unjudged += min(unknown, len(surplus))
    score.wrong += [_wrong(name, each, (op.place for op in expected)) for each in surplus[unknown:]]


def _judge_again(score: Score, name: str, claims: list[Claim], run: Run) -> None:
    """Hold nodes that compute something again against where the op ran at all."""
    ran = _grouped(run.ops, lambda op: (op.name, op.outputs))
    for each in claims:
        places = [op.place for op in ran.get((each.op.name, each.op.outputs), [])]
        if each.op.place in places:
            score.right += 1
        elif not places or None in places:
            score.unjudged += 1
        else:
            score.wrong.append(_wrong(name, each, places))


def _judge_written(score: Score, name: str, claims: list[Claim], run: Run) -> None:
    """Hold what writes an input back against where anything ran: an op of any name mutated it."""
    places = {op.place for op in run.ops}
    score.right += sum(each.op.place in places for each in claims)
    score.wrong += [_wrong(name, each, ()) for each in claims if each.op.place not in places]


def _judge_links(score: Score, name: str, claims: Iterable[Claim], run: Run) -> None:
    """Hold the place of each node that differentiates against that of its forward node."""
    for each in claims:
        if each.linked is None or each.op.place[:2] in run.own_backward:
            continue
        if each.linked == each.op.place:
            score.linked += 1
        else:
            score.wrong.append(_wrong(name, each, [each.linked]))


def _kind(op: Op) -> Hashable:
    return op.name, op.is_backward, op.outputs


def _grouped(each: Iterable[Any], key: Callable[[Any], Hashable]) -> dict[Hashable, list[Any]]:
    groups: dict[Hashable, list[Any]] = defaultdict(list)
    for one in each:
        groups[key(one)].append(one)
    return groups


def _wrong(name: str, claim: Claim, expected: Iterable[Place | None]) -> Wrong:
    lineage, op = claim.node.lineage, claim.op
    return Wrong(
        model=name,
        node=f"{claim.node.name}: {claim.node.target} {[size for size, _ in op.outputs]}"
        + " in backward" * op.is_backward,
        claimed=str(op.place),
        expected=tuple(sorted({str(place) for place in expected})),
        rule=f"{lineage.mechanism}, {lineage.forward_node} by {lineage.forward_evidence}",
    )


def _without_modules(run: Run, claims: Claims) -> tuple[Run, Claims]:
    ops = tuple(_unmoduled(op) for op in run.ops)
    each = tuple(
        replace(one, op=_unmoduled(one.op), linked=_in_no_module(one.linked)) for one in claims.each
    )
    return replace(run, ops=ops), replace(claims, each=each)


def _unmoduled(op: Op) -> Op:
    return replace(op, place=_in_no_module(op.place))


def _in_no_module(place: Place | None) -> Place | None:
    return None if place is None else place._replace(module="")
